#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Posts a notification: post.py [OBJECT [BYTES]]"""

import sys

import dbus

CENTER, PATH = "org.carillon.NotificationCenter1", "/org/carillon/NotificationCenter1"
object_ = sys.argv[1] if len(sys.argv) > 1 else "report.txt"
size = int(sys.argv[2]) if len(sys.argv) > 2 else 4711

# A plain int would be an int32. The option keeps it as the value of this name and object, for observers to come.
user_info = {"bytes": dbus.Int64(size), "clean": True, "title": "Annual report — 2026"}
try:
    center = dbus.Interface(dbus.SessionBus().get_object(CENTER, PATH, introspect=False), CENTER)
    reached = center.Post("com.example.Saved", object_, user_info, {"retain": True}, signature="ssa{sv}a{sv}")
except dbus.DBusException as error:
    sys.exit(f"{error.get_dbus_name()}: {error.get_dbus_message()}")
print("reached", reached)
