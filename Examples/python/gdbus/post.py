#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Posts a notification: post.py [OBJECT [BYTES]]"""

import sys

from gi.repository import Gio, GLib

CENTER, PATH = "org.carillon.NotificationCenter1", "/org/carillon/NotificationCenter1"
object_ = sys.argv[1] if len(sys.argv) > 1 else "report.txt"
size = int(sys.argv[2]) if len(sys.argv) > 2 else 4711

user_info = {
    "bytes": GLib.Variant("x", size),
    "clean": GLib.Variant("b", True),
    "title": GLib.Variant("s", "Annual report — 2026"),
}
# Kept as the value of this name and object, for observers that come later.
options = {"retain": GLib.Variant("b", True)}
post = GLib.Variant("(ssa{sv}a{sv})", ("com.example.Saved", object_, user_info, options))
try:
    bus = Gio.bus_get_sync(Gio.BusType.SESSION, None)
    reply = bus.call_sync(CENTER, PATH, CENTER, "Post", post, None, Gio.DBusCallFlags.NONE, -1, None)
except GLib.Error as error:
    sys.exit(error.message)  # "GDBus.Error:", the name of the error, and its message
print("reached", *reply.unpack())
