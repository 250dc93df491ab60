# SPDX-FileCopyrightText: The Carillon authors
# SPDX-License-Identifier: Apache-2.0
"""What a hostile client is given: a seed, an end, victims, and connections that it need not treat well."""

import random
import time

from contract import now
from wire import Closed, Connection


class Scene:
    def __init__(self, kind, seed, seconds, victims, scale=1.0):
        self.random = random.Random(f"{seed} {kind}")
        self.end = now() + seconds
        #: The unique names of well-behaved clients; the first is one that takes answers only from whom it asked.
        self.victims = victims
        #: How much of everything: 1 in a long run.
        self.scale = scale
        self._connections = []

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
            connection.call(last, 1, seconds)
        except Closed:
            connection.close()
            return False
        return True

    def rest(self, least=0.01, most=0.1):
        time.sleep(self.random.uniform(least, most))
