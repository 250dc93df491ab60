# SPDX-FileCopyrightText: The Carillon authors
# SPDX-License-Identifier: Apache-2.0
"""A connection to the bus with nothing between it and the socket: it reads when it is told to, and answers nothing."""

import contextlib
import itertools
import os
import re
import select
import socket
import struct
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


HELLO = message("Hello", destination=DBUS, path=DBUS_PATH, interface=DBUS, answer=True)


def greeting():
    """What a connection says first, all at once: the bus answers it in its order."""
    user = str(os.getuid()).encode().hex().encode()
    return b"\0AUTH EXTERNAL " + user + b"\r\nNEGOTIATE_UNIX_FD\r\nBEGIN\r\n" + HELLO


#: The types of messages, as the second byte has them.
CALL, RETURN, ERROR, SIGNAL = range(1, 5)

#: The codes of the fields of a header.
INTERFACE_FIELD, MEMBER, ERROR_NAME, REPLY_SERIAL, SENDER = 2, 3, 4, 5, 7


def asking(contents, serial):
    """The same call with that number, and such that it wants an answer."""
    return contents[:2] + bytes([contents[2] & ~1]) + contents[3:8] + struct.pack("=I", serial) + contents[12:]


_numbers = itertools.count(1000)


def asked(calls, times=1):
    """These calls, so many times, each with a number of its own.

    dbus-daemon refuses a call with the number of another that waits for its answer."""
    return b"".join([
        call[:8] + struct.pack("=I", next(_numbers) & (2**32 - 1)) + call[12:] for _ in range(times) for call in calls
    ])


def serial_of(contents):
    """The number of a message, from its bytes."""
    return struct.unpack_from("=I", contents, 8)[0]


def size_of(start):
    """The size of a message, from its first sixteen bytes."""
    body, _, fields = struct.unpack_from("=III", start, 4)
    return 16 + -(-fields // 8) * 8 + body


def fields_of(contents):
    """The fields of a message's header by their codes: numbers, and texts as bytes."""
    fields = {}
    place, end = 16, 16 + struct.unpack_from("=I", contents, 12)[0]
    while place < end:
        code, kind = contents[place], contents[place + 2 : place + 3]
        if kind == b"u":
            fields[code] = struct.unpack_from("=I", contents, place + 4)[0]
            place += 8
        elif kind == b"g":
            fields[code] = contents[place + 5 : place + 5 + contents[place + 4]]
            place += 6 + contents[place + 4]
        else:
            size = struct.unpack_from("=I", contents, place + 4)[0]
            fields[code] = contents[place + 8 : place + 8 + size]
            place += 9 + size
        place = -(-place // 8) * 8
    return fields


def parsed(contents):
    """A message from its bytes."""
    return Gio.DBusMessage.new_from_blob(contents, Gio.DBusCapabilityFlags.UNIX_FD_PASSING)


def values_of(contents):
    """The values in the body of a message."""
    body = parsed(contents).get_body()
    return body.unpack() if body is not None else ()


def wait_for(connected, event, seconds):
    """Whether that event came within that time; descriptors may have any number."""
    poll = select.poll()
    poll.register(connected, event)
    return bool(poll.poll(max(0, seconds) * 1000))


class Connection:
    """A connection that said Hello. All that comes, waits in the socket until it is taken."""

    def __init__(self, address=None, receive_buffer=None):
        path = re.search("unix:path=([^,]*)", address or os.environ["DBUS_SESSION_BUS_ADDRESS"]).group(1)
        self._received = bytearray()
        #: Descriptors that came with messages, the oldest first; they are the caller's to close.
        self.descriptors = []
        try:
            self.socket = socket.socket(socket.AF_UNIX)
            if receive_buffer:
                self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
            self.socket.connect(path)
            self.socket.settimeout(PATIENCE)
            self.socket.sendall(greeting())
            self._line(b"OK ")
            self._line(b"AGREE_UNIX_FD")
            self.name = self.answer_to(1).get_body().unpack()[0]
        except OSError as problem:
            raise Closed(str(problem)) from problem

    def _line(self, start):
        while b"\r\n" not in self._received:
            if not self._receive(PATIENCE):
                raise Closed("the bus said nothing")
        line, _, rest = bytes(self._received).partition(b"\r\n")
        if not line.startswith(start):
            raise Closed(f"the bus said {line}")
        self._received = bytearray(rest)

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
                if remaining <= 0 or not wait_for(self.socket, select.POLLOUT, remaining):
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
            while wait_for(self.socket, select.POLLIN, seconds):
                more = len(self.socket.recv(1 << 20))
                if more == 0:
                    raise Closed("the bus hung up")
                taken += more
                seconds = 0
        except OSError as problem:
            raise Closed(str(problem)) from problem
        return taken

    def take(self, most):
        """Takes so many bytes at most, if there are any, and throws them away. Returns how many there were."""
        try:
            taken = len(self.socket.recv(most, socket.MSG_DONTWAIT))
        except BlockingIOError:
            return 0
        except OSError as problem:
            raise Closed(str(problem)) from problem
        if taken == 0:
            raise Closed("the bus hung up")
        return taken

    def _receive(self, seconds):
        """Reads some of what there is, waiting for so long for it. Whether there was something."""
        try:
            if not wait_for(self.socket, select.POLLIN, seconds):
                return False
            more, descriptors, _, _ = socket.recv_fds(self.socket, 1 << 18, 16)
        except OSError as problem:
            raise Closed(str(problem)) from problem
        if not more:
            raise Closed("the bus hung up")
        self._received += more
        self.descriptors += descriptors
        return True

    def next_raw(self, seconds=PATIENCE):
        """The bytes of the next message that comes, or None if there is none in that time."""
        deadline = time.monotonic() + seconds
        while True:
            if len(self._received) >= 16:
                size = size_of(self._received)
                if len(self._received) >= size:
                    whole = bytes(self._received[:size])
                    del self._received[:size]
                    return whole
            if not self._receive(deadline - time.monotonic()):
                return None

    def serve(self):
        """Takes what there is and answers the Pings among it. Returns how many messages there were."""
        count = 0
        while (received := self.next_raw(0)) is not None:
            self.answer_ping(received)
            count += 1
        return count

    def raw_answer(self, serial, seconds=PATIENCE):
        """Takes messages up to the answer to the call with that number; its bytes. Answers Pings on the way."""
        deadline = time.monotonic() + seconds
        while (received := self.next_raw(max(0, deadline - time.monotonic()))) is not None:
            if received[1] in (RETURN, ERROR):
                if fields_of(received).get(REPLY_SERIAL) == serial:
                    return received
            else:
                self.answer_ping(received)
        raise Closed(f"no answer within {seconds} s")

    def answer_to(self, serial, seconds=PATIENCE):
        """The same as a message that can be read."""
        return parsed(self.raw_answer(serial, seconds))

    def take_answers(self, count, seconds=PATIENCE):
        """Takes messages until so many answers have come. Answers Pings on the way."""
        deadline = time.monotonic() + seconds
        while count > 0:
            received = self.next_raw(max(0, deadline - time.monotonic()))
            if received is None:
                raise Closed(f"{count} answers did not come within {seconds} s")
            count -= received[1] in (RETURN, ERROR)
            self.answer_ping(received)

    def raw_answer_to(self, contents, seconds=PATIENCE):
        """Sends a call and returns the bytes of its answer."""
        self.send(contents, seconds)
        return self.raw_answer(serial_of(contents), seconds)

    def answer_ping(self, received):
        """Answers the message if it is a Ping, as libraries do. Whether it was."""
        if received[1] != CALL:
            return False
        fields = fields_of(received)
        if fields.get(INTERFACE_FIELD) != PEER.encode() or fields.get(MEMBER) != b"Ping":
            return False
        self.send(answer(fields[SENDER].decode(), serial_of(received)))
        return True

    def call(self, contents, serial=1, seconds=PATIENCE):
        """Sends a call with that number and returns its answer, which may be an error."""
        self.send(contents, seconds)
        return self.answer_to(serial, seconds)

    def close(self):
        """Closes it, and what came with messages."""
        self.socket.close()
        for descriptor in self.descriptors:
            with contextlib.suppress(OSError):
                os.close(descriptor)
        self.descriptors.clear()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
