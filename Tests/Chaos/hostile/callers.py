# SPDX-FileCopyrightText: The Carillon authors
# SPDX-License-Identifier: Apache-2.0
"""Callers that are a burden by what they ask, or by how they take the answer."""

import os
import struct

from gi.repository import GLib

from contract import INTERFACE, INTROSPECTABLE, PROPERTIES
from wire import Closed, add_observer, asked, message, post


def deaf(scene):
    """Asks for much, again and again, and never reads an answer."""
    while scene.going():
        connection = scene.connect(receive_buffer=4096)
        for index in range(scene.much(300)):
            if not scene.send(connection, add_observer("org.example.Deaf", "x" * 1000, answer=True, serial=index + 1)):
                break
        own = GLib.Variant("(s)", (connection.name,))
        whole = GLib.Variant("(s)", (INTERFACE,))
        calls = [
            message("ListObservers", own, answer=True),
            message("ListClients", answer=True),
            message("ListPosters", GLib.Variant("(u)", (1000,)), answer=True),
            message("Introspect", interface=INTROSPECTABLE, answer=True),
            message("GetAll", whole, interface=PROPERTIES, answer=True),
            message("SetSuspended", GLib.Variant("(b)", (True,)), answer=True),
            message("SetSuspended", GLib.Variant("(b)", (False,)), answer=True),
        ]
        for _ in range(scene.much(4000)):
            if not scene.going() or not scene.send(connection, asked([scene.random.choice(calls)])):
                break
        scene.rest(0.5, 1)


def errors(scene):
    """Provokes errors about something long, and reads them sometimes."""
    long = "n" * 400_000
    variant = GLib.Variant("s", long)
    calls = [
        post(long, answer=True),
        post("x", long, answer=True),
        post("x", "", {long: GLib.Variant("o", "/")}, answer=True),
        post("x", "", {"key": GLib.Variant("(s)", (long,))}, answer=True),
        post("x", "", {}, {long: variant}, answer=True),
        post("x", "", {}, {"posting-style": variant}, answer=True),
        add_observer(long, long, answer=True),
        add_observer("x", "", {"suspension-behavior": variant, long: variant}, answer=True),
        message("ListObservers", GLib.Variant("(s)", (long,)), answer=True),
        message("Get", GLib.Variant("(ss)", (INTERFACE, long)), interface=PROPERTIES, answer=True),
        message("Get", GLib.Variant("(ss)", (long, long)), interface=PROPERTIES, answer=True),
        message("N" * 255, GLib.Variant("(s)", (long,)), answer=True),
        message("RemoveObserver", GLib.Variant("(t)", (2**64 - 1,)), answer=True),
        message("Post", GLib.Variant("(s)", (long,)), answer=True),
    ]
    connections = scene.several(4)
    while scene.going():
        for index, connection in enumerate(connections):
            if not scene.send(connection, asked([scene.random.choice(calls)])):
                connections[index] = scene.connect()
            elif scene.random.random() < 0.3:
                connection.discard()
        scene.rest(0, 0.02)


def descriptors(scene):
    """Attaches descriptors to everything: pipes, directories, sixteen at a time."""
    reading, writing = os.pipe()
    attached = [reading, writing] * 8
    calls = [
        post("org.example.Descriptors", descriptors=attached, answer=True),
        post("org.example.Descriptors", descriptors=attached),
        post("org.example.Descriptors", "", {"h": GLib.Variant("h", 3)}, descriptors=attached, answer=True),
        post("org.example.Descriptors", "", {}, {"posting-style": GLib.Variant("s", "asap")}, descriptors=attached),
        message("ListClients", descriptors=attached, answer=True),
        message("Nonsense", descriptors=attached, answer=True),
        message("Introspect", interface=INTROSPECTABLE, descriptors=attached, answer=True),
    ]
    connection = scene.connect()
    while scene.going():
        for _ in range(100):
            if not scene.send(connection, asked([scene.random.choice(calls)]), descriptors=attached):
                connection = scene.connect()
        if scene.random.random() < 0.5:
            try:
                connection.discard()
            except Closed:
                connection = scene.connect()
        scene.rest()


def malformed(scene):
    """Sends arguments of every wrong kind, and messages that are none."""
    texts = [
        "()", "('',)", "('', '')", "(1, 2)", "('x', '', @a{ss} {}, @a{sv} {})", "(@av [],)", "(uint64 0,)", "(true,)",
        "('x', '', @a{sv} {}, {'posting-style': <1>})", "('x', '', {'a': <objectpath '/'>}, @a{sv} {})",
        "('\\u0001', '\\uffff', @a{sv} {}, @a{sv} {})", "('', '', @a{sv} {}, @a{sv} {})", "(-1,)",
    ]
    arguments = [GLib.Variant.parse(None, text, None, None) for text in texts]
    deep = GLib.Variant("v", GLib.Variant("s", "deep"))
    for _ in range(30):
        deep = GLib.Variant("v", deep)
    arguments.append(GLib.Variant("(ssa{sv}a{sv})", ("x", "", {"deep": deep}, {})))
    methods = [
        "AddObserver", "RemoveObserver", "RemoveObservers", "Post", "SetSuspended", "FollowActivity", "ListClients",
        "ListPosters", "ListObservers", "ListObserversFrom", "ReloadConfiguration", "Nonsense",
    ]
    connection = scene.connect()
    while scene.going():
        for _ in range(50):
            contents = asked([message(
                scene.random.choice(methods), scene.random.choice(arguments), answer=scene.random.random() < 0.5
            )])
            # Mostly right as a message: with one that is not, the bus ends the connection.
            if scene.random.random() < 0.02:
                contents = damaged(contents, scene.random)
            if not scene.send(connection, contents):
                connection = scene.connect()
        try:
            connection.discard(0.05)
        except Closed:
            connection = scene.connect()


def damaged(contents, random):
    """A message with some bytes changed, or with another length of its body."""
    changed = bytearray(contents)
    if random.random() < 0.3:
        changed[4:8] = struct.pack("<I", random.choice([0, 1, 2**27, 2**32 - 1]))
    for _ in range(random.randint(1, 4)):
        changed[random.randrange(len(changed))] = random.randrange(256)
    return bytes(changed)
