# SPDX-FileCopyrightText: The Carillon authors
# SPDX-License-Identifier: Apache-2.0
"""Many different messages out of one: marshalling each of a hundred thousand would take longer than serving them."""

import struct

from gi.repository import GLib

from wire import message

#: The text whose place a number of eight digits takes.
NUMBER = "00000000"

HOLD = {"suspension-behavior": GLib.Variant("s", "hold")}
COALESCE = {"suspension-behavior": GLib.Variant("s", "coalesce")}
RETAINED = {"retained": GLib.Variant("b", True)}
RETAIN = {"retain": GLib.Variant("b", True)}


def numbered(template, numbers):
    """Copies of a message, one for each of these numbers, one behind the other."""
    before, mark, behind = template.partition(NUMBER.encode())
    if not mark:
        return template * len(numbers)
    return b"".join([before + b"%08d" % number + behind for number in numbers])


def with_number(template, number):
    """A call whose last argument is a number of 64 bits, with that one."""
    return template[:-8] + struct.pack("=Q", number)


def style(name, coalesce_on=()):
    """Options of a post that waits in its poster's queue."""
    options = {"posting-style": GLib.Variant("s", name)}
    if coalesce_on:
        options["coalesce-on"] = GLib.Variant("as", coalesce_on)
    return options


def padding(size):
    """A user info of that many bytes, and some."""
    return {"pad": GLib.Variant("s", "x" * size)}


def expiring(seconds):
    """Options of a value that is kept for so many seconds."""
    return RETAIN | {"expires-after": GLib.Variant("u", seconds)}


def suspended(on, answer=True):
    """The call that suspends or resumes its caller."""
    return message("SetSuspended", GLib.Variant("(b)", (on,)), answer=answer)


def name_and_object(method, name="", object_="", answer=True):
    """A call of a method that takes these two: RemoveObservers, WithdrawPosts, RemoveRetained, Get."""
    return message(method, GLib.Variant("(ss)", (name, object_)), answer=answer)


def from_place(method, after, most, kind="t"):
    """A call of FollowInterest (`kind` s) or FollowValues (t): so many behind that place."""
    return message(method, GLib.Variant(f"({kind}u)", (after, most)), answer=True)
