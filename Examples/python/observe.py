#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Observes notifications from Python, with nothing but GLib's own D-Bus (package python3-gi).

    observe.py [--object OBJECT] [--count NUMBER] [--timeout SECONDS] [NAME ...]

Prints one line of JSON for each notification. Exit status: 0 done, 1 refused, 2 wrong
usage, no bus or no notification center, 3 timed out.
"""

import argparse
import base64
import json
import sys
from datetime import datetime, timedelta, timezone

from gi.repository import Gio, GLib

BUS_NAME = "org.carillon.NotificationCenter1"
PATH = "/org/carillon/NotificationCenter1"
INTERFACE = "org.carillon.NotificationCenter1"


class Observer:
    """Registers whenever there is a notification center, and hands over what arrives."""

    def __init__(self, names, object_, received):
        self.names = names or [""]  # the empty string observes any name
        self.object = object_
        self.received = received
        self.subscription = 0
        # AUTO_START has the bus start the service; the watch tells when it is there, and again after a restart.
        Gio.bus_watch_name(
            Gio.BusType.SESSION, BUS_NAME, Gio.BusNameWatcherFlags.AUTO_START, self.appeared, self.vanished
        )

    def appeared(self, connection, _name, owner):
        # The signal is addressed to this connection, so no match rule is needed. Subscribing to the unique name of
        # the owner means that nobody else can send us one.
        self.subscription = connection.signal_subscribe(
            owner, INTERFACE, "Notification", PATH, None, Gio.DBusSignalFlags.NO_MATCH_RULE, self.on_notification
        )
        # A service that comes after a crash knows our observers already; begin anew, or we would have each twice.
        self.call(connection, owner, "RemoveObservers", GLib.Variant("(ss)", ("", "")))
        # A program with a window would call without waiting (connection.call) so as never to block its main loop.
        for name in self.names:
            self.call(connection, owner, "AddObserver", GLib.Variant("(ssa{sv})", (name, self.object, {})))
        print("observing", ", ".join(name or "everything" for name in self.names), file=sys.stderr, flush=True)

    @staticmethod
    def call(connection, owner, method, arguments):
        try:
            connection.call_sync(owner, PATH, INTERFACE, method, arguments, None, Gio.DBusCallFlags.NONE, -1, None)
        except GLib.Error as error:
            fail(error.message, 1)

    def vanished(self, connection, _name):
        if connection is None:
            fail("there is no session bus", 2)
        if not self.subscription:
            fail("there is no notification center, and the bus can't start one", 2)
        # The service ended; what is posted until it is back is missed. Nobody else may call it for hours, so ask the
        # bus to start it again. If the bus can't, this fails, and the watch still tells when somebody else does.
        connection.signal_unsubscribe(self.subscription)
        print("waiting for the notification center", file=sys.stderr, flush=True)
        connection.call(
            "org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus", "StartServiceByName",
            GLib.Variant("(su)", (BUS_NAME, 0)), None, Gio.DBusCallFlags.NONE, -1, None,
        )  # fmt: skip

    def on_notification(self, _connection, _sender, _path, _interface, _signal, parameters):
        name, object_, _, observers, poster, serial, sequence = parameters.unpack()
        self.received({
            "name": name,
            "object": object_,
            "userInfo": plain(parameters.get_child_value(2)),
            "observers": observers,
            "poster": poster,
            "serial": serial,
            "sequence": sequence,
        })


def fail(message, status):
    print("observe.py:", message, file=sys.stderr)
    sys.exit(status)


def plain(value):
    """A property list as Python values; unpack() would give bytes as a list of numbers, and dates as tuples."""
    kind = value.get_type_string()
    if kind == "v":
        return plain(value.get_variant())
    if kind == "ay":
        return {"$data": base64.b64encode(bytes(value.unpack())).decode()}
    if kind == "(x)":
        date = datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(microseconds=value.unpack()[0])
        return {"$date": date.isoformat().replace("+00:00", "Z")}
    if kind.startswith("a{"):
        entries = (value.get_child_value(index) for index in range(value.n_children()))
        return {entry.get_child_value(0).get_string(): plain(entry.get_child_value(1)) for entry in entries}
    if kind.startswith("a"):
        return [plain(value.get_child_value(index)) for index in range(value.n_children())]
    return value.unpack()


def main():
    parser = argparse.ArgumentParser(description="Prints notifications, one line of JSON for each.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="names to observe (default: all)")
    parser.add_argument("--object", default="", help="only notifications with this object")
    parser.add_argument("--count", type=int, help="exit after that many notifications")
    parser.add_argument("--timeout", type=float, help="exit with status 3 after that many seconds")
    options = parser.parse_args()

    loop = GLib.MainLoop()
    status = 0
    count = 0

    def received(notification):
        nonlocal count
        print(json.dumps(notification, ensure_ascii=False), flush=True)
        count += 1
        if count == options.count:
            loop.quit()

    def timed_out():
        nonlocal status
        status = 3
        loop.quit()

    Observer(options.names, options.object, received)
    if options.timeout is not None:
        GLib.timeout_add(int(options.timeout * 1000), timed_out)
    loop.run()
    sys.exit(status)


if __name__ == "__main__":
    main()
