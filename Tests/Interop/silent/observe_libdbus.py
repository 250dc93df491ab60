# SPDX-FileCopyrightText: The Carillon authors
# SPDX-License-Identifier: Apache-2.0
"""An observer with libdbus that takes messages without dispatching them, as many small C programs do.

`observe_libdbus.py NAME [SPARE]`: with SPARE, this process has another connection, of which it never reads anything.
See test_silent_libraries.py.
"""

import ctypes
import sys
from ctypes import POINTER, byref, c_char_p, c_int, c_uint32, c_uint64, c_void_p

from tally import Tally

INTERFACE = b"org.carillon.NotificationCenter1"
PATH = b"/org/carillon/NotificationCenter1"
SESSION = 0

dbus = ctypes.CDLL("libdbus-1.so.3")


def function(name, result, *arguments):
    found = getattr(dbus, name)
    found.restype, found.argtypes = result, arguments
    return found


bus_get_private = function("dbus_bus_get_private", c_void_p, c_int, c_void_p)
unique_name = function("dbus_bus_get_unique_name", c_char_p, c_void_p)
read_write = function("dbus_connection_read_write", c_uint32, c_void_p, c_int)
pop_message = function("dbus_connection_pop_message", c_void_p, c_void_p)
send = function("dbus_connection_send", c_uint32, c_void_p, c_void_p, c_void_p)
flush = function("dbus_connection_flush", None, c_void_p)
new_method_call = function("dbus_message_new_method_call", c_void_p, c_char_p, c_char_p, c_char_p, c_char_p)
unref = function("dbus_message_unref", None, c_void_p)
is_signal = function("dbus_message_is_signal", c_uint32, c_void_p, c_char_p, c_char_p)
message_type = function("dbus_message_get_type", c_int, c_void_p)
iter_init = function("dbus_message_iter_init", c_uint32, c_void_p, c_void_p)
iter_init_append = function("dbus_message_iter_init_append", None, c_void_p, c_void_p)
append_basic = function("dbus_message_iter_append_basic", c_uint32, c_void_p, c_int, c_void_p)
open_container = function("dbus_message_iter_open_container", c_uint32, c_void_p, c_int, c_char_p, c_void_p)
close_container = function("dbus_message_iter_close_container", c_uint32, c_void_p, c_void_p)
next_argument = function("dbus_message_iter_next", c_uint32, c_void_p)
get_basic = function("dbus_message_iter_get_basic", None, c_void_p, c_void_p)

METHOD_RETURN = 2


class Iterator(ctypes.Structure):
    """At least as large as DBusMessageIter."""

    _fields_ = [("space", c_void_p * 16)]


def connect():
    connection = bus_get_private(SESSION, None)
    if not connection:
        sys.exit("no bus")
    return connection


def add_observer(connection, name):
    message = new_method_call(INTERFACE, PATH, INTERFACE, b"AddObserver")
    arguments, options = Iterator(), Iterator()
    iter_init_append(message, byref(arguments))
    for text in (name.encode(), b""):
        append_basic(byref(arguments), ord("s"), byref(c_char_p(text)))
    open_container(byref(arguments), ord("a"), b"{sv}", byref(options))
    close_container(byref(arguments), byref(options))
    send(connection, message, None)
    unref(message)
    flush(connection)
    while True:
        read_write(connection, -1)
        while reply := pop_message(connection):
            is_answer = message_type(reply) == METHOD_RETURN
            unref(reply)
            if is_answer:
                return


def argument(message, index, kind):
    arguments = Iterator()
    iter_init(message, byref(arguments))
    for _ in range(index):
        next_argument(byref(arguments))
    value = kind()
    get_basic(byref(arguments), byref(value))
    return value.value


def main(name, spare=None):
    if spare:
        connect()
    connection = connect()
    add_observer(connection, name)
    tally = Tally(unique_name(connection).decode())
    while True:
        read_write(connection, -1)
        while message := pop_message(connection):
            if is_signal(message, INTERFACE, b"Notification"):
                object_ = argument(message, 1, c_char_p).decode()
                tally.notification(object_, argument(message, 6, c_uint64))
            elif is_signal(message, INTERFACE, b"Dropped"):
                tally.dropped(argument(message, 0, c_uint64))
            unref(message)


main(*sys.argv[1:])
