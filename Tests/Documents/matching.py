# SPDX-License-Identifier: Apache-2.0
"""Whether output is what a document shows of it."""

import re

#: What the bus numbers by itself.
UNIQUE_NAME = re.compile(r":1\.\d+")
ELLIPSIS = "…"


def normalized(line, differs):
    """A line without what differs from run to run. How many blanks a table has depends on what else is in it."""
    line = re.sub(r"\s+", " ", line).strip()
    for pattern in [*differs, UNIQUE_NAME]:
        line = pattern.sub("\x00", line)
    return line


def _line_matches(shown, actual):
    parts = [re.escape(part) for part in shown.split(ELLIPSIS)]
    return re.fullmatch(".*".join(parts), actual) is not None


def matches(shown, actual, differs=(), is_over=True):
    """Whether the lines are those that are shown. One that goes on (`is_over` false) may have more to come."""
    shown = [normalized(line, differs) for line in shown]
    actual = [normalized(line, differs) for line in actual]
    return _rest_matches(shown, actual, is_over)


def _rest_matches(shown, actual, is_over):
    for index, line in enumerate(shown):
        if line == ELLIPSIS:
            rest = shown[index + 1:]
            return any(_rest_matches(rest, actual[start:], is_over) for start in range(index, len(actual) + 1))
        if index >= len(actual):
            return False
        if not _line_matches(line, actual[index]):
            return False
    return len(actual) == len(shown) if is_over else len(actual) >= len(shown)
