# SPDX-FileCopyrightText: The Carillon authors
# SPDX-License-Identifier: Apache-2.0
"""An observer with jeepney's blocking connection: `observe_jeepney.py NAME`. See test_silent_libraries.py."""

import sys

from jeepney import DBusAddress, HeaderFields, MessageType, new_method_call
from jeepney.io.blocking import open_dbus_connection

from tally import Tally

INTERFACE = "org.carillon.NotificationCenter1"
CENTER = DBusAddress("/org/carillon/NotificationCenter1", bus_name=INTERFACE, interface=INTERFACE)

connection = open_dbus_connection(bus="SESSION")
connection.send_and_get_reply(new_method_call(CENTER, "AddObserver", "ssa{sv}", (sys.argv[1], "", {})))
tally = Tally(connection.unique_name)
while True:
    message = connection.receive()
    fields = message.header.fields
    if message.header.message_type == MessageType.signal and fields.get(HeaderFields.interface) == INTERFACE:
        tally.take(fields[HeaderFields.member], message.body)
