# SPDX-FileCopyrightText: The Carillon authors
# SPDX-License-Identifier: Apache-2.0
"""Measures how late the center answers a client that does nothing but ask, one call after the other.

    probe.py RECORDS

Every two milliseconds it calls `Peer.Ping` of the center or posts what only it observes, in turns, and waits for the
answer, and for the notification. Every ten milliseconds it calls the bus on a connection of its own, in turns `GetId`,
and `Peer.Ping` of another connection of this process, which passes the bus as often as a call of the center does. It
says `ready`, takes the order `end` from standard input, and then writes what it measured as one JSON object.
"""

import json
import os
import select
import sys

import gi

gi.require_version("Gio", "2.0")
from gi.repository import GLib  # noqa: E402

from contract import DBUS, DBUS_PATH, INTERFACE, PATIENCE, PEER, now  # noqa: E402
from latency import corrected, summary, worst  # noqa: E402
from wire import (  # noqa: E402
    ERROR, ERROR_NAME, INTERFACE_FIELD, MEMBER, REPLY_SERIAL, SENDER, SIGNAL, Closed, Connection, add_observer, asking,
    fields_of, message, post, values_of
)

#: Seconds from the beginning of one call to that of the next.
INTERVAL = 0.002
BUS_INTERVAL = 0.01

NAME = "org.example.Chaos.Probe"
PLACEHOLDER = b"00000000"


class Probe:
    def __init__(self):
        self.center = Connection()
        self.bus = Connection()
        self.echo = Connection()
        registered = self.center.raw_answer_to(add_observer(NAME, "", {}, answer=True))
        #: Whose messages count: others forge them.
        self._owner = fields_of(registered)[SENDER]
        self._ping = message("Ping", interface=PEER)
        self._post = post(NAME, "", {"n": GLib.Variant("s", PLACEHOLDER.decode())})
        #: The calls of the bus in turns, and from whom the answers come.
        self._bus_calls = [
            message("GetId", destination=DBUS, path=DBUS_PATH, interface=DBUS, answer=True),
            message("Ping", destination=self.echo.name, path="/", interface=PEER, answer=True),
        ]
        self._bus_owners = (DBUS.encode(), self.echo.name.encode())
        self._bus_serial = 0
        #: Pairs of moment and seconds by kind.
        self.answers = {"ping": [], "post": [], "arrival": [], "bus": []}
        self.faults = []
        #: Calls without an answer: moment, seconds and kind.
        self.missing = []
        #: (moment, "own", sequence, number) and (moment, "dropped", count, reason), as they came.
        self.stream = []
        self.accepted = set()
        self._serial = 100
        self._sent = 0.0
        #: The kinds that are waited for: "ping", "post", "arrival".
        self._awaited = set()
        self._bus_sent = None
        self._due = self._bus_due = now()
        self._ending = None

    # The loop

    def run(self):
        inputs = [self.echo.socket, self.center.socket, self.bus.socket, sys.stdin]
        while not self._is_over():
            self._send_what_is_due()
            wait = min(self._bus_due, self._due if not self._awaited else self._bus_due) - now()
            readable = select.select(inputs, [], [], max(0.0, min(wait, 0.01)))[0]
            if self.echo.socket in readable:
                self.echo.serve()
            if self.center.socket in readable:
                while (received := self.center.next_raw(0)) is not None:
                    self._take(received)
            if self.bus.socket in readable:
                while (received := self.bus.next_raw(0)) is not None:
                    self._take_of_bus(received)
            if sys.stdin in readable:
                self._ending = now()
                inputs.remove(sys.stdin)

    def _is_over(self):
        return self._ending is not None and not self._awaited and self._bus_sent is None

    def _send_what_is_due(self):
        moment = now()
        if self._awaited and moment - self._sent > PATIENCE:
            self.missing += [(self._sent, moment - self._sent, kind) for kind in self._awaited]
            self._awaited.clear()
        if self._ending is None and not self._awaited and moment >= self._due:
            self._serial += 1
            self._due = moment + INTERVAL
            self._sent = moment
            if self._serial % 2:
                self._awaited = {"ping"}
                self.center.send(asking(self._ping, self._serial))
            else:
                self._awaited = {"post", "arrival"}
                self.center.send(asking(self._post.replace(PLACEHOLDER, b"%08d" % self._serial), self._serial))
        measuring = self._ending is None or self._awaited
        if measuring and self._bus_sent is None and moment >= self._bus_due:
            self._bus_due = moment + BUS_INTERVAL
            self._bus_sent = moment
            self._bus_serial += 1
            self.bus.send(asking(self._bus_calls[self._bus_serial % 2], self._bus_serial))

    def _note(self, kind):
        if kind in self._awaited:
            self._awaited.remove(kind)
            self.answers[kind].append((self._sent, now() - self._sent))

    def _take(self, received):
        fields = fields_of(received)
        if fields.get(SENDER) != self._owner:
            return
        if received[1] == SIGNAL:
            if fields.get(INTERFACE_FIELD) == INTERFACE.encode():
                self._take_signal(fields[MEMBER], values_of(received))
        elif not self.center.answer_ping(received) and fields.get(REPLY_SERIAL) == self._serial:
            kind = "ping" if self._serial % 2 else "post"
            self._note(kind)
            if received[1] == ERROR:
                self.faults.append((self._sent, f"{kind} was answered by {fields[ERROR_NAME].decode()}"))
                self._awaited.clear()
            elif kind == "post":
                self.accepted.add(self._serial)
                if values_of(received)[0] == 0:
                    self.faults.append((self._sent, "a post has no receiver"))

    def _take_signal(self, member, values):
        if member == b"Notification":
            number = int(values[2]["n"])
            self.stream.append((now(), "own", values[6], number))
            if number == self._serial:
                self._note("arrival")
        elif member == b"Dropped":
            self.stream.append((now(), "dropped", values[0], values[2]))

    def _take_of_bus(self, received):
        fields = fields_of(received)
        if self._bus_sent is None or fields.get(SENDER) not in self._bus_owners:
            return
        if fields.get(REPLY_SERIAL) == self._bus_serial:
            self.answers["bus"].append((self._bus_sent, now() - self._bus_sent))
            self._bus_sent = None

    # The report

    def _judge_stream(self):
        """Whether each notification came once, in order, or was announced as lost."""
        sequence, announced, told = 0, 0, 0
        seen = set()
        for moment, kind, first, second in self.stream:
            if kind == "dropped":
                announced += first
                told += first
                continue
            hole = first - sequence - 1
            if hole < 0 or hole > announced:
                text = f"the sequence went from {sequence} to {first}, {announced} losses were announced"
                self.faults.append((moment, text))
            if second in seen:
                self.faults.append((moment, f"notification {second} came twice"))
            seen.add(second)
            sequence, announced = first, 0
        missing = self.accepted - seen
        if len(missing) > told:
            self.faults.append((self._sent, f"{len(missing)} notifications are missing, {told} were announced"))

    def report(self):
        self._judge_stream()
        intervals = dict.fromkeys(self.answers, INTERVAL) | {"bus": BUS_INTERVAL}
        return {
            "kinds": {
                kind: summary(corrected(answers, intervals[kind])) | {"worst": worst(answers)}
                for kind, answers in self.answers.items()
            },
            "answers": self.answers,
            "missing": self.missing,
            "faults": self.faults,
        }


def main():
    probe = Probe()
    print(f"ready {probe.center.name}", flush=True)
    try:
        probe.run()
    except Closed as problem:
        probe.faults.append((now(), f"the connection ended: {problem}"))
    part = sys.argv[1] + ".part"
    with open(part, "w", encoding="utf-8") as file:
        json.dump(probe.report(), file)
    os.replace(part, sys.argv[1])


if __name__ == "__main__":
    main()
