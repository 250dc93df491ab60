# SPDX-FileCopyrightText: The Carillon authors
# SPDX-License-Identifier: Apache-2.0
"""What a hostile client is given: a seed, an end, victims, and connections that it need not treat well."""

import json
import os
import random
import signal
import time
import traceback
from contextlib import contextmanager

from gi.repository import GLib

from contract import INTERFACE, PROPERTIES, now
from hostile.templates import numbered
from wire import ERROR, ERROR_NAME, Closed, Connection, asked, asking, fields_of, message, values_of

#: Seconds that a case may take to drive the service to its state.
SETUP_SECONDS = 60

STATISTICS = message("Get", GLib.Variant("(ss)", (INTERFACE, "Statistics")), interface=PROPERTIES, answer=True)
CLIENTS = message("ListClients", answer=True)


class Scene:
    def __init__(self, kind, seed, seconds, victims, scale=1.0):
        self.random = random.Random(f"{seed} {kind}")
        self._seconds = seconds
        #: When it is over; a case moves this with `act`.
        self.end = now() + seconds
        #: The unique names of well-behaved clients; the first is one that takes answers only from whom it asked.
        self.victims = victims
        #: How much of everything: 1 in a long run.
        self.scale = scale
        self._connections = []
        self._asker = None
        self._acts = False

    def going(self):
        return now() < self.end

    def much(self, count):
        """So many, as far as this run is a large one."""
        return max(1, round(count * self.scale))

    def connect(self, **options):
        """A connection that stays as long as this process."""
        connection = Connection(**options)
        self._connections.append(connection)
        return connection

    def several(self, count, **options):
        return [self.connect(**options) for _ in range(self.much(count))]

    def send(self, connection, contents, seconds=2, descriptors=()):
        """Sends it, if the bus takes it in that time. Whether it did.

        A connection to which half a message went can't be used any more: the caller makes another."""
        try:
            connection.send(contents, seconds, descriptors)
        except Closed:
            connection.close()
            return False
        return True

    def post_answered(self, connection, contents, last, seconds=10):
        """Sends posts that want no answer and then one that does, whose number is 1, and waits for it: so much comes as
        the service can do, and that is no flood. Whether it came."""
        try:
            connection.send(contents, seconds)
            connection.raw_answer_to(last, seconds)
        except Closed:
            connection.close()
            return False
        return True

    def rest(self, least=0.01, most=0.1):
        time.sleep(self.random.uniform(least, most))

    # Cases (hostile/cases): the way to a state, and the attack from there

    def prepare(self):
        """Gives the case its time to reach its state, unless it was there already."""
        if not self._acts:
            self.end = now() + SETUP_SECONDS

    def act(self):
        """Says that the state is reached: the attack begins, and takes the time that was given."""
        if not self._acts:
            self._acts = True
            self.end = now() + self._seconds
            say("acting")

    def reached(self, what, value, wanted=1):
        """Says how far the service was driven; it must be to what was wanted."""
        say("reached", what, value, wanted)

    def fail(self, text):
        """Says that the state can't be reached."""
        if not self._acts:
            say("failed", text)

    def fill(self, connection, template, count, first=0, seconds=SETUP_SECONDS):
        """Sends so many copies of a call that wants no answer, with numbers in the place of the placeholder, no faster
        than they are served."""
        piece = max(1, min(2000, (1 << 20) // len(template)))
        for start in range(first, first + count, piece):
            stop = min(start + piece, first + count)
            connection.send(numbered(template, range(start, stop - 1)), seconds)
            self.ask(connection, asking(numbered(template, [stop - 1]), 1), seconds)

    def ask(self, connection, contents, seconds=SETUP_SECONDS):
        """Makes a call, with a number of its own, and returns the bytes of its answer.

        An error before the case acts is a failure to reach its state."""
        answer = connection.raw_answer_to(asked([contents]), seconds)
        if answer[1] == ERROR:
            self.fail(f"{fields_of(answer)[ERROR_NAME].decode()}: {values_of(answer)[:1]}")
        return answer

    def ask_all(self, connection, calls, times=1):
        """Makes these calls so many times, all at once, and takes the answers, which may be errors."""
        connection.send(asked(calls, times))
        connection.take_answers(len(calls) * times)

    def value(self, connection, contents):
        """The first value of the answer to a call."""
        return values_of(self.ask(connection, contents))[0]

    def statistics(self):
        """The service's counters."""
        return self.value(self._asking_connection(), STATISTICS)

    def clients(self):
        """What the service lists of its clients, by their unique names."""
        return {client["name"]: client for client in self.value(self._asking_connection(), CLIENTS)}

    def _asking_connection(self):
        if self._asker is None:
            self._asker = self.connect()
        return self._asker

    def reach(self, key, wanted, seconds=10):
        """Waits until this counter of the service is as high as wanted, and says how high it is."""
        deadline = now() + seconds
        while (value := self.statistics()[key]) < wanted and now() < deadline:
            time.sleep(0.05)
        self.reached(key, value, wanted)

    def repeat(self, act):
        """Begins to act, and acts again and again. A connection that ends, ends the case's turn."""
        self.act()
        while self.going():
            act()

    # Processes

    def fork(self, act, *arguments):
        """A process of its own that does this without this one's connections. Returns its number."""
        pid = os.fork()
        if pid != 0:
            return pid
        try:
            for connection in self._connections:
                connection.close()
            self._connections.clear()
            self._asker = None
            act(*arguments)
        except Closed:
            pass
        except Exception:  # noqa: BLE001
            traceback.print_exc()
        finally:
            os._exit(0)

    @contextmanager
    def processes(self, *acts):
        """Processes of their own that do these things until this ends."""
        pids = [self.fork(act) for act in acts]
        try:
            yield pids
        finally:
            self.kill(pids)

    def kill(self, pids):
        """Ends processes that this one began."""
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def say(*words):
    """Tells answers.py how far the case is: a word, and a JSON array of the rest."""
    print(words[0], json.dumps(words[1:]), flush=True)
