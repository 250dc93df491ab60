# SPDX-FileCopyrightText: The Carillon authors
# SPDX-License-Identifier: Apache-2.0
"""A well-behaved observer: registers, is suspended and resumed, and records what it gets.

    observer.py RECORDS NUMBER SEED

After each restart of the service, and every few seconds, it compares its registrations with what the service lists.
`NUMBER` 2 has its notifications come together (`batches`), `NUMBER` 3 also registers and removes all the time, and
`NUMBER` 4 has a channel, and another one when that ends.
"""

import random
import sys

import gi

gi.require_version("Gio", "2.0")
from gi.repository import Gio, GLib  # noqa: E402

from channel import DROPPED, NOTIFICATION, ChannelKeeper  # noqa: E402
from client import Client, Ownership  # noqa: E402
from contract import END, INTERFACE, OBJECT_PATH, now, registrations  # noqa: E402

#: The numbers of the observer that wants batches, the one whose registrations come and go, and that with a channel.
BATCHING = 2
CHURNING = 3
CHANNELED = 4


class Ledger:
    """What the service must list, and may list: an answer that did not come tells nothing."""

    def __init__(self):
        self.sure = {}
        self.maybe_added = []
        self.maybe_removed = {}

    def compare(self, listed):
        """What is missing in the service's list, and what should not be there."""
        missing = [[number, *pair] for number, pair in self.sure.items() if listed.get(number) != pair]
        maybe = list(self.maybe_added)
        surplus = []
        for number, pair in listed.items():
            if number in self.sure or self.maybe_removed.get(number) == pair:
                continue
            if pair in maybe:
                maybe.remove(pair)
            else:
                surplus.append([number, *pair])
        return missing, surplus


class Observer(Client):
    def __init__(self, records, number, seed):
        super().__init__(records)
        self.number = number
        self.random = random.Random(f"{seed} observer {number}")
        self.ledger = Ledger()
        self.settling = False
        self.ends = set()
        self.expected_ends = None
        self.busy = False  # with registering, removing or comparing
        self.connection.signal_subscribe(
            None, INTERFACE, None, OBJECT_PATH, None, Gio.DBusSignalFlags.NO_MATCH_RULE, self._signal
        )
        self._earlier_owners = set()
        self.keeper = None
        self.ownership = Ownership(self, self._owner_changed)
        if number == BATCHING:
            wanted = GLib.Variant("(a{sv})", ({"batches": GLib.Variant("b", True)},))
            self.until_answered("SetClientOptions", wanted, lambda _: self._register(list(registrations(number))))
        else:
            self._register(list(registrations(number)))

    # Registrations

    def _register(self, remaining):
        if not remaining:
            self.record("ready", now(), self.unique_name, self.number)
            self.say(f"ready {self.unique_name}")
            GLib.timeout_add(self.random.randint(300, 1500), self._toggle)
            GLib.timeout_add(4000, self._compare)
            if self.number == CHURNING:
                GLib.timeout_add(40, self._churn)
            if self.number == CHANNELED:
                self.keeper = ChannelKeeper(self, self._frame)
            return
        name, object_ = remaining[0]

        def registered(values):
            self.ledger.sure[values[0]] = (name, object_)
            self._register(remaining[1:])

        hold = {"suspension-behavior": GLib.Variant("s", "hold")}
        self.until_answered("AddObserver", GLib.Variant("(ssa{sv})", (name, object_, hold)), registered)

    def _churn(self):
        if self.settling:
            return GLib.SOURCE_REMOVE
        if self.busy or not self.ownership.owner:
            return GLib.SOURCE_CONTINUE
        self.busy = True
        mine = [number for number, pair in self.ledger.sure.items() if pair[0].startswith("org.example.Churn")]
        if len(mine) > 20 or (mine and self.random.random() < 0.5):
            number = self.random.choice(mine)
            pair = self.ledger.sure.pop(number)

            def removed(_values, error):
                self.busy = False
                if error is not None:
                    self.ledger.maybe_removed[number] = pair

            self.call("RemoveObserver", GLib.Variant("(t)", (number,)), removed)
        else:
            pair = (f"org.example.Churn{self.random.randint(0, 9)}", self.random.choice(["", "door"]))

            def added(values, error):
                self.busy = False
                if error is None:
                    if values[0] in self.ledger.sure:
                        self.record("broken", now(), f"the observer's number {values[0]} was given twice")
                    self.ledger.sure[values[0]] = pair
                else:
                    self.ledger.maybe_added.append(pair)

            self.call("AddObserver", GLib.Variant("(ssa{sv})", (*pair, {})), added)
        return GLib.SOURCE_CONTINUE

    def _compare(self):
        if self.settling:
            return GLib.SOURCE_REMOVE
        self._compare_now()
        return GLib.SOURCE_CONTINUE

    def _compare_now(self):
        if self.busy:
            return False
        self.busy = True

        def listed(values, error):
            self.busy = False
            if error is None:
                numbers = {number: (name, object_) for number, name, object_, _ in values[0]}
                self.record("registrations", now(), *self.ledger.compare(numbers))

        self.call("ListObservers", GLib.Variant("(s)", (self.unique_name,)), listed)
        return True

    def _owner_changed(self, owner):
        self.record("owner", now(), owner)
        if owner:
            self._earlier_owners.add(owner)
            # As soon as what is under way has its answer.
            GLib.timeout_add(20, lambda: not self._compare_now())

    # Suspension

    def _toggle(self):
        if self.settling:
            return GLib.SOURCE_REMOVE
        suspended = self.random.random() < 0.5
        self.call("SetSuspended", GLib.Variant("(b)", (suspended,)), lambda *_: None)
        GLib.timeout_add(self.random.randint(300, 2500), self._toggle)
        return GLib.SOURCE_REMOVE

    def ordered(self, order):
        word, _, rest = order.partition(" ")
        if word == "settle":
            self.settling = True
            self.expected_ends = int(rest)
            self.until_answered("SetSuspended", GLib.Variant("(b)", (False,)), lambda _: self._settled())

    def _settled(self):
        if self.expected_ends is not None and len(self.ends) >= self.expected_ends:
            self.expected_ends = None
            self.say("settled")

    # Signals

    def _signal(self, _connection, sender, _path, _interface, member, parameters):
        if sender not in self._earlier_owners:
            self.record("forged", now(), member)
            return
        if self.keeper and self.keeper.channel and member != "SuspensionChanged" and not self.keeper.channel.read():
            # The channel has ended: first comes what is left in it.
            self.record("broken", now(), f"{member} came on the bus beside a channel that goes on")
        if member == "Notifications" and self.number == BATCHING:
            batch = parameters.get_child_value(0)
            for index in range(batch.n_children()):
                self._notification(batch.get_child_value(index))
        elif member == "Notification" and self.number != BATCHING:
            self._notification(parameters)
        elif member.startswith("Notification"):
            self.record("broken", now(), f"{member} is not what was asked for")
        elif member == "Dropped":
            count, _, reason = parameters.unpack()
            self.record("dropped", now(), count, reason)

    def _frame(self, kind, number, parameters):
        if kind == NOTIFICATION:
            if number != parameters.get_child_value(6).get_uint64():
                self.record("broken", now(), f"the number of a frame is {number}, which is not that of its body")
            self._notification(parameters)
        elif kind == DROPPED:
            count, _, reason = parameters.unpack()
            self.record("dropped", now(), count, reason)

    def _notification(self, parameters):
        name = parameters.get_child_value(0).get_string()
        serial = parameters.get_child_value(5).get_uint64()
        sequence = parameters.get_child_value(6).get_uint64()
        lane = parameters.get_child_value(2).lookup_value("lane", GLib.VariantType("s"))
        if lane is None:
            self.record("foreign", now(), sequence, serial, name)
            return
        number = parameters.get_child_value(2).lookup_value("n", GLib.VariantType("t")).get_uint64()
        self.record("own", now(), sequence, serial, name, lane.get_string(), number)
        if name == END:
            self.ends.add(lane.get_string())
            self._settled()


if __name__ == "__main__":
    Observer(sys.argv[1], int(sys.argv[2]), sys.argv[3]).run()
