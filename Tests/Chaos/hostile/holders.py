# SPDX-FileCopyrightText: The Carillon authors
# SPDX-License-Identifier: Apache-2.0
"""Clients that have the service keep as much as it will."""

from gi.repository import GLib

from contract import NAMES
from wire import Closed, add_observer, message, post

HOLD = {"suspension-behavior": GLib.Variant("s", "hold")}


def registrations(scene):
    """Registers long names until the service refuses, with many connections, and removes some."""
    connections = scene.several(20)
    count = 0
    while scene.going():
        for index, connection in enumerate(connections):
            calls = []
            for _ in range(50):
                count += 1
                calls.append(add_observer(f"org.example.Long{count}." + "n" * 950, "o" * 4000, HOLD))
            calls.append(message("RemoveObservers", GLib.Variant("(ss)", (f"org.example.Long{count}", ""))))
            if not scene.send(connection, b"".join(calls), 5):
                connections[index] = scene.connect()
            if not scene.going():
                return
        scene.rest()


def long_lists(scene):
    """Registers thousands of times for the same, has itself listed, and gets notifications with long lists."""
    connection = scene.connect()
    for _ in range(scene.much(12_000) // 100):
        if not scene.going() or not scene.send(connection, add_observer("org.example.Lists", "", HOLD) * 100, 10):
            return
    if scene.random.random() < 0.7:
        scene.send(connection, message("SetSuspended", GLib.Variant("(b)", (True,))))
    own = GLib.Variant("(s)", (connection.name,))
    poster = scene.connect()
    while scene.going():
        if not scene.post_answered(poster, post("org.example.Lists") * 5, post("org.example.Lists", answer=True)):
            poster = scene.connect()
        if scene.random.random() < 0.2:
            scene.send(connection, message("ListObservers", own, answer=True))
        if scene.random.random() < 0.1:
            connection.discard()
        scene.rest(0.02, 0.2)


def hogs(scene):
    """Suspended clients that hold all that is posted, large things among it, and never resume."""
    connections = scene.several(30)
    for connection in connections:
        for name in ["org.example.Hog", *NAMES]:
            scene.send(connection, add_observer(name, "", HOLD))
        scene.send(connection, message("SetSuspended", GLib.Variant("(b)", (True,))))
    poster = scene.connect()
    large = post("org.example.Hog", "", {"pad": GLib.Variant("s", "x" * 200_000)})
    small = post("org.example.Hog", "", {"pad": GLib.Variant("s", "x" * 100)})
    while scene.going():
        if not scene.post_answered(poster, large + small * 10, post("org.example.Hog", answer=True)):
            poster = scene.connect()
        for connection in scene.random.sample(connections, min(3, len(connections))):
            try:
                connection.discard()
            except Closed:
                connections.remove(connection)
        scene.rest(0.01, 0.05)
