# SPDX-FileCopyrightText: The Carillon authors
# SPDX-License-Identifier: Apache-2.0
"""A GTK program as an author who never heard of suspension writes it: a window, and observers over plain D-Bus.

    window.py TITLE [--always] [--own-name] [--dock] [--transient-for X11-WINDOW]

It observes the four names "drop", "coalesce", "hold" and "deliver-immediately", each with the suspension behavior of
that name, with --always and automatic-suspension false, and prints a line for everything that it receives. Its window
is a panel's with --dock, and a dialog of a window of another program with --transient-for. Signals of the interface org.example.Window, which a test
sends to it, tell it what a person would do: Close the window, Hide it, Open another one. Rename gives it a hundred titles
in a second. Mark prints "mark": what was sent before has been printed before.
"""

import sys

import gi

gi.require_version("Gdk", "3.0")
gi.require_version("Gtk", "3.0")
from gi.repository import Gdk, Gio, GLib, Gtk  # noqa: E402

if "--transient-for" in sys.argv:
    from gi.repository import GdkX11  # noqa: E402

NAME = "org.carillon.NotificationCenter1"
PATH = "/org/carillon/NotificationCenter1"

title = sys.argv[1]
options = {"automatic-suspension": GLib.Variant("b", False)} if "--always" in sys.argv else {}
GLib.set_prgname(title)
bus = Gio.bus_get_sync(Gio.BusType.SESSION)
if "--own-name" in sys.argv:
    Gio.bus_own_name_on_connection(bus, title, Gio.BusNameOwnerFlags.NONE, None, None)
window = None


def tell(*words):
    print(*words, flush=True)


def open_window():
    global window
    window = Gtk.Window(title=title)
    if "--dock" in sys.argv:
        window.set_type_hint(Gdk.WindowTypeHint.DOCK)
    if "--transient-for" in sys.argv:
        # As portals do it.
        owner = int(sys.argv[sys.argv.index("--transient-for") + 1])
        window.realize()
        display = window.get_display()
        window.get_window().set_transient_for(GdkX11.X11Window.foreign_new_for_display(display, owner))
    # As programs with an icon in the panel do: without a window it goes on.
    window.connect("destroy", lambda *_: tell("closed"))
    window.show_all()


def received(connection, sender, path, interface, member, arguments):
    values = arguments.unpack()
    if member == "Notification":
        tell("got", values[0], values[2].get("number"))
    elif member == "SuspensionChanged":
        tell("suspended" if values[0] else "resumed", values[1])
    else:
        tell(member, *values)


def commanded(connection, sender, path, interface, member, arguments):
    if member == "Close":
        window.destroy()
    elif member == "Open":
        open_window()
    elif member == "Hide":
        window.iconify()
    elif member == "Rename":
        rename(100)
    elif member == "Mark":
        tell("mark")


def rename(left):
    window.set_title(f"{title} {left}" if left else title)
    GLib.timeout_add(10, rename, left - 1) if left else tell("renamed")
    return False


def subscribe(interface, callback):
    bus.signal_subscribe(None, interface, None, None, None, Gio.DBusSignalFlags.NO_MATCH_RULE, callback)


subscribe(NAME, received)
subscribe("org.example.Window", commanded)
for behavior in ("drop", "coalesce", "hold", "deliver-immediately"):
    arguments = GLib.Variant(
        "(ssa{sv})", (behavior, "", {"suspension-behavior": GLib.Variant("s", behavior), **options})
    )
    bus.call_sync(NAME, PATH, NAME, "AddObserver", arguments, None, Gio.DBusCallFlags.NONE, -1, None)
tell("name", bus.get_unique_name())
open_window()
Gtk.main()
