#!/usr/bin/env python3
# SPDX-FileCopyrightText: The Carillon authors
# SPDX-License-Identifier: Apache-2.0
"""Posts and observes on a channel: a socket to the service beside the connection to the bus (docs/channel.md).

    channel.py NAME COUNT     observes NAME, posts it COUNT times, and prints what comes
"""

import socket
import struct
import sys

import dbus

POST, OUTCOME, NOTIFICATION, DROPPED, SUSPENSION_CHANGED = range(1, 6)
SERVICE = "org.carillon.NotificationCenter1"

name, count = sys.argv[1], int(sys.argv[2])
bus = dbus.SessionBus()
center = dbus.Interface(bus.get_object(SERVICE, "/org/carillon/NotificationCenter1"), SERVICE)
center.AddObserver(name, "", {}, signature="ssa{sv}")
channel = socket.socket(fileno=center.OpenChannel({}, signature="a{sv}").take())
channel.setblocking(True)


def aligned(body, to):
    return body + bytes(-len(body) % to)


def with_text(body, text):
    text = text.encode()
    return aligned(body, 4) + struct.pack("=I", len(text)) + text + b"\0"


def with_dictionary(body, entries):
    place = len(aligned(body, 4))
    body = aligned(aligned(body, 4) + bytes(4), 8)
    start = len(body)
    for key, text in entries.items():
        body = with_text(with_text(aligned(body, 8), key) + b"\1s\0", text)
    return body[:place] + struct.pack("=I", len(body) - start) + body[place + 4 :]


def post(number, name, user_info):
    body = with_dictionary(with_dictionary(with_text(with_text(b"", name), ""), user_info), {})
    channel.sendall(struct.pack("=IIQ", len(body), POST, number) + body)


def receive(size):
    data = b""
    while len(data) < size:
        more = channel.recv(size - len(data))
        if not more:
            sys.exit("the channel has ended: what comes now comes on the bus")
        data += more
    return data


def text(body, place):
    place += -place % 4
    (length,) = struct.unpack_from("=I", body, place)
    return body[place + 4 : place + 4 + length].decode(), place + 5 + length


for index in range(1, count + 1):
    post(index, name, {"index": str(index)})
    left = 2  # its notification, and behind it its outcome
    while left > 0:
        length, kind, number = struct.unpack("=IIQ", receive(16))
        body = receive(length)
        if kind == NOTIFICATION:
            print("notification", number, text(body, 0)[0])
        elif kind == OUTCOME:
            print("outcome", number, struct.unpack_from("=I", body)[0], text(body, 4)[0])
        else:
            print("frame of the kind", kind)
            continue
        left -= 1
