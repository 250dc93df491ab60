# SPDX-FileCopyrightText: The Carillon authors
# SPDX-License-Identifier: Apache-2.0
"""Channels (F2): the examples in C and Python, and what docs/channel.md says of frames."""

import os
import re
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import unittest

import carillon_interop
from carillon_interop import INVALID_NAME, INVALID_OPTION, PATIENCE, Gio, GLib, Refused, fresh_name

ROOT = os.path.join(os.path.dirname(__file__), "..", "..")
POST, OUTCOME, NOTIFICATION, DROPPED, SUSPENSION_CHANGED = range(1, 6)


def run(*command):
    return subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True, timeout=PATIENCE).stdout


class Examples(carillon_interop.TestCase):
    def test_python(self):
        name = fresh_name()
        printed = run(sys.executable, "-B", os.path.join(ROOT, "Examples", "python", "channel.py"), name, "3")
        lines = [f"notification {n} {name}\noutcome {n} 1 \n" for n in range(1, 4)]
        self.assertEqual(printed, "".join(lines))

    @unittest.skipUnless(shutil.which("cc") and shutil.which("pkg-config"), "there is no C compiler")
    def test_c(self):
        name = fresh_name()
        flags = run("pkg-config", "--cflags", "--libs", "dbus-1").split()
        with tempfile.TemporaryDirectory() as directory:
            program = os.path.join(directory, "channel")
            source = os.path.join(ROOT, "Examples", "c", "channel.c")
            run("cc", "-Wall", "-Wextra", "-Werror", source, *flags, "-o", program)
            self.assertEqual(run(program, name), f"notification 1 {name}\noutcome 1 1\n")


class NoDescriptors(carillon_interop.TestCase):
    def test_answered(self):
        """F2: a caller that takes no descriptors is told so, at once, and goes on by the bus. dbus-broker closes the
        connection of a client to which it would have to carry one."""
        from jeepney import DBusAddress, new_method_call
        from jeepney.io.blocking import open_dbus_connection

        center = DBusAddress(
            carillon_interop.OBJECT_PATH, carillon_interop.BUS_NAME, carillon_interop.INTERFACE)
        connection = open_dbus_connection("SESSION", enable_fds=False)
        self.addCleanup(connection.close)

        def call(method, signature, *arguments):
            return connection.send_and_get_reply(
                new_method_call(center, method, signature, arguments), timeout=PATIENCE)

        for _ in range(3):
            try:
                answer = call("OpenChannel", "a{sv}", {})
            except ConnectionResetError:
                return
            self.assertEqual(answer.header.fields[4], "org.freedesktop.DBus.Error.NotSupported", answer.body)
        name = fresh_name()
        self.assertEqual(call("AddObserver", "ssa{sv}", name, "", {}).header.message_type.name, "method_return")
        self.assertEqual(call("Post", "ssa{sv}a{sv}", name, "", {}, {}).body, (1,))


class Channel:
    """A channel of a client's, with bodies as GLib.Variant."""

    def __init__(self, client):
        message = Gio.DBusMessage.new_method_call(
            carillon_interop.BUS_NAME, carillon_interop.OBJECT_PATH, carillon_interop.INTERFACE, "OpenChannel"
        )
        message.set_body(GLib.Variant("(a{sv})", ({},)))
        reply, _ = client.connection.send_message_with_reply_sync(
            message, Gio.DBusSendMessageFlags.NONE, PATIENCE * 1000, None
        )
        self.socket = socket.socket(fileno=reply.get_unix_fd_list().get(reply.get_body().unpack()[0]))
        self.is_blocking = os.get_blocking(self.socket.fileno())
        self.socket.settimeout(PATIENCE)

    def send(self, kind, number, body):
        self.socket.sendall(struct.pack("=IIQ", len(body), kind, number) + body)

    def receive(self):
        length, kind, number = struct.unpack("=IIQ", self._bytes(16))
        return kind, number, self._bytes(length)

    def _bytes(self, size):
        data = b""
        while len(data) < size:
            more = self.socket.recv(size - len(data))
            if not more:
                raise EOFError
            data += more
        return data


def example(text):
    """The bytes of the hexadecimal example behind these words in docs/channel.md."""
    with open(os.path.join(ROOT, "docs", "channel.md"), encoding="utf-8") as file:
        block = file.read().partition(text)[2].partition("```")[2].partition("```")[0]
    return bytes.fromhex("".join(re.findall(r"^((?:[0-9a-f]{2} ?)+)", block, re.MULTILINE)))


@unittest.skipUnless(sys.byteorder == "little", "the example is of a machine with the least byte first")
class Documentation(carillon_interop.TestCase):
    def test_example(self):
        client = carillon_interop.Client()
        client.add_observer("Saved")
        channel = Channel(client)
        self.addCleanup(channel.socket.close)
        self.assertFalse(channel.is_blocking)
        channel.socket.sendall(example("This is a post of"))
        kind, _, body = channel.receive()
        self.assertEqual(kind, NOTIFICATION)
        self.assertIn(b"report.txt", body)
        kind, number, body = channel.receive()
        self.assertEqual(struct.pack("=IIQ", len(body), kind, number) + body, example("is answered with"))

    def test_errors(self):
        client = carillon_interop.Client()
        with self.assertRaises(Refused) as caught:
            client.call("OpenChannel", GLib.Variant("(a{sv})", ({"fast": GLib.Variant("b", True)},)))
        self.assertEqual(caught.exception.name, INVALID_OPTION)
        channel = Channel(client)
        self.addCleanup(channel.socket.close)
        nameless = bytes(5) + bytes(3) + bytes(5) + bytes(3) + bytes(8) + bytes(8)
        channel.send(POST, 5, nameless)
        kind, number, body = channel.receive()
        self.assertEqual((kind, number), (OUTCOME, 5))
        self.assertIn(INVALID_NAME.encode(), body)
        channel.send(SUSPENSION_CHANGED, 0, b"")
        with self.assertRaises((EOFError, ConnectionResetError)):
            channel.receive()
        client.ping()


if __name__ == "__main__":
    carillon_interop.main()
