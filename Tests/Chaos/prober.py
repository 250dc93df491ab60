# SPDX-FileCopyrightText: The Carillon authors
# SPDX-License-Identifier: Apache-2.0
"""Measures how long the center takes to answer, and beside it the bus and a trivial service on the same bus.

    prober.py RECORDS                measure
    prober.py --bystander RECORDS    be the trivial service
"""

import sys

import gi

gi.require_version("Gio", "2.0")
from gi.repository import Gio, GLib  # noqa: E402

from client import Client  # noqa: E402
from contract import (  # noqa: E402
    BYSTANDER, DBUS, DBUS_PATH, INTERFACE, PEER, PROPERTIES, UNOBSERVED, now
)

#: Seconds between one measurement and the next.
INTERVAL = 0.1

#: Calls to the center that may be without an answer. More would be a load of their own.
MOST_PENDING = 30


class Prober(Client):
    def __init__(self, records):
        super().__init__(records)
        self.pending = 0
        self.count = 0
        self.due = now() + INTERVAL
        self.say(f"ready {self.unique_name}")
        GLib.timeout_add(round(INTERVAL * 1000), self._tick)

    def _tick(self):
        late = now() - self.due
        if late > INTERVAL:
            self.record("late", self.due, now())
        self.due = now() + INTERVAL
        self.count += 1
        self._measure("bus", "GetId", None, destination=DBUS, path=DBUS_PATH, interface=DBUS)
        self._measure("bystander", "Ping", None, destination=BYSTANDER, path="/", interface=PEER)
        if self.pending < MOST_PENDING:
            self._ask_center()
        return GLib.SOURCE_CONTINUE

    def _ask_center(self):
        if self.count % 2:
            self._measure("center", "Get", GLib.Variant("(ss)", (INTERFACE, "Version")), interface=PROPERTIES)
            return
        options = {"deliver-immediately": GLib.Variant("b", True)} if self.count % 8 == 0 else {}
        self._measure("center", "Post", GLib.Variant("(ssa{sv}a{sv})", (UNOBSERVED, "", {}, options)))

    def _measure(self, whom, method, arguments, **where):
        sent = now()
        self.pending += whom == "center"

        def answered(_values, error):
            self.pending -= whom == "center"
            self.record("probe", sent, now(), whom, method, error)

        self.call(method, arguments, answered, **where)


class Bystander(Client):
    """Answers Ping, as GDBus does by itself."""

    def __init__(self, records):
        super().__init__(records)
        Gio.bus_own_name_on_connection(
            self.connection, BYSTANDER, Gio.BusNameOwnerFlags.NONE, lambda *_: self.say("ready"), None
        )


if __name__ == "__main__":
    (Bystander(sys.argv[2]) if sys.argv[1] == "--bystander" else Prober(sys.argv[1])).run()
