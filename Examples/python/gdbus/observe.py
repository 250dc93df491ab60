#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Prints notifications: observe.py [NAME]"""

import sys

from gi.repository import Gio, GLib

CENTER, PATH = "org.carillon.NotificationCenter1", "/org/carillon/NotificationCenter1"
BUS, BUS_PATH = "org.freedesktop.DBus", "/org/freedesktop/DBus"
name = sys.argv[1] if len(sys.argv) > 1 else "com.example.Saved"
subscription = None


def appeared(connection, _name, owner):
    """There is a service: the first, or another one after a restart."""
    global subscription
    # Signals are addressed to this connection, so the bus needs no match rule. GLib drops what others send.
    subscription = connection.signal_subscribe(
        owner, CENTER, None, PATH, None, Gio.DBusSignalFlags.NO_MATCH_RULE, received
    )

    def call(method, arguments):
        connection.call_sync(owner, PATH, CENTER, method, arguments, None, Gio.DBusCallFlags.NONE, -1, None)

    try:
        # A service that was started anew remembers us. Begin from nothing, or registrations would add up.
        call("RemoveObservers", GLib.Variant("(ss)", ("", "")))
        call("AddObserver", GLib.Variant("(ssa{sv})", (name, "", {"retained": GLib.Variant("b", True)})))
    except GLib.Error as error:
        sys.exit(error.message)
    print("observing", name, flush=True)


def vanished(connection, _name):
    if subscription is None:
        sys.exit("no notification center, and the bus can't start one" if connection else "no session bus")
    connection.signal_unsubscribe(subscription)
    start = GLib.Variant("(su)", (CENTER, 0))
    connection.call(BUS, BUS_PATH, BUS, "StartServiceByName", start, None, Gio.DBusCallFlags.NONE, -1, None)


def received(_connection, _sender, _path, _interface, signal, arguments):
    if signal == "Notification":
        name, object_, user_info, *_ = arguments.unpack()
        print(name, object_, *(f"{key}={text(user_info[key])}" for key in sorted(user_info)), flush=True)
    elif signal == "Dropped":
        count, _, reason = arguments.unpack()
        print(f"lost {count} ({reason})", flush=True)


def text(value):
    return str(value).lower() if isinstance(value, bool) else str(value)


Gio.bus_watch_name(Gio.BusType.SESSION, CENTER, Gio.BusNameWatcherFlags.AUTO_START, appeared, vanished)
GLib.MainLoop().run()
