# SPDX-FileCopyrightText: The Carillon authors
# SPDX-License-Identifier: Apache-2.0
"""Clients that come and go."""

from gi.repository import GLib

from contract import NAMES
from wire import Closed, add_observer, asked, message, post


def visitors(scene):
    """Connects, does something, and leaves: with registrations, with posts under way, in the middle of a message."""
    asap = {"posting-style": GLib.Variant("s", "asap")}
    doings = [
        lambda name: post(name) * 3,
        lambda name: post(name, "", {}, asap) * 3,
        lambda name: add_observer(name) * 10 + post(name),
        lambda name: add_observer(name) + message("SetSuspended", GLib.Variant("(b)", (True,))) + post(name) * 5,
        lambda name: asked([message("ListClients", answer=True)], 5),
        lambda name: post(name, "", {"pad": GLib.Variant("s", "x" * 2000)})[:-700],
        lambda name: b"",
    ]
    while scene.going():
        connections = []
        for _ in range(scene.random.randint(1, 20)):
            try:
                connection = scene.connect()
            except Closed:
                continue
            connections.append(connection)
            scene.send(connection, scene.random.choice(doings)(scene.random.choice(NAMES)))
            if scene.random.random() < 0.5:
                connection.close()
        for connection in connections:
            connection.close()
        scene.rest(0, 0.03)
