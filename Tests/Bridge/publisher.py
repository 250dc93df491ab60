#!/usr/bin/python3
# SPDX-FileCopyrightText: The Carillon authors
# SPDX-License-Identifier: Apache-2.0
"""publisher.py HOST PORT [CA CERTIFICATE KEY]: publishes retained messages, one for each line of standard input, of a topic, a
tab and a payload, by one MQTT 5 connection, as a bridge marks its own; ends with 1 where the broker does not confirm all.
mosquitto_pub has one topic for all that it publishes."""

import socket
import ssl
import struct
import sys

#: Messages that are on their way unconfirmed.
WINDOW = 200
SUCCESS, NO_SUBSCRIBERS = 0x00, 0x10
USER_PROPERTY = b"\x26"


def number(value):
    """A variable byte integer."""
    encoded = b""
    while True:
        value, low = divmod(value, 128)
        encoded += bytes([low | (0x80 if value else 0)])
        if not value:
            return encoded


def text(value):
    return struct.pack(">H", len(value)) + value


def packet(kind, contents):
    return bytes([kind]) + number(len(contents)) + contents


def publication(line, identifier):
    topic, _, payload = line.rstrip(b"\n").partition(b"\t")
    mark = USER_PROPERTY + text(b"carillon") + text(b"1")
    return packet(0x33, text(topic) + struct.pack(">H", identifier) + number(len(mark)) + mark + payload)


class Publisher:
    def __init__(self, host, port, files):
        plain = socket.create_connection((host, int(port)), timeout=30)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if files:
            context = ssl.create_default_context(cafile=files[0])
            context.check_hostname = False
            context.load_cert_chain(*files[1:])
            plain = context.wrap_socket(plain)
        self.connection = plain
        self.unread = b""
        self.connection.sendall(packet(0x10, text(b"MQTT") + b"\x05\x02" + struct.pack(">H", 600) + b"\0" + text(b"")))
        self.expect(0x20, lambda contents: contents[1] == SUCCESS)

    def read(self, count):
        while len(self.unread) < count:
            more = self.connection.recv(65536)
            if not more:
                sys.exit("the broker closed the connection")
            self.unread += more
        taken, self.unread = self.unread[:count], self.unread[count:]
        return taken

    def expect(self, kind, is_good):
        first = self.read(1)[0]
        length = shift = 0
        while True:
            byte = self.read(1)[0]
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        contents = self.read(length)
        if first != kind or not is_good(contents):
            sys.exit(f"the broker says {first:#x} {contents.hex()}")

    def confirm(self, count):
        for _ in range(count):
            self.expect(0x40, lambda contents: len(contents) < 3 or contents[2] in (SUCCESS, NO_SUBSCRIBERS))

    def publish(self, lines):
        for start in range(0, len(lines), WINDOW):
            part = lines[start : start + WINDOW]
            self.connection.sendall(b"".join(publication(line, index + 1) for index, line in enumerate(part)))
            self.confirm(len(part))
        self.connection.sendall(packet(0xE0, b""))


if __name__ == "__main__":
    Publisher(*sys.argv[1:3], sys.argv[3:]).publish(sys.stdin.buffer.readlines())
