#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Prints notifications: observe.py [NAME]"""

import sys

import dbus
from dbus.mainloop.glib import DBusGMainLoop
from gi.repository import GLib

CENTER, PATH = "org.carillon.NotificationCenter1", "/org/carillon/NotificationCenter1"
name = sys.argv[1] if len(sys.argv) > 1 else "com.example.Saved"


def owner_changed(owner):
    """There is a service, the first or another one after a restart; or there is none."""
    if not owner:
        bus.start_service_by_name(CENTER)
        return
    center = dbus.Interface(bus.get_object(CENTER, PATH, introspect=False), CENTER)
    # A service that was started anew remembers us. Begin from nothing, or registrations would add up.
    center.RemoveObservers("", "")
    # With the signature, values of an a{sv} need no types, and a dictionary may be empty.
    center.AddObserver(name, "", {"retained": True}, signature="ssa{sv}")
    print("observing", name, flush=True)


def notification(name, object_, user_info, *_):
    print(name, object_, *(f"{key}={text(user_info[key])}" for key in sorted(user_info)), flush=True)


def dropped(count, _observers, reason):
    print(f"lost {count} ({reason})", flush=True)


def text(value):
    return str(bool(value)).lower() if isinstance(value, dbus.Boolean) else str(value)


DBusGMainLoop(set_as_default=True)
try:
    bus = dbus.SessionBus()
    bus.start_service_by_name(CENTER)
except dbus.DBusException as error:
    sys.exit(str(error))
# bus_name has dbus-python follow the owner of the name, and believe only that. A signal connected on a proxy, with
# connect_to_signal, would be deaf after a restart of the service.
for handler, signal in (notification, "Notification"), (dropped, "Dropped"):
    bus.add_signal_receiver(handler, signal, CENTER, bus_name=CENTER, path=PATH)
bus.watch_name_owner(CENTER, owner_changed)
GLib.MainLoop().run()
