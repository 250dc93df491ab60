# SPDX-FileCopyrightText: The Carillon authors
# SPDX-License-Identifier: Apache-2.0
"""A channel of a well-behaved client (docs/channel.md): frames in and out, and its end."""

import os
import socket
import struct

from gi.repository import Gio, GLib

from contract import BUS_NAME, INTERFACE, OBJECT_PATH

POST, OUTCOME, NOTIFICATION, DROPPED, SUSPENSION_CHANGED = range(1, 6)

#: What the bodies of frames hold, by kind.
BODIES = {
    OUTCOME: GLib.Variant("(uss)", (0, "", "")),
    NOTIFICATION: GLib.Variant("(ssa{sv}atstta{sv})", ("", "", {}, [], "", 0, 0, {})),
    DROPPED: GLib.Variant("(tats)", (0, [], "")),
    SUSPENSION_CHANGED: GLib.Variant("(bs)", (False, "")),
}

HEADER = struct.Struct("=IIQ")


def message(values):
    """A message with this body, as bytes, and how many of them are the body."""
    made = Gio.DBusMessage.new_signal(OBJECT_PATH, INTERFACE, "Frame")
    made.set_serial(1)
    made.set_body(values)
    contents = bytes(made.to_blob(Gio.DBusCapabilityFlags.NONE))
    return contents, struct.unpack_from("=I", contents, 4)[0]


def body(values):
    """The values as a frame has them: the body of a message."""
    contents, size = message(values)
    return contents[len(contents) - size :]


def heads():
    """What stands before the bodies of each kind in a message of them."""
    made = {}
    for kind, values in BODIES.items():
        contents, size = message(values)
        made[kind] = contents[: len(contents) - size]
    return made


HEADS = heads()


def values(kind, contents):
    """The body of a frame as a GLib.Variant tuple."""
    head = bytearray(HEADS[kind])
    struct.pack_into("=I", head, 4, len(contents))
    return Gio.DBusMessage.new_from_blob(bytes(head) + contents, Gio.DBusCapabilityFlags.NONE).get_body()


class Channel:
    """The program's end of a channel that is open.

    `arrived` is called with the kind, the number and the values of each frame, `ended` once, behind the last of them.
    """

    def __init__(self, descriptor, arrived, ended):
        self.socket = socket.socket(fileno=descriptor)
        self.socket.setblocking(False)
        self._arrived = arrived
        self._ended = ended
        self._incoming = bytearray()
        self._outgoing = bytearray()
        self._writing = None
        self._reading = GLib.io_add_watch(
            self.socket.fileno(), GLib.PRIORITY_DEFAULT, GLib.IO_IN | GLib.IO_HUP, self._readable
        )

    def post(self, number, arguments):
        """Posts; `arguments` is a tuple as `Post` takes it."""
        contents = body(arguments)
        self._outgoing += HEADER.pack(len(contents), POST, number) + contents
        self._write()

    def _write(self):
        try:
            while self._outgoing:
                del self._outgoing[: self.socket.send(self._outgoing[: 1 << 16])]
        except BlockingIOError:
            if self._writing is None:
                self._writing = GLib.io_add_watch(
                    self.socket.fileno(), GLib.PRIORITY_DEFAULT, GLib.IO_OUT, self._writable
                )
        except OSError:
            self._outgoing.clear()  # the end is there to be read

    def _writable(self, *_):
        self._writing = None
        self._write()
        return GLib.SOURCE_REMOVE

    def _readable(self, *_):
        self.read()
        return GLib.SOURCE_CONTINUE  # removed at the end

    def read(self):
        """Reads all that there is. Returns whether that was the end."""
        over = False
        while not over:
            try:
                more = self.socket.recv(1 << 18)
            except BlockingIOError:
                break
            except OSError:
                more = b""
            self._incoming += more
            over = not more
            self._take()
        if over:
            self._end()
        return over

    def _end(self):
        if self._writing is not None:
            GLib.source_remove(self._writing)
        if self._reading is not None:
            GLib.source_remove(self._reading)
        self._writing = self._reading = None
        self.socket.close()
        self._ended()

    def _take(self):
        place = 0
        while len(self._incoming) - place >= HEADER.size:
            size, kind, number = HEADER.unpack_from(self._incoming, place)
            if len(self._incoming) - place - HEADER.size < size:
                break
            start = place + HEADER.size
            contents = bytes(self._incoming[start : start + size])
            place = start + size
            self._arrived(kind, number, values(kind, contents))
        del self._incoming[:place]


class ChannelKeeper:
    """Has a client have a channel whenever there can be one.

    `arrived` as for `Channel`; `changed` is called when one begins, and when it has ended, behind its last frame.
    `may_open` is asked before each attempt. While one is `opening`, what is called on the bus has no order with what
    goes on the channel then.
    """

    def __init__(self, client, arrived, changed=lambda: None, may_open=lambda: True):
        self._client = client
        self._arrived = arrived
        self._changed = changed
        self._may_open = may_open
        self.channel = None
        self.opening = False
        self._open()

    def _open(self):
        if not self._may_open():
            GLib.timeout_add(10, self._again)
            return
        self.opening = True

        def answered(connection, result):
            self.opening = False
            try:
                reply, descriptors = connection.call_with_unix_fd_list_finish(result)
                descriptor = os.dup(descriptors.peek_fds()[reply.unpack()[0]])
            except (GLib.Error, AttributeError, IndexError, TypeError):
                # There is no service now, or the answer is forged, which GDBus does not see.
                GLib.timeout_add(100, self._again)
                return
            self.channel = Channel(descriptor, self._arrived, self._ended)
            self._changed()

        self._client.connection.call_with_unix_fd_list(
            BUS_NAME, OBJECT_PATH, INTERFACE, "OpenChannel", GLib.Variant("(a{sv})", ({},)), None,
            Gio.DBusCallFlags.NONE, 120_000, None, None, answered,
        )

    def _again(self):
        self._open()
        return GLib.SOURCE_REMOVE

    def _ended(self):
        self.channel = None
        self._changed()
        GLib.timeout_add(100, self._again)
