# SPDX-FileCopyrightText: The Carillon authors
# SPDX-License-Identifier: Apache-2.0
"""Observers that read in a way of their own."""

import os
import signal
import time

from contract import NAMES, now
from wire import Closed, add_observer, post


def silent(scene):
    """Reads everything and answers nothing, no Ping either, as some libraries do."""
    connections = scene.several(3)
    for connection in connections:
        for name in [*NAMES, "org.example.Silent"]:
            scene.send(connection, add_observer(name))
    poster = scene.connect()
    while scene.going():
        if not scene.post_answered(poster, post("org.example.Silent") * 50, post("org.example.Silent", answer=True)):
            poster = scene.connect()
        for connection in list(connections):
            try:
                connection.discard(0.02)
            except Closed:
                connections.remove(connection)
                connections.append(scene.connect())


def stopped(scene):
    """Processes that observe what well-behaved clients post, answer Pings, and are stopped again and again."""
    readers = [spawn_reader(scene) for _ in range(scene.much(3))]
    try:
        while scene.going():
            for pid in readers:
                os.kill(pid, scene.random.choice([signal.SIGSTOP, signal.SIGSTOP, signal.SIGCONT]))
            scene.rest(0.2, 1.5)
    finally:
        for pid in readers:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def spawn_reader(scene):
    """A process of its own that reads, answers Pings, and posts a little. Returns its number."""
    pid = os.fork()
    if pid != 0:
        return pid
    try:
        connection = scene.connect()
        for name in ["", *NAMES]:
            connection.send(add_observer(name))
        connection.send(post("org.example.Stopped") * 300)
        while now() < scene.end + 5:
            if (received := connection.next_raw(0.2)) is not None:
                connection.answer_ping(received)
                time.sleep(0)
    except Closed:
        pass
    finally:
        os._exit(0)
