# SPDX-FileCopyrightText: The Carillon authors
# SPDX-License-Identifier: Apache-2.0
"""Hostile clients that drive one method, option or state to its standard limit, and then go on attacking."""

from hostile import KINDS
from hostile.cases import (
    channels, configuration, connections, flow, malformed, posts, questions, queued, registrations, suspension, values
)

#: By the names that options and reports call them; the kinds of tools/chaos are among them.
CASES = dict(KINDS)
for module in (
    registrations, posts, queued, values, flow, channels, suspension, questions, connections, malformed, configuration
):
    CASES |= module.CASES
