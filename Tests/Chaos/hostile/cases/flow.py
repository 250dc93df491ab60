# SPDX-FileCopyrightText: The Carillon authors
# SPDX-License-Identifier: Apache-2.0
"""Clients that do not read, read slowly, or do not answer."""

import os
import resource
import signal
import socket
import time

from contract import PEER
from hostile.cases import states
from hostile.templates import padding
from wire import CALL, add_observer, asked, message, post

PING = message("Ping", interface=PEER, answer=True)


def silent(scene, count):
    """So many connections that neither read nor answer Pings, with notifications waiting for all of them."""
    template = post(states.NAME, "", padding(300))

    def observe():
        connections = scene.several(count)
        for connection in connections:
            connection.send(add_observer(states.NAME))
        while connections:
            time.sleep(10)

    # A process of its own: what it leaves unread holds up its answers, too.
    before = scene.statistics()["clients"]
    scene.fork(observe)
    scene.reach("clients", before + scene.much(count))
    poster = scene.connect()
    contents = template * 19 + post(states.NAME, answer=True)
    for _ in range(12):
        poster.send(contents)
        poster.raw_answer(1)
    scene.reach("queued", scene.much(count) * 50)
    scene.repeat(lambda: (poster.send(contents), poster.raw_answer(1), scene.rest(0.05, 0.1)))


def silent_100(scene):
    """100 silent connections."""
    silent(scene, 100)


def silent_520(scene):
    """520 silent connections, of which the last eight have no place in what is reserved for small ones."""
    silent(scene, 520)


def silent_3000(scene):
    """3,000 silent connections."""
    silent(scene, 3000)


def silent_among_sockets(scene):
    """One silent connection in a process with as many sockets as it may have, 100,000 at most."""
    most = min(100_000, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 200)
    pairs = [socket.socketpair() for _ in range(scene.much(most) // 2)]
    scene.reached("sockets", len(pairs) * 2, scene.much(most) // 2 * 2)
    for pair in pairs[:100]:
        pair[0].send(b"unread")
    silent(scene, 1 / scene.scale)


def silent_readers(scene):
    """400 connections that read everything and answer no Ping."""
    connections = states.clients(scene, 400)
    poster = scene.connect()
    contents = post(states.NAME, "", padding(300)) * 99 + post(states.NAME, answer=True)

    def act():
        poster.send(contents)
        poster.raw_answer(1)
        for connection in connections:
            connection.discard()

    scene.repeat(act)


def stopped_eleven(scene):
    """Eleven observers that are stopped, beside 60 MB."""

    def observe():
        scene.ask(connection := scene.connect(), add_observer(states.NAME, answer=True))
        connection.send(post(states.NAME))
        states.stop_process()

    pids = [scene.fork(observe) for _ in range(11)]
    scene.reach("clients", 11)
    poster = scene.connect()
    template = post(states.NAME, "", padding(3000))
    scene.fill(poster, template, scene.much(20_000))
    scene.reach("queued-bytes", scene.much(20 << 20), 1)

    def act():
        scene.fill(poster, template, scene.much(2000))
        for pid in scene.random.sample(pids, 3):
            os.kill(pid, signal.SIGCONT)
            time.sleep(0.01)

    scene.repeat(act)


def byte_readers(scene):
    """Ten observers that read a byte at a time, beside posts without end."""
    connections = states.clients(scene, 10)
    poster = scene.connect()
    contents = post(states.NAME, "", padding(1000)) * 99 + post(states.NAME, answer=True)
    for _ in range(20):
        poster.send(contents)
        poster.raw_answer(1)
    scene.reach("queued", scene.much(10) * 100)

    def act():
        poster.send(contents)
        poster.raw_answer(1)
        for connection in connections:
            for _ in range(20):
                connection.take(1)

    scene.repeat(act)


def slow_answerers(scene):
    """Observers that answer Pings and read a message at a time, beside a flood."""
    connections = states.clients(scene, 20)
    contents = post(states.NAME, "", padding(1000)) * 100
    scene.act()
    with scene.processes(lambda: states.pour(scene, contents)):
        while scene.going():
            for connection in connections:
                if (received := connection.next_raw(0)) is not None:
                    connection.answer_ping(received)
            time.sleep(0.005)


def pings_unread(scene):
    """Pings the service without end and reads no answer."""
    connection = scene.connect(receive_buffer=4096)
    for _ in range(scene.much(40)):
        scene.send(connection, asked([PING], 1000), 10)
    scene.reach("answer-bytes", scene.much(1 << 20))
    scene.act()
    states.pour_calls(scene, [PING], 1000)


def pings_of_many(scene):
    """Pings the service on 500 connections that do not read."""
    connections = scene.several(500, receive_buffer=4096)
    scene.reached("connections", len(connections), scene.much(500))

    def act():
        # Few at a time: dbus-daemon needs longer for each call the more wait for an answer.
        for connection in connections:
            if scene.going():
                scene.send(connection, asked([PING], 5), 0.5)
        scene.rest()

    scene.repeat(act)


def answer_pings_late(scene):
    """Observers that read everything and answer each Ping a second late."""
    connections = states.clients(scene, 50)
    poster = scene.connect()
    contents = post(states.NAME, "", padding(500)) * 99 + post(states.NAME, answer=True)
    waiting = []

    def act():
        poster.send(contents)
        poster.raw_answer(1)
        for connection in connections:
            while (received := connection.next_raw(0)) is not None:
                if received[1] == CALL:
                    waiting.append((time.monotonic() + 1, connection, received))
        while waiting and waiting[0][0] < time.monotonic():
            _, connection, received = waiting.pop(0)
            connection.answer_ping(received)

    scene.repeat(act)


CASES = {
    "silent-100": silent_100,
    "silent-520": silent_520,
    "silent-3000": silent_3000,
    "silent-among-sockets": silent_among_sockets,
    "silent-readers": silent_readers,
    "stopped-eleven": stopped_eleven,
    "byte-readers": byte_readers,
    "slow-answerers": slow_answerers,
    "pings-unread": pings_unread,
    "pings-of-many": pings_of_many,
    "answer-pings-late": answer_pings_late,
}
