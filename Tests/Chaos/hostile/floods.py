# SPDX-FileCopyrightText: The Carillon authors
# SPDX-License-Identifier: Apache-2.0
"""Posters that wait for nothing."""

from gi.repository import GLib

from contract import NAMES, OBJECTS
from wire import post


def flood(scene):
    """Posts what well-behaved clients observe, and what nobody does, as fast as the bus takes it."""
    pad = {"pad": GLib.Variant("s", "x" * 3000)}
    posts = [post(name, object_, pad) for name in [*NAMES, "org.example.Flood"] for object_ in OBJECTS]
    posts += [post("org.example.Flood", "", {"pad": GLib.Variant("s", "x" * 500_000)})]
    rush(scene, posts, scene.much(3000))


def queued_flood(scene):
    """The same with posts that wait in the service's queues, some of which coalesce."""
    pad = {"pad": GLib.Variant("s", "x" * 3000)}
    posts = []
    for style in ("asap", "when-idle"):
        for coalesce in ([], ["name"], ["name", "object"]):
            options = {"posting-style": GLib.Variant("s", style), "coalesce-on": GLib.Variant("as", coalesce)}
            posts += [post(name, object_, pad, options) for name in NAMES[:2] for object_ in OBJECTS]
    rush(scene, posts, scene.much(3000))


def rush(scene, posts, count):
    """Sends so many of these at once, and again after a moment."""
    connections = scene.several(3)
    while scene.going():
        for index, connection in enumerate(connections):
            for _ in range(0, count, 20):
                if not scene.going():
                    break
                if not scene.send(connection, b"".join(scene.random.choices(posts, k=20)), 10):
                    connections[index] = scene.connect()
                    break
        scene.rest(0.2, 1)
