# SPDX-FileCopyrightText: The Carillon authors
# SPDX-License-Identifier: Apache-2.0
"""What the observers in this directory count, for those that are written in Python."""


class Tally:
    """Prints `ready` at the start, and the sums when the notification with the object `end` has come."""

    def __init__(self, unique_name):
        self._received = self._dropped = self._faults = self._sequence = 0
        print("ready", unique_name, flush=True)

    def take(self, member, arguments):
        if member == "Notification":
            self.notification(arguments[1], arguments[6])
        elif member == "Dropped":
            self.dropped(arguments[0])

    def notification(self, object_, sequence):
        self._sequence += 1
        self._faults += sequence != self._sequence
        self._sequence = sequence
        if object_ == "end":
            print(f"received={self._received} dropped={self._dropped} faults={self._faults}", flush=True)
        else:
            self._faults += int(object_) != self._received + self._dropped
            self._received += 1

    def dropped(self, count):
        self._dropped += count
        self._sequence += count
