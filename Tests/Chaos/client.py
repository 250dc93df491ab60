# SPDX-FileCopyrightText: The Carillon authors
# SPDX-License-Identifier: Apache-2.0
"""What the well-behaved clients share: a GDBus connection, orders from the stage, and records for the judge.

Each is a process of its own. It says on standard output how far it is, takes orders, one word a line, from standard
input, and ends with it. What it saw goes to a file, one JSON array a line, whose first element says what it is.
"""

import json
import sys

from gi.repository import Gio, GLib

from contract import BUS_NAME, DBUS, DBUS_PATH, INTERFACE, OBJECT_PATH


class Client:
    """A connection, and the loop of its process."""

    def __init__(self, records):
        self.loop = GLib.MainLoop()
        self._records = open(records, "w", encoding="utf-8")  # noqa: SIM115
        self.connection = Gio.DBusConnection.new_for_address_sync(
            GLib.getenv("DBUS_SESSION_BUS_ADDRESS"),
            Gio.DBusConnectionFlags.AUTHENTICATION_CLIENT | Gio.DBusConnectionFlags.MESSAGE_BUS_CONNECTION,
            None, None,
        )
        self.unique_name = self.connection.get_unique_name()
        self._input = GLib.IOChannel.unix_new(sys.stdin.fileno())
        GLib.io_add_watch(self._input, GLib.PRIORITY_DEFAULT, GLib.IO_IN | GLib.IO_HUP, self._order)

    def record(self, *what):
        """Writes a line for the judge."""
        self._records.write(json.dumps(what, separators=(",", ":")) + "\n")

    def say(self, word):
        """Tells the stage how far this client is."""
        print(word, flush=True)

    def run(self):
        """Runs until the stage is gone or gives the order to end."""
        self.loop.run()
        self._records.close()

    def ordered(self, order):
        """Is called with each order other than `end`."""

    def _order(self, channel, _condition):
        line = channel.readline()
        if not line or line.strip() == "end":
            self.loop.quit()
            return GLib.SOURCE_REMOVE
        self.ordered(line.strip())
        return GLib.SOURCE_CONTINUE

    # Calls

    def call(self, method, arguments, then, *, destination=BUS_NAME, path=OBJECT_PATH, interface=INTERFACE,
             seconds=120):
        """Calls a method. `then` is called with the values of the answer and None, or with None and an error's name."""

        def answered(connection, result):
            try:
                values = connection.call_finish(result).unpack()
            except GLib.Error as error:
                then(None, error.message.removeprefix("GDBus.Error:"))
            else:
                then(values, None)

        self.connection.call(
            destination, path, interface, method, arguments, None, Gio.DBusCallFlags.NONE, seconds * 1000, None,
            answered,
        )

    def until_answered(self, method, arguments, then):
        """Calls a method of the center again and again until it is answered without an error."""

        def answered(values, error):
            if error is None:
                then(values)
            else:
                GLib.timeout_add(100, self._again, method, arguments, then)

        self.call(method, arguments, answered)

    def _again(self, method, arguments, then):
        self.until_answered(method, arguments, then)
        return GLib.SOURCE_REMOVE


class Ownership:
    """Who owns the center's name, as the bus tells it."""

    def __init__(self, client, changed=lambda owner: None):
        self._changed = changed
        self.owner = ""
        client.connection.signal_subscribe(
            DBUS, DBUS, "NameOwnerChanged", DBUS_PATH, BUS_NAME, Gio.DBusSignalFlags.NONE, self._owner_changed
        )
        client.call(
            "GetNameOwner", GLib.Variant("(s)", (BUS_NAME,)), self._answered, destination=DBUS, path=DBUS_PATH,
            interface=DBUS,
        )

    def _answered(self, values, _error):
        if values and not self.owner:
            (self.owner,) = values
            self._changed(self.owner)

    def _owner_changed(self, _connection, sender, _path, _interface, _signal, parameters):
        if sender == DBUS:
            self.owner = parameters.unpack()[2]
            self._changed(self.owner)
