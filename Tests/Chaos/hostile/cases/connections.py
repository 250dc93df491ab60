# SPDX-FileCopyrightText: The Carillon authors
# SPDX-License-Identifier: Apache-2.0
"""Connections, processes, names and match rules without end."""

import os
import re
import socket

from gi.repository import GLib

from contract import DBUS, DBUS_PATH
from hostile.cases import states
from hostile.templates import HOLD, NUMBER, style, suspended
from wire import Closed, add_observer, greeting, message, post


def at_bus(method, arguments=None):
    """A call of the bus itself that wants no answer."""
    return message(method, arguments, destination=DBUS, path=DBUS_PATH, interface=DBUS)


def bus_socket():
    """A socket to the bus on which nothing was said."""
    connected = socket.socket(socket.AF_UNIX)
    connected.connect(re.search("unix:path=([^,]*)", os.environ["DBUS_SESSION_BUS_ADDRESS"]).group(1))
    return connected


def connect_storm(scene):
    """Connects, observes, posts and leaves without reading a byte, as fast as the bus allows."""
    contents = greeting() + add_observer(states.NAME) + post(states.NAME) * 3 + post(states.NAME, "", {}, style("asap"))
    before = scene.statistics()["posted"]

    def come():
        with bus_socket() as visitor:
            visitor.sendall(contents)

    for _ in range(100):
        come()
    scene.reach("posted", before + 100)
    scene.act()
    with scene.processes(lambda: loop(scene, come)):
        loop(scene, come)


def loop(scene, act):
    """Does it again and again."""
    while scene.going():
        try:
            act()
        except (OSError, Closed):
            scene.rest()


def connect_storm_read(scene):
    """Connects, registers, is suspended, posts, waits for the answer, and leaves."""
    contents = add_observer(states.NAME) * 20 + message("SetSuspended", GLib.Variant("(b)", (True,)))

    def come():
        with scene.connect() as visitor:
            visitor.send(contents)
            scene.ask(visitor, post(states.NAME, answer=True))

    scene.repeat(come)


def leave_again_and_again(scene, contents, count, key, each):
    """So many connections say something and leave the bus at the same time, and come again, whenever `key` has become
    `each` for each of them."""

    def come():
        connections = [scene.connect() for _ in range(count)]
        for connection in connections:
            connection.send(contents)
        states.stay(*connections)

    pid = scene.fork(come)
    scene.reach(key, count * each)
    scene.act()
    while scene.going():
        scene.kill([pid])
        pid = scene.fork(come)
        states.pause_until(scene, lambda: scene.statistics()[key] >= count * each)
    scene.kill([pid])


def leave_together(scene):
    """2,000 clients that leave the bus at the same time, and come again."""
    contents = add_observer(states.NAME) * 4 + post(states.NAME, "", {}, style("at-exit"))
    leave_again_and_again(scene, contents, scene.much(2000), "clients", 1)


def leave_posts(scene):
    """1,500 clients with 20 posts at exit each that leave at the same time, and come again; 1,500 hold what they post."""
    states.clients(scene, 1500, options=HOLD, then=suspended(True, answer=False))
    contents = post(states.NAME, "", {}, style("at-exit")) * 20
    leave_again_and_again(scene, contents, scene.much(1500), "queued-posts", 20)


def process_storm(scene):
    """Processes that connect, post and end."""

    def come():
        with scene.connect() as visitor:
            scene.ask(visitor, add_observer(states.NAME, answer=True))
            visitor.send(post(states.NAME))

    def act():
        for pid in [scene.fork(come) for _ in range(8)]:
            os.waitpid(pid, 0)

    before = scene.statistics()["posted"]
    act()
    scene.reach("posted", before + 8)
    scene.repeat(act)


def half_open(scene):
    """500 sockets on which no more is said than the beginning, and new ones all the time."""
    opened = []

    def act():
        for text in (b"", b"\0", b"\0AUTH EXTERNAL ", b"\0AUTH ANONYMOUS\r\n", greeting()[:60]):
            connected = bus_socket()
            connected.sendall(text)
            opened.append(connected)
        while len(opened) > scene.much(500):
            opened.pop(0).close()

    for _ in range(scene.much(100)):
        act()
    scene.reached("sockets", len(opened), scene.much(100) * 5 - 5)
    scene.repeat(act)


def bus_names(scene):
    """Owns and releases thousands of bus names, as a client of the service."""
    connection = states.observers(scene, 1, states.NAME)
    request = at_bus("RequestName", GLib.Variant("(su)", (f"org.example.Name.N{NUMBER}", 0)))
    release = at_bus("ReleaseName", GLib.Variant("(s)", (f"org.example.Name.N{NUMBER}",)))
    count = scene.much(5000)
    scene.fill(connection, request, count)
    names = message("ListNames", destination=DBUS, path=DBUS_PATH, interface=DBUS, answer=True)
    scene.reached("names", len(scene.value(connection, names)), count)
    scene.repeat(lambda: (scene.fill(connection, release, count), scene.fill(connection, request, count)))


def match_rules(scene):
    """40,000 match rules of its own at the bus, for what the service sends and says, and more of them."""
    connection = states.observers(scene, 1, states.NAME)
    rule = f"type='signal',interface='org.carillon.NotificationCenter1',arg0='{NUMBER}'"
    add = at_bus("AddMatch", GLib.Variant("(s)", (rule,)))
    count = scene.much(40_000)
    scene.fill(connection, add, count)
    scene.reached("rules", count, count)
    poster = scene.connect()
    remove = at_bus("RemoveMatch", GLib.Variant("(s)", (rule,)))

    def act():
        scene.fill(poster, post(states.NAME), 500)
        scene.fill(connection, remove, 500)
        scene.fill(connection, add, 500)
        connection.serve()

    scene.repeat(act)


CASES = {
    "connect-storm": connect_storm,
    "connect-storm-read": connect_storm_read,
    "leave-together": leave_together,
    "leave-posts": leave_posts,
    "process-storm": process_storm,
    "half-open": half_open,
    "bus-names": bus_names,
    "match-rules": match_rules,
}
