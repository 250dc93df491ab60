# SPDX-FileCopyrightText: The Carillon authors
# SPDX-License-Identifier: Apache-2.0
"""Hostile clients, each kind a function that acts until its time is over."""

from hostile.callers import deaf, descriptors, errors, malformed
from hostile.files import configuration
from hostile.floods import flood, queued_flood
from hostile.forgers import forge
from hostile.holders import hogs, long_lists, registrations
from hostile.readers import silent, stopped
from hostile.visitors import visitors

#: By the names that options and reports call them.
KINDS = {
    "deaf": deaf,
    "descriptors": descriptors,
    "errors": errors,
    "malformed": malformed,
    "configuration": configuration,
    "flood": flood,
    "queued-flood": queued_flood,
    "forge": forge,
    "hogs": hogs,
    "long-lists": long_lists,
    "registrations": registrations,
    "silent": silent,
    "stopped": stopped,
    "visitors": visitors,
}
