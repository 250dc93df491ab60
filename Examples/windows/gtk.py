#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A window that shows what it receives, and what it was told while it was inactive, with GTK 3 or GTK 4 (packages
python3-gi and gir1.2-gtk-3.0 or gir1.2-gtk-4.0):

    gtk.py 3|4 [TITLE] & carillon post News text="it rains"
"""

import sys

import gi

GTK = int(sys.argv[1]) if len(sys.argv) > 1 else 4
gi.require_version("Gtk", f"{GTK}.0")
from gi.repository import Gio, GLib, Gtk  # noqa: E402

NAME = "org.carillon.NotificationCenter1"
PATH = "/org/carillon/NotificationCenter1"
BEHAVIORS = {"News": "hold", "Level": "coalesce", "Alarm": "deliver-immediately"}


class Inbox(Gtk.Window):
    """It need not say when it is active, as the service sees that, and it goes on when the service was away."""

    def __init__(self, title):
        super().__init__(title=title, default_width=320, default_height=200)
        self.box = Gtk.Box(orientation=Gtk.Orientation.VERTICAL, spacing=4, margin_start=8, margin_top=8)
        self.state = self.label("")
        self.add(self.box) if GTK == 3 else self.set_child(self.box)
        self.suspended, self.resumed_at, self.subscription = False, 0, 0
        flags = Gio.BusNameWatcherFlags.AUTO_START
        Gio.bus_watch_name(Gio.BusType.SESSION, NAME, flags, self.appeared, self.vanished)

    def label(self, text):
        label = Gtk.Label(label=text, xalign=0)
        self.box.add(label) if GTK == 3 else self.box.append(label)
        label.show()
        return label

    def show_state(self, state, color):
        self.state.set_markup(f"<span size='large' weight='bold' color='{color}'>{state}</span>")
        print(state, flush=True)

    def show_line(self, line):
        self.label(line)
        print(line, flush=True)

    def appeared(self, bus, _name, owner):
        def call(method, arguments):  # Waits for no answer: the window never stands still.
            bus.call(owner, PATH, NAME, method, arguments, None, Gio.DBusCallFlags.NONE, -1, None)

        # Signals of the service are addressed to this connection, so that no match rule is needed.
        self.subscription = bus.signal_subscribe(
            owner, NAME, None, PATH, None, Gio.DBusSignalFlags.NO_MATCH_RULE, self.received)  # fmt: skip
        options = {"batches": GLib.Variant("b", True), "details": GLib.Variant("as", ["time"])}
        call("SetClientOptions", GLib.Variant("(a{sv})", (options,)))
        call("RemoveObservers", GLib.Variant("(ss)", ("", "")))  # It may know them from before it was away.
        for name, behavior in BEHAVIORS.items():
            options = {"suspension-behavior": GLib.Variant("s", behavior)}
            call("AddObserver", GLib.Variant("(ssa{sv})", (name, "", options)))
        self.suspended = False
        self.show_state("active", "#1a7f37")

    def vanished(self, bus, name):
        self.show_state("no notification center", "#6e7781")
        if self.subscription:
            bus.signal_unsubscribe(self.subscription)
            self.subscription = 0
            bus.call("org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus", "StartServiceByName",
                     GLib.Variant("(su)", (name, 0)), None, Gio.DBusCallFlags.NONE, -1, None)  # fmt: skip

    def received(self, _bus, _sender, _path, _interface, signal, arguments):
        if signal == "Notifications":
            for name, _object, user_info, _observers, _poster, _serial, _sequence, details in arguments.unpack()[0]:
                was_inactive = self.suspended or details.get("time", 0) < self.resumed_at
                self.show_line(f"{name}: {user_info.get('text', '')}{' (while inactive)' if was_inactive else ''}")
        elif signal == "SuspensionChanged" and arguments.unpack()[0] != self.suspended:  # else the cause changed
            self.suspended = not self.suspended
            if not self.suspended:  # What was kept comes behind this, and was posted before it.
                self.resumed_at = GLib.get_real_time()
            self.show_state("inactive" if self.suspended else "active", "#6e7781" if self.suspended else "#1a7f37")
        elif signal == "Dropped":
            self.show_line("some were lost")


if GTK == 3:
    Gtk.init(None)
loop = GLib.MainLoop()
window = Inbox(sys.argv[2] if len(sys.argv) > 2 else f"GTK {GTK}, Python")
window.connect("destroy", lambda _: loop.quit())
window.show_all() if GTK == 3 else window.present()
loop.run()
