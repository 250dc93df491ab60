#!/usr/bin/python3
# SPDX-FileCopyrightText: The Carillon authors
# SPDX-License-Identifier: Apache-2.0
"""Somebody on the system bus who is no service of a session, for the tests of what they may do (G1).

Takes requests as lines of JSON, and answers each with a line:

    ["name"]                                    its unique name
    ["emit", RECEIVER or null, MEMBER, ARGUMENTS, COUNT]    sends a signal so often; "%d" in ARGUMENTS counts from 1
    ["heard"]                                   all signals of the interface that came, as [sender, member, arguments]
"""

import json
import os
import sys
import threading

from gi.repository import Gio, GLib

PATH, INTERFACE = "/org/carillon/Sessions1", "org.carillon.Sessions1"
FLAGS = Gio.DBusConnectionFlags

connection = Gio.DBusConnection.new_for_address_sync(
    os.environ["DBUS_SYSTEM_BUS_ADDRESS"], FLAGS.AUTHENTICATION_CLIENT | FLAGS.MESSAGE_BUS_CONNECTION, None, None
)
heard = []


def note(_connection, sender, _path, _interface, member, arguments):
    if sender != connection.get_unique_name():  # its own broadcasts match as well
        heard.append([sender, member, arguments.print_(False)])


connection.signal_subscribe(None, INTERFACE, None, PATH, None, Gio.DBusSignalFlags.NONE, note)


def answer(request):
    if request[0] == "name":
        return connection.get_unique_name()
    if request[0] == "heard":
        return heard
    receiver, member, arguments, count = request[1:]
    for number in range(1, count + 1):
        text = arguments.replace("%d", str(number))
        connection.emit_signal(receiver, PATH, INTERFACE, member, GLib.Variant.parse(None, text) if text else None)
    connection.flush_sync(None)
    return count


def serve(line):
    try:
        result = answer(json.loads(line))
    except Exception as error:  # whoever asked is told, whatever it is
        result = {"error": repr(error)}
    print(json.dumps(result), flush=True)
    return GLib.SOURCE_REMOVE


def read():
    for line in sys.stdin:
        GLib.idle_add(serve, line)
    GLib.idle_add(loop.quit)


loop = GLib.MainLoop()
threading.Thread(target=read, daemon=True).start()
loop.run()
