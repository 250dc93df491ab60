#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""An application that says by itself when it is active (packages python3-gi and gir1.2-gtk-3.0).

    inbox.py [--automatic]

Where the desktop tells the service which application is active, nothing of this is needed: see --automatic, and
docs/activity.md. The application's own word is exact everywhere: on desktops that tell nothing, and for an application
whose windows belong to several connections.

Prints a line for everything that it hears.
"""

import sys

import gi

gi.require_version("Gtk", "3.0")
from gi.repository import Gio, GLib, Gtk  # noqa: E402

NAME = "org.carillon.NotificationCenter1"
PATH = "/org/carillon/NotificationCenter1"


class Center:
    """What an application tells the notification center. Nothing here waits for an answer."""

    def __init__(self, received):
        self.bus = Gio.bus_get_sync(Gio.BusType.SESSION)
        # Signals of the service are addressed to this connection: no match rule is needed.
        self.bus.signal_subscribe(
            NAME, NAME, None, PATH, None, Gio.DBusSignalFlags.NO_MATCH_RULE,
            lambda _bus, _sender, _path, _interface, signal, arguments: received(signal, arguments.unpack()),
        )  # fmt: skip

    def call(self, method, arguments=None):
        self.bus.call(NAME, PATH, NAME, method, arguments, None, Gio.DBusCallFlags.NONE, -1, None)

    def observe(self, name, behavior):
        options = {"suspension-behavior": GLib.Variant("s", behavior)}
        self.call("AddObserver", GLib.Variant("(ssa{sv})", (name, "", options)))

    def set_suspended(self, suspended):
        self.call("SetSuspended", GLib.Variant("(b)", (suspended,)))

    def follow_activity(self):
        self.call("FollowActivity")


class ActivityFollower:
    """Suspends the application while none of its windows is active.

    GTK tells of each window by itself, so that between two windows of one application there is a moment without an
    active one: a change counts only when it has lasted for 50 ms, except that resuming is never late.
    """

    def __init__(self, center):
        self.center = center
        self.windows = []
        self.suspended = False
        self.timer = 0

    def add(self, window):
        self.windows.append(window)
        window.connect("notify::is-active", lambda *_: self.changed())
        window.connect("destroy", self.windows.remove)
        window.connect("destroy", lambda *_: self.changed())

    def changed(self):
        if self.timer:
            GLib.source_remove(self.timer)
            self.timer = 0
        if any(window.is_active() for window in self.windows):
            self.tell(False)
        else:
            self.timer = GLib.timeout_add(50, self.lasted)

    def lasted(self):
        self.timer = 0
        # Without a window nobody could make it active again.
        self.tell(bool(self.windows))
        return GLib.SOURCE_REMOVE

    def tell(self, suspended):
        if suspended != self.suspended:
            self.suspended = suspended
            self.center.set_suspended(suspended)


def received(signal, arguments):
    if signal == "Notification":
        print("got", arguments[0], flush=True)
    elif signal == "SuspensionChanged":
        print("suspended" if arguments[0] else "resumed", arguments[1], flush=True)


def main():
    center = Center(received)
    center.observe("org.example.Mail", "coalesce")

    window = Gtk.Window(title="Inbox")
    window.connect("destroy", Gtk.main_quit)
    if "--automatic" in sys.argv:
        center.follow_activity()  # which is how every application starts
    else:
        ActivityFollower(center).add(window)
    window.show_all()
    Gtk.main()


if __name__ == "__main__":
    main()
