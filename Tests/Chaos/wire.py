# SPDX-FileCopyrightText: The Carillon authors
# SPDX-License-Identifier: Apache-2.0
"""A connection to the bus with nothing between it and the socket: it reads when it is told to, and answers nothing."""

import os
import re
import select
import socket
import time

from gi.repository import Gio, GLib

from contract import BUS_NAME, DBUS, DBUS_PATH, INTERFACE, OBJECT_PATH, PATIENCE, PEER


class Closed(Exception):
    """The bus closed the connection, or does not take or give anything."""


def message(method, arguments=None, *, destination=BUS_NAME, path=OBJECT_PATH, interface=INTERFACE, serial=1,
            answer=False, descriptors=None):
    """The bytes of a method call. `arguments` is a GLib.Variant tuple."""
    call = Gio.DBusMessage.new_method_call(destination, path, interface, method)
    return blob(call, arguments, serial, answer, descriptors)


def post(name, object_="", user_info=None, options=None, **others):
    """The bytes of a post; `user_info` and `options` are dictionaries of GLib.Variants."""
    return message("Post", GLib.Variant("(ssa{sv}a{sv})", (name, object_, user_info or {}, options or {})), **others)


def add_observer(name="", object_="", options=None, **others):
    """The bytes of a registration."""
    return message("AddObserver", GLib.Variant("(ssa{sv})", (name, object_, options or {})), **others)


def signal(destination, path, interface, name, arguments):
    """The bytes of a signal to one connection."""
    sent = Gio.DBusMessage.new_signal(path, interface, name)
    sent.set_destination(destination)
    return blob(sent, arguments, 1, False)


def answer(destination, serial, arguments=None):
    """The bytes of an answer to the call with that number, whoever made it."""
    returned = Gio.DBusMessage()
    returned.set_message_type(Gio.DBusMessageType.METHOD_RETURN)
    returned.set_destination(destination)
    returned.set_reply_serial(serial)
    return blob(returned, arguments, 1, False)


def error(destination, serial, name, text):
    """The bytes of an error that answers the call with that number, whoever made it."""
    returned = Gio.DBusMessage()
    returned.set_message_type(Gio.DBusMessageType.ERROR)
    returned.set_destination(destination)
    returned.set_reply_serial(serial)
    returned.set_error_name(name)
    return blob(returned, GLib.Variant("(s)", (text,)), 1, False)


def blob(sent, arguments, serial, wants_answer, descriptors=None):
    sent.set_serial(serial)
    if not wants_answer:
        sent.set_flags(Gio.DBusMessageFlags.NO_REPLY_EXPECTED)
    if arguments is not None:
        sent.set_body(arguments)
    if descriptors:
        sent.set_unix_fd_list(Gio.UnixFDList.new_from_array([os.dup(each) for each in descriptors]))
    return bytes(sent.to_blob(Gio.DBusCapabilityFlags.UNIX_FD_PASSING))


class Connection:
    """A connection that said Hello. All that comes, waits in the socket until it is taken."""

    def __init__(self, address=None, receive_buffer=None):
        path = re.search("unix:path=([^,]*)", address or os.environ["DBUS_SESSION_BUS_ADDRESS"]).group(1)
        self.socket = socket.socket(socket.AF_UNIX)
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(PATIENCE)
        self._received = bytearray()
        try:
            self.socket.connect(path)
            self.socket.sendall(b"\0AUTH EXTERNAL " + str(os.getuid()).encode().hex().encode() + b"\r\n")
            self._line("OK ")
            self.socket.sendall(b"NEGOTIATE_UNIX_FD\r\n")
            self._line("AGREE_UNIX_FD")
            hello = message("Hello", destination=DBUS, path=DBUS_PATH, interface=DBUS, answer=True)
            self.socket.sendall(b"BEGIN\r\n" + hello)
            self.name = self.answer_to(1).get_body().unpack()[0]
        except OSError as problem:
            raise Closed(str(problem)) from problem

    def _line(self, start):
        line = bytearray()
        while not line.endswith(b"\r\n"):
            byte = self.socket.recv(1)
            if not byte:
                raise Closed("the bus hung up")
            line += byte
        if not line.startswith(start.encode()):
            raise Closed(f"the bus said {bytes(line)}")

    # Sending

    def send(self, contents, seconds=PATIENCE, descriptors=()):
        """Sends all of these bytes. It takes as long as the bus takes to read them, but no longer than that."""
        deadline = time.monotonic() + seconds
        rest = memoryview(contents)
        try:
            if descriptors:
                rest = rest[socket.send_fds(self.socket, [rest], descriptors) :]
            while rest:
                remaining = deadline - time.monotonic()
                if remaining <= 0 or not select.select([], [self.socket], [], remaining)[1]:
                    raise Closed(f"the bus did not read for {seconds} s")
                rest = rest[self.socket.send(rest, socket.MSG_DONTWAIT) :]
        except BlockingIOError:
            self.send(rest, max(0, deadline - time.monotonic()))
        except OSError as problem:
            raise Closed(str(problem)) from problem

    # Receiving

    def discard(self, seconds=0.0):
        """Takes all that there is, waiting for so long for something, and throws it away. Returns the bytes' number."""
        taken = len(self._received)
        self._received.clear()
        try:
            while select.select([self.socket], [], [], seconds)[0]:
                more = len(self.socket.recv(1 << 20))
                if more == 0:
                    raise Closed("the bus hung up")
                taken += more
                seconds = 0
        except OSError as problem:
            raise Closed(str(problem)) from problem
        return taken

    def next_message(self, seconds=PATIENCE):
        """The next message that comes, or None if there is none in that time."""
        deadline = time.monotonic() + seconds
        while True:
            if len(self._received) >= 16:
                size = Gio.DBusMessage.bytes_needed(bytes(self._received[:16]))
                if len(self._received) >= size:
                    whole = bytes(self._received[:size])
                    del self._received[:size]
                    return Gio.DBusMessage.new_from_blob(whole, Gio.DBusCapabilityFlags.UNIX_FD_PASSING)
            try:
                remaining = max(0, deadline - time.monotonic())
                if not select.select([self.socket], [], [], remaining)[0]:
                    return None
                more = self.socket.recv(1 << 16)
            except OSError as problem:
                raise Closed(str(problem)) from problem
            if not more:
                raise Closed("the bus hung up")
            self._received += more

    def answer_to(self, serial, seconds=PATIENCE):
        """Takes messages up to the answer to the call with that number, and returns it. Answers Pings on the way."""
        deadline = time.monotonic() + seconds
        while (received := self.next_message(max(0, deadline - time.monotonic()))) is not None:
            if received.get_reply_serial() == serial and received.get_message_type() in (
                Gio.DBusMessageType.METHOD_RETURN, Gio.DBusMessageType.ERROR
            ):
                return received
            self.answer_ping(received)
        raise Closed(f"no answer within {seconds} s")

    def answer_ping(self, received):
        """Answers the message if it is a Ping, as libraries do."""
        if received.get_interface() == PEER and received.get_member() == "Ping":
            self.send(answer(received.get_sender(), received.get_serial()))

    def call(self, contents, serial=1, seconds=PATIENCE):
        """Sends a call with that number and returns its answer, which may be an error."""
        self.send(contents, seconds)
        return self.answer_to(serial, seconds)

    def close(self):
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
