#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Observes with a main thread that is blocked: how it looks from outside is in docs/flow-control.md.

    blocked-observer.py gdbus|libdbus SECONDS

Registers for "load" and "load.end", prints "ready", blocks for so long without running its main loop, then reads until
"load.end" arrives and prints what it got and how much memory it had when the block ended.
"""

import sys
import time

NAME, PATH = "org.carillon.NotificationCenter1", "/org/carillon/NotificationCenter1"


def resident():
    with open("/proc/self/status", encoding="ascii") as status:
        return next(line.split()[1] for line in status if line.startswith("VmRSS"))


def main(library, seconds):
    from gi.repository import Gio, GLib

    loop = GLib.MainLoop()
    got = {"received": 0, "dropped": 0}

    def arrived(signal, arguments):
        if signal == "Dropped":
            got["dropped"] += arguments[0]
        elif arguments[0] == "load.end":
            loop.quit()
        else:
            got["received"] += 1

    if library == "gdbus":
        bus = Gio.bus_get_sync(Gio.BusType.SESSION, None)
        bus.signal_subscribe(
            NAME, NAME, None, PATH, None, 0, lambda b, s, p, i, signal, arguments: arrived(signal, arguments.unpack())
        )
        for name in ("load", "load.end"):
            arguments = GLib.Variant("(ssa{sv})", (name, "", {}))
            bus.call_sync(NAME, PATH, NAME, "AddObserver", arguments, None, 0, -1, None)
    else:
        import dbus
        import dbus.mainloop.glib

        dbus.mainloop.glib.DBusGMainLoop(set_as_default=True)
        center = dbus.SessionBus().get_object(NAME, PATH)
        for signal in ("Notification", "Dropped"):
            center.connect_to_signal(signal, lambda *arguments, s=signal: arrived(s, arguments), dbus_interface=NAME)
        for name in ("load", "load.end"):
            center.AddObserver(name, "", dbus.Dictionary(signature="sv"), dbus_interface=NAME)

    before = resident()
    print("ready", flush=True)
    time.sleep(seconds)
    print(f"resident before {before} kB, after the block {resident()} kB", flush=True)
    loop.run()
    print(f"received={got['received']} dropped={got['dropped']}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
