#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Tells that somebody is here, for as long as this program runs (package python3-gi).

    presence.py NAME OBJECT

While it is on the bus there is a value of NAME and OBJECT, which anybody can read:

    gdbus call -e -d org.carillon.NotificationCenter1 -o /org/carillon/NotificationCenter1 \\
        -m org.carillon.NotificationCenter1.Get NAME ''

When it ends the value is gone, and when it did not end as it should, by a crash or a kill, NAME.Lost is posted. It ends
as it should when it reads a line, or the end of its input.
"""

import sys

from gi.repository import Gio, GLib

NAME, PATH = "org.carillon.NotificationCenter1", "/org/carillon/NotificationCenter1"


def main(name, who):
    center = Gio.DBusProxy.new_for_bus_sync(Gio.BusType.SESSION, 0, None, NAME, PATH, NAME)
    value = {"retain": GLib.Variant("b", True), "while-connected": GLib.Variant("b", True)}
    last_will = {"posting-style": GLib.Variant("s", "at-exit")}
    center.Post("(ssa{sv}a{sv})", name, who, {}, value)
    center.Post("(ssa{sv}a{sv})", name + ".Lost", who, {}, last_will)
    print("here", flush=True)
    sys.stdin.readline()
    center.WithdrawPosts("(ss)", name + ".Lost", who)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: presence.py NAME OBJECT")
    main(*sys.argv[1:])
