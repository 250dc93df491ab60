# SPDX-FileCopyrightText: The Carillon authors
# SPDX-License-Identifier: Apache-2.0
"""A well-behaved poster: posts in every style, wants every answer, and records it.

    poster.py RECORDS NUMBER SEED RATE

Its posts of one style are a *lane*: they are numbered, and every observer gets them in that order. `NUMBER` 2 posts
what it has at one time in one call, and `NUMBER` 3 over a channel while it has one.
"""

import random
import sys

import gi

gi.require_version("Gio", "2.0")
from gi.repository import GLib  # noqa: E402

from channel import OUTCOME, ChannelKeeper  # noqa: E402
from client import Client  # noqa: E402
from contract import END, NAMES, OBJECTS, now  # noqa: E402

STYLES = ("now", "asap", "when-idle")

#: The number of the poster that posts many at once, and of the one with a channel.
BATCHING = 2
CHANNELED = 3

#: Answers that it waits for at most: a program that wants answers does not post without end.
MOST_PENDING = 100


class Poster(Client):
    def __init__(self, records, number, seed, rate):
        super().__init__(records)
        self.number = number
        self.random = random.Random(f"{seed} poster {number}")
        self.rate = rate
        self.posted = dict.fromkeys(STYLES, 0)
        self.pending = 0
        self.stopping = False
        self.ended = 0
        #: What is to be called with the outcome of each post that is on its way on the channel, by number.
        self.on_channel = {}
        self.last_on_channel = 0
        self.keeper = None
        if number == CHANNELED:
            # So that all that it posted on the bus comes before what it posts on the channel.
            self.keeper = ChannelKeeper(self, self._frame, self._channel_changed, lambda: self.pending == 0)
        self.say(f"ready {self.unique_name}")
        GLib.timeout_add(50, self._tick)

    def _tick(self):
        if self.stopping:
            return GLib.SOURCE_REMOVE
        # Mostly a few, at times many at once; on average the rate.
        mean = self.rate / 20
        count = int(self.random.expovariate(1 / mean)) if mean > 0 else 0
        batch = []
        for _ in range(min(count, MOST_PENDING - self.pending)):
            style = self.random.choices(STYLES, (6, 2, 1))[0]
            size = self.random.choices((10, 300, 5000, 60_000), (20, 20, 5, 1))[0]
            post = (style, self.random.choice(NAMES), self.random.choice(OBJECTS), size)
            if self.number == BATCHING:
                batch.append(self._begin(*post))
            else:
                self._post(*post)
        if batch:
            self._post_together(batch)
        return GLib.SOURCE_CONTINUE

    def _post(self, style, name, object_, size, then=None):
        if self.keeper and self.keeper.opening:
            GLib.timeout_add(10, lambda: self._post(style, name, object_, size, then))
            return
        arguments, end = self._begin(style, name, object_, size, then)
        if self.keeper and self.keeper.channel:
            self.last_on_channel += 1
            self.on_channel[self.last_on_channel] = end
            self.keeper.channel.post(self.last_on_channel, GLib.Variant.new_tuple(*arguments))
            return

        def answered(values, error):
            end(values and values[0], error)

        self.call("Post", GLib.Variant.new_tuple(*arguments), answered)

    def _frame(self, kind, number, parameters):
        if kind != OUTCOME:
            return
        end = self.on_channel.pop(number, None)
        if end is None:
            self.record("broken", now(), f"the outcome {number} was asked for by nobody, or came twice")
            return
        receivers, error, text = parameters.unpack()
        end(receivers, f"{error}: {text}" if error else None)

    def _channel_changed(self):
        if self.keeper.channel is not None:
            self.channel_began = now()
            return
        # They may have been posted, or not. One to a service that is dead already, and whose successor is there, is lost
        # with its channel all the same.
        unanswered, self.on_channel = self.on_channel, {}
        for end in unanswered.values():
            end(0, "the channel ended", since=self.channel_began)

    def _post_together(self, batch):
        posts = [GLib.Variant.new_tuple(*arguments) for arguments, _ in batch]

        def answered(values, error):
            outcomes = values[0] if error is None else [(0, error)] * len(batch)
            if len(outcomes) != len(batch):
                self.record("broken", now(), f"{len(batch)} posts had {len(outcomes)} outcomes")
            for (_, end), (receivers, name) in zip(batch, outcomes):
                end(receivers, name or None)

        self.call(
            "PostMany",
            GLib.Variant.new_tuple(GLib.Variant.new_array(GLib.VariantType("(ssa{sv}a{sv})"), posts)), answered)

    def _begin(self, style, name, object_, size, then=None):
        """Numbers a post. Returns its arguments, and what is to be called with its receivers or its error."""
        self.posted[style] += 1
        number = self.posted[style]
        sent = now()
        self.pending += 1

        def end(receivers, error, since=sent):
            self.pending -= 1
            if error is None:
                self.record("accepted", sent, now(), self.lane(style), number, name, object_, receivers)
            else:
                self.record("refused", min(sent, since), now(), self.lane(style), number, name, object_, error)
            if then:
                then(error)
            elif self.stopping and self.pending == 0:
                self._post_ends()

        return self._arguments(style, name, object_, number, size), end

    def _arguments(self, style, name, object_, number, size):
        user_info = {
            "lane": GLib.Variant("s", self.lane(style)), "n": GLib.Variant("t", number),
            "pad": GLib.Variant("s", "x" * size),
        }
        options = {} if style == "now" else {"posting-style": GLib.Variant("s", style)}
        return [
            GLib.Variant("s", name), GLib.Variant("s", object_), GLib.Variant("a{sv}", user_info),
            GLib.Variant("a{sv}", options),
        ]

    def lane(self, style):
        return f"{self.number} {style}"

    def ordered(self, order):
        if order == "stop":
            self.stopping = True
            if self.pending == 0:
                self._post_ends()

    def _post_ends(self):
        for style in STYLES:
            self._post_end(style)

    def _post_end(self, style):
        def answered(error):
            if error is not None:
                GLib.timeout_add(100, lambda: self._post_end(style))
                return
            self.ended += 1
            if self.ended == len(STYLES):
                self.say("stopped")

        self._post(style, END, "", 0, answered)


if __name__ == "__main__":
    Poster(sys.argv[1], int(sys.argv[2]), sys.argv[3], float(sys.argv[4])).run()
