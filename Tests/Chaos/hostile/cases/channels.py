# SPDX-FileCopyrightText: The Carillon authors
# SPDX-License-Identifier: Apache-2.0
"""Channels that are opened without end, not read, fed with what is no frame, or ended in the middle."""

import os
import socket
import struct
import time

from gi.repository import GLib

from channel import HEADER, NOTIFICATION, OUTCOME, POST, body
from hostile.cases import states
from hostile.templates import NUMBER, numbered, padding, style
from wire import add_observer, asked, message, post

OPEN = message("OpenChannel", GLib.Variant("(a{sv})", ({},)), answer=True)


def opened(scene, connection):
    """The program's end of a channel of that connection."""
    scene.ask(connection, OPEN)
    channel = socket.socket(fileno=connection.descriptors.pop())
    channel.settimeout(5)
    return channel


def channels(scene, count, name=states.NAME):
    """So many connections with an observer and a channel each. Says how many the service has."""
    connections = [scene.connect() for _ in range(count)]
    for connection in connections:
        scene.ask(connection, add_observer(name, answer=True))
    made = [opened(scene, connection) for connection in connections]
    scene.reach("channels", count)
    return made


def frame(name=states.NAME, object_=NUMBER, user_info=None, options=None, number=0):
    """A post as a frame."""
    contents = body(GLib.Variant("(ssa{sv}a{sv})", (name, object_, user_info or {}, options or {})))
    return HEADER.pack(len(contents), POST, number) + contents


class Outgoing:
    """The same contents again and again on a channel, as it takes them, whole frame behind whole frame."""

    def __init__(self, channel, contents):
        self.channel = channel
        self._contents = memoryview(contents)
        self._sent = 0

    def push(self):
        """Sends what the channel takes now, of the contents at most. Whether they are through."""
        try:
            self._sent += self.channel.send(self._contents[self._sent :], socket.MSG_DONTWAIT)
        except OSError:
            return False
        self._sent %= len(self._contents)
        return self._sent == 0

    def finish(self, scene, read):
        """Sends the rest, and reads meanwhile."""
        while scene.going() and not self.push():
            if not sum(map(take_all, read)):
                time.sleep(0.001)


def send(channel, contents):
    """Sends to a channel. Whether it took everything."""
    try:
        channel.sendall(contents)
    except OSError:
        return False
    return True


def open_and_close(scene):
    """Opens a channel and closes it, again and again."""
    connection = scene.connect()

    def act():
        channel = opened(scene, connection)
        send(channel, frame() * 10)
        channel.close()

    channels(scene, 1)
    scene.repeat(act)


def open_again(scene):
    """Opens one channel after the other without closing one, on sixteen connections."""
    connections = [scene.connect() for _ in range(16)]
    kept = [opened(scene, connection) for connection in connections]
    scene.reach("channels", len(kept))

    def act():
        for connection in connections:
            connection.send(asked([OPEN], 10))
        for connection in connections:
            connection.take_answers(10)
            close_all(connection)
        kept.clear()

    scene.repeat(act)


def channels_unread(scene):
    """Sixteen channels that are not read, beside a flood for them."""
    kept = channels(scene, 16)
    contents = post(states.NAME, "", padding(1000)) * 100
    scene.act()
    with scene.processes(*[lambda: states.pour(scene, contents)] * 2):
        states.pause_until(scene, lambda: not kept, 1000)


def outcomes_unread(scene):
    """Posts on sixteen channels with outcomes, and reads none."""
    kept = channels(scene, 16)
    outgoing = [Outgoing(channel, frame(number=1) * 100) for channel in kept]
    scene.repeat(lambda: any([each.push() for each in outgoing]) or time.sleep(0.001))


def close_with_outcomes(scene):
    """Closes sixteen channels with outcomes that were not read, and opens others: each call has to be answered."""
    connections = [scene.connect() for _ in range(16)]
    contents = frame(number=1) * 500

    def act():
        kept = [opened(scene, connection) for connection in connections]
        for channel in kept:
            channel.settimeout(0.2)
            while send(channel, contents):
                pass
        for channel in kept:
            channel.close()

    channels(scene, 1)
    scene.repeat(act)


def end_with_outcomes(scene):
    """Processes with sixteen channels each end at once, with channels full of posts of which nobody reads the outcomes."""
    contents = frame(number=1) * 500

    def fill():
        kept = [opened(scene, scene.connect()) for _ in range(16)]
        for channel in kept:
            channel.settimeout(0.2)
            while send(channel, contents):
                pass
        time.sleep(3600)

    def act():
        with scene.processes(*[fill] * scene.much(20)):
            scene.reach("channels", 16 * scene.much(20))
            time.sleep(0.5)

    act()
    scene.repeat(act)


def no_frames(scene):
    """Sends what is no frame on a channel, and opens another."""
    connection = scene.connect()
    good = frame()
    wrong = [
        bytes(1000), b"\xff" * 1000, HEADER.pack(0, POST, 1), HEADER.pack(8, 99, 1) + bytes(8),
        HEADER.pack(len(good), OUTCOME, 1) + good, HEADER.pack(64, NOTIFICATION, 1) + bytes(64),
        HEADER.pack(64, POST, 1) + b"\xff" * 64, HEADER.pack((32 << 20) + 1, POST, 1),
        good[:40] + struct.pack("=I", 2**32 - 1) + good[44:],
    ]
    channels(scene, 1)

    def act():
        channel = opened(scene, connection)
        send(channel, good + scene.random.choice(wrong))
        channel.close()

    scene.repeat(act)


def announced_length(scene):
    """Announces frames of 4 GiB and of 32 MiB on sixteen channels, and sends a part of the latter."""
    connections = [scene.connect() for _ in range(16)]
    kept = [opened(scene, connection) for connection in connections]
    scene.reach("channels", len(kept))
    for channel in kept:
        send(channel, HEADER.pack(32 << 20, POST, 1) + bytes(1 << 16))

    def act():
        for index, connection in enumerate(connections[:4]):
            kept[index].close()
            kept[index] = opened(scene, connection)
            send(kept[index], HEADER.pack(2**32 - 1, POST, 1))
        for channel in kept[4:]:
            send(channel, bytes(1 << 18))

    scene.repeat(act)


def byte_at_a_time(scene):
    """Posts on sixteen channels a byte at a time."""
    kept = channels(scene, 16)
    contents = frame(number=1)

    def act():
        for index in range(len(contents)):
            for channel in kept:
                send(channel, contents[index : index + 1])
        for channel in kept:
            channel.recv(1 << 16)

    scene.repeat(act)


def half_closed(scene):
    """Ends its writing with thousands of posts before, and does not read."""
    connection = scene.connect()
    kept = []
    contents = frame(number=1) * 1000
    channels(scene, 1)

    def act():
        channel = opened(scene, connection)
        channel.settimeout(0.5)
        send(channel, contents)
        channel.shutdown(socket.SHUT_WR)
        kept.append(channel)
        if len(kept) > 50:
            kept.pop(0).close()

    scene.repeat(act)


def channel_flood(scene):
    """Posts 100,000 and more on a channel without outcomes, with an observer that has one and reads."""
    (reader,) = channels(scene, 1)
    outgoing = Outgoing(opened(scene, scene.connect()), numbered(frame(), range(1000)))
    before = scene.statistics()["posted"]
    for _ in range(scene.much(100)):
        outgoing.finish(scene, [reader])
    scene.reach("posted", before + scene.much(100) * 1000)
    scene.repeat(lambda: outgoing.finish(scene, [reader]))


def close_all(connection):
    """Closes the descriptors that came."""
    while connection.descriptors:
        os.close(connection.descriptors.pop())


def take_all(channel):
    """Reads what there is in a channel. Returns how many bytes there were."""
    taken = 0
    try:
        while more := len(channel.recv(1 << 18, socket.MSG_DONTWAIT)):
            taken += more
    except OSError:
        pass
    return taken


def channel_queued(scene):
    """Posts asap and when-idle that coalesce on a channel, without end."""
    (reader,) = channels(scene, 1)
    outgoing = Outgoing(opened(scene, scene.connect()), b"".join(
        numbered(frame(options=style(name, ["name", "object"])), range(500)) for name in ("asap", "when-idle")
    ))
    scene.repeat(lambda: outgoing.finish(scene, [reader]))


def channel_large(scene):
    """Posts 1 MiB at a time on sixteen channels, which observe that and do not read."""
    kept = channels(scene, 16)
    outgoing = [Outgoing(channel, frame(user_info=padding((1 << 20) - 200))) for channel in kept]
    scene.repeat(lambda: any([each.push() for each in outgoing]) or time.sleep(0.001))


def channel_parts(scene):
    """Sends all but the last byte of posts of 1 MiB on sixteen channels of each of ten processes, and waits."""
    contents = frame(user_info=padding((1 << 20) - 200))[:-1]

    def hold():
        kept = [opened(scene, scene.connect()) for _ in range(16)]
        for channel in kept:
            send(channel, contents)
        time.sleep(3600)

    before = scene.statistics()["waiting-call-bytes"]
    with scene.processes(*[hold] * scene.much(10)):
        # All of them have a quarter of the limit.
        scene.reach("waiting-call-bytes", before + min(31 << 20, scene.much(10) * 16 << 20))
        scene.act()
        states.pause_until(scene, lambda: False, 1000)


def channel_refused(scene):
    """Posts on a channel what is refused, with outcomes of long texts."""
    (channel,) = channels(scene, 1)
    refused = frame("", number=1) + frame("x" * 1025, number=2) + frame(options=padding(5000), number=3)
    outgoing = Outgoing(channel, refused * 50)
    scene.repeat(lambda: outgoing.finish(scene, [channel]))


def leave_with_channel(scene):
    """Leaves the bus with a channel full of posts, again and again."""

    def act():
        with scene.connect() as connection:
            channel = opened(scene, connection)
            channel.settimeout(0.1)
            send(channel, frame() * 500)
        channel.close()

    channels(scene, 1)
    scene.repeat(act)


CASES = {
    "channel-open-and-close": open_and_close,
    "channel-open-again": open_again,
    "channels-unread": channels_unread,
    "channel-outcomes-unread": outcomes_unread,
    "channel-close-outcomes": close_with_outcomes,
    "channel-end-outcomes": end_with_outcomes,
    "channel-no-frames": no_frames,
    "channel-announced-length": announced_length,
    "channel-byte-at-a-time": byte_at_a_time,
    "channel-half-closed": half_closed,
    "channel-flood": channel_flood,
    "channel-queued": channel_queued,
    "channel-large": channel_large,
    "channel-parts": channel_parts,
    "channel-refused": channel_refused,
    "channel-leave": leave_with_channel,
}
