# SPDX-FileCopyrightText: The Carillon authors
# SPDX-License-Identifier: Apache-2.0
"""States to which more than one case drives the service."""

import select
import signal
import time

from gi.repository import GLib

from hostile.templates import HOLD, NUMBER, RETAIN, suspended, with_number
from wire import Closed, add_observer, asked, message, post

#: The standard limits that cases drive to.
OBSERVERS_PER_CLIENT = 16_384
QUEUED_PER_CLIENT = 131_072
VALUES_PER_CLIENT = 4096

#: A process gets seven times what is left to others: so many clients are the first one's, and so many each other's.
CLIENTS_OF_PROCESSES = (3000, 500)

#: Names that differ, and one name.
NAMES = f"org.example.Case.{NUMBER}"
NAME = "org.example.Case"


def observers(scene, count=OBSERVERS_PER_CLIENT, name=NAMES, object_="", options=None):
    """A connection with so many observers. Says how many the service lists."""
    connection = scene.connect()
    scene.fill(connection, add_observer(name, object_, options), scene.much(count))
    scene.reached("observers", scene.clients()[connection.name]["observers"], scene.much(count))
    return connection


def many_observers(scene, count, connections, name=NAMES, options=None):
    """Connections with so many observers each, whose names go on from one to the next."""
    made = []
    for index in range(connections):
        made.append(scene.connect())
        scene.fill(made[-1], add_observer(name, "", options), scene.much(count), index * scene.much(count))
    return made


def clients(scene, count, name=NAME, options=None, then=b""):
    """Connections with an observer each; of more than 3000, the rest is other processes', which read. Says how many
    clients there are."""
    own, *others = [scene.much(part) for part in parts(count, *CLIENTS_OF_PROCESSES)]
    register = add_observer(name, "", options) + then

    def register_all(some):
        connections = [scene.connect() for _ in range(some)]
        for connection in connections:
            connection.send(register)
        return connections

    connections = register_all(own)
    scene.reach("clients", own)
    for other in others:
        scene.fork(lambda other=other: stay(*register_all(other)))
    scene.reach("clients", own + sum(others))
    return connections


def parts(count, first, rest):
    """A number in parts: one of the first size at most, the others of the second."""
    made = [min(count, first)]
    while (left := count - sum(made)) > 0:
        made.append(min(left, rest))
    return made


def held(scene, connection, template, count=QUEUED_PER_CLIENT - 1000):
    """Has so many notifications wait for this connection, which is suspended then. Says how many there are."""
    scene.ask(connection, suspended(True))
    poster = scene.connect()
    scene.fill(poster, template, scene.much(count))
    scene.reached("held", scene.clients()[connection.name]["queued"], scene.much(count))
    return poster


def holder(scene, count=QUEUED_PER_CLIENT - 1000):
    """A suspended connection for which so many notifications of one name wait."""
    connection = observers(scene, 1, NAME, options=HOLD)
    held(scene, connection, post(NAME, NUMBER), count)
    return connection


def queued(scene, connection, options, count=QUEUED_PER_CLIENT - 1000, name=NAME, object_=NUMBER):
    """Has so many posts wait in this connection's queue."""
    scene.fill(connection, post(name, object_, {}, options), scene.much(count))


def observer_numbers(scene, connection):
    """The numbers of a connection's observers, as the service lists them."""
    numbers, last = [], 0
    while True:
        page = message("ListObserversFrom", GLib.Variant("(stu)", (connection.name, last, 4096)), answer=True)
        listed = scene.value(connection, page)
        if not listed:
            return numbers
        numbers += [observer[0] for observer in listed]
        last = numbers[-1]


def removals(numbers, answer=False):
    """The calls that remove observers with these numbers."""
    template = message("RemoveObserver", GLib.Variant("(t)", (0,)), answer=answer)
    return [with_number(template, number) for number in numbers]


#: How many values four processes can post, of which each gets what it leaves to others.
VALUES = (4096, 4096, 4096, 1712)


def keep_values(scene, template, count, first):
    """Posts so many values and stays."""
    connection = scene.connect()
    scene.fill(connection, template, count, first)
    stay(connection)


def stay(*connections):
    """Reads, answers Pings, and does nothing else until it is ended."""
    crowd = Crowd(connections)
    while True:
        crowd.read(10)


def values(scene, template, counts=VALUES):
    """Processes that post values, and stay. Says how many there are."""
    counts = [scene.much(count) for count in counts]
    before = scene.statistics()["retained"]
    for index, count in enumerate(counts):
        scene.fork(keep_values, scene, template, count, sum(counts[:index]))
    scene.reach("retained", before + sum(counts))


def value(name=NAME, object_=NUMBER, user_info=None, options=None):
    """The post of a value."""
    return post(name, object_, user_info, RETAIN | (options or {}))


class Crowd:
    """Connections that read all that comes and answer Pings."""

    def __init__(self, connections):
        self._connections = {connection.socket.fileno(): connection for connection in connections}
        self._poll = select.epoll()
        for descriptor in self._connections:
            self._poll.register(descriptor, select.EPOLLIN)

    def read(self, seconds=0.0):
        """Reads what there is, waiting for so long for something. Returns how many messages came."""
        taken = 0
        for descriptor, _ in self._poll.poll(seconds, len(self._connections)):
            try:
                taken += self._connections[descriptor].serve()
            except Closed:
                self._poll.unregister(descriptor)
        return taken


def pour(scene, contents, seconds=60):
    """Sends the same without end, and reads no answer: for a process of its own."""
    connection = scene.connect()
    while scene.going():
        if not scene.send(connection, contents, seconds):
            connection = scene.connect()


def pour_calls(scene, calls, times, seconds=5):
    """Makes these calls without end and reads no answer."""
    connection = scene.connect(receive_buffer=4096)
    while scene.going():
        if not scene.send(connection, asked(calls, times), seconds):
            connection = scene.connect(receive_buffer=4096)


def pause_until(scene, condition, seconds=5.0):
    """Waits until a condition holds, or the case is over."""
    deadline = time.monotonic() + seconds
    while not condition() and scene.going() and time.monotonic() < deadline:
        time.sleep(0.02)


def stop_process():
    """Stops this process until it is ended."""
    signal.raise_signal(signal.SIGSTOP)
