# SPDX-FileCopyrightText: The Carillon authors
# SPDX-License-Identifier: Apache-2.0
"""Reads what the clients recorded, and says which invariants did not hold."""

import bisect
import collections
import json
import re

from contract import END, NAMES, matches, registrations
from stage import OBSERVERS

#: What the service may take: the limits of the run, which come to 112 MiB, at one and a half times their size as heaps
#: have gaps; what libdbus reads ahead; and the program itself.
MOST_BYTES = 384 << 20

#: What it may keep when all hostile clients have gone.
SLACK_BYTES = 24 << 20

MOST_DESCRIPTORS = 768
SLACK_DESCRIPTORS = 4

Received = collections.namedtuple("Received", "position time sequence serial name lane number")


def read(path):
    """The records of a client. One that was ended in the middle of a line leaves a part of it."""
    with open(path, encoding="utf-8") as file:
        for line in file:
            try:
                yield json.loads(line)
            except ValueError:
                return


class Stream:
    """What one observer received, in order."""

    def __init__(self, name, registered):
        self.name = name
        self.registered = registered
        self.own = []
        #: Pairs of position and count.
        self.dropped = []
        self.reasons = collections.Counter()
        self.foreign = 0
        self.forged = 0
        self.faults = []
        self._position = 0
        self._sequence = 0
        self._told = 0

    def next_position(self):
        self._position += 1
        return self._position

    def take_dropped(self, count, reason):
        self.dropped.append((self.next_position(), count))
        self.reasons[reason] += count
        self._told += count

    def take_sequence(self, time, sequence):
        hole = sequence - self._sequence - 1
        if hole < 0:
            self.faults.append((time, f"{self.name}: the sequence went from {self._sequence} to {sequence}"))
        elif hole > self._told:
            self.faults.append(
                (time, f"{self.name}: {hole} numbers are missing before {sequence}, and {self._told} were announced")
            )
        self._sequence = sequence
        self._told = 0

    def take_own(self, time, sequence, serial, name, lane, number):
        self.take_sequence(time, sequence)
        self.own.append(Received(self.next_position(), time, sequence, serial, name, lane, number))

    def take_foreign(self, time, sequence):
        self.take_sequence(time, sequence)
        self.next_position()
        self.foreign += 1


def stream_of_observer(stage, actor, number, meanings):
    """Reads the records of an observer. Returns its stream, and the time of its last look at its registrations."""
    stream = Stream(actor.name, registrations(number))
    looked = 0
    for kind, time, *rest in read(actor.records):
        if kind == "own":
            stream.take_own(time, *rest)
            meanings.add(time, rest[1], tuple(rest[2:]), actor.name)
        elif kind == "foreign":
            stream.take_foreign(time, rest[0])
            meanings.add(time, rest[1], ("foreign", rest[2]), actor.name)
        elif kind == "dropped":
            stream.take_dropped(*rest)
        elif kind == "forged":
            stream.forged += 1
        elif kind == "registrations":
            looked = time
            missing, surplus = rest
            if missing:
                stream.faults.append((time, f"{actor.name}: registrations were lost: {missing[:5]}"))
            if surplus:
                stream.faults.append((time, f"{actor.name}: registrations came from nowhere: {surplus[:5]}"))
        elif kind == "broken":
            stream.faults.append((time, f"{actor.name}: {rest[0]}"))
    return stream, looked


def stream_of_command(path, meanings, end):
    """Reads the JSON of `carillon observe`, which has no times."""
    stream = Stream("carillon observe", [(name, "") for name in [*NAMES, END]])
    for event in read(path):
        if event.get("event") == "dropped":
            stream.take_dropped(event["count"], event["reason"])
        elif "name" in event and "lane" in event["userInfo"]:
            info = event["userInfo"]
            stream.take_own(end, event["sequence"], event["serial"], event["name"], info["lane"], info["n"])
            meanings.add(end, event["serial"], (event["name"], info["lane"], info["n"]), stream.name)
        elif "name" in event:
            stream.take_foreign(end, event["sequence"])
            meanings.add(end, event["serial"], ("foreign", event["name"]), stream.name)
    return stream


class Meanings:
    """What each serial stands for, as all observers together saw it."""

    def __init__(self):
        self._meanings = {}
        self.faults = []

    def add(self, time, serial, meaning, observer):
        earlier = self._meanings.setdefault(serial, meaning)
        if earlier != meaning:
            self.faults.append((time, f"{observer}: serial {serial} is {meaning} here and {earlier} elsewhere"))


def check_lanes(stream, accepted):
    """Order, repetition and loss of the well-behaved posts at one observer."""
    faults = []
    by_lane = collections.defaultdict(list)
    for received in stream.own:
        by_lane[received.lane].append(received)
    positions = [position for position, _ in stream.dropped]
    totals = [0]
    for _, count in stream.dropped:
        totals.append(totals[-1] + count)

    def announced(after, before):
        return totals[bisect.bisect_left(positions, before)] - totals[bisect.bisect_right(positions, after)]

    missing_in_all = 0
    for lane in sorted(set(accepted) | set(by_lane)):
        received = by_lane[lane]
        for earlier, later in zip(received, received[1:]):
            if later.number == earlier.number:
                faults.append((later.time, f"{stream.name}: {lane} {later.number} came twice"))
            elif later.number < earlier.number:
                faults.append((later.time, f"{stream.name}: {lane} {later.number} came after {earlier.number}"))
            if later.serial <= earlier.serial:
                faults.append((later.time, f"{stream.name}: serial {later.serial} came after {earlier.serial}"))
        numbers = {each.number for each in received}
        gaps = collections.Counter()
        order = sorted(received, key=lambda each: each.number)
        keys = [each.number for each in order]
        for number, (name, object_) in accepted.get(lane, {}).items():
            if number not in numbers and matches(stream.registered, name, object_):
                gaps[bisect.bisect_left(keys, number)] += 1
        for place, missing in gaps.items():
            missing_in_all += missing
            before = order[place - 1] if place > 0 else None
            after = order[place] if place < len(order) else None
            told = announced(before.position if before else 0, after.position if after else float("inf"))
            if missing > told:
                where = f"between {before and before.number} and {after and after.number}"
                time = after.time if after else stream.own[-1].time if stream.own else 0
                faults.append(
                    (time, f"{stream.name}: {missing} accepted posts of {lane} are missing {where}, {told} announced")
                )
    if missing_in_all > totals[-1]:
        faults.append((0, f"{stream.name}: {missing_in_all} accepted posts are missing, {totals[-1]} announced in all"))
    return faults, missing_in_all


def read_posters(stage):
    """What was accepted, by lane and number; how many were refused, by error; and what the answers show."""
    accepted = collections.defaultdict(dict)
    refused = collections.Counter()
    faults = []
    everyone = [registrations(number) for number in range(OBSERVERS)] + [[(name, "") for name in [*NAMES, END]]]
    for actor in stage.posters:
        for kind, sent, *rest in read(actor.records):
            if kind == "broken":
                faults.append((sent, f"{actor.name}: {rest[0]}"))
                continue
            answered, lane, number, name, object_, outcome = rest
            if kind == "refused":
                refused[outcome.split(": ")[0]] += 1
                if not overlaps_kill(stage, sent, answered):
                    faults.append((sent, f"{actor.name}: a post was refused: {outcome}"))
                continue
            accepted[lane][number] = (name, object_)
            expected = sum(matches(registered, name, object_) for registered in everyone)
            if lane.endswith(" now") and outcome < expected:
                faults.append((sent, f"{actor.name}: {outcome} receivers where {expected} well-behaved match"))
    return accepted, refused, faults


# Time


def restarts(stage):
    """Pairs: when the service was killed, and when the name had an owner again."""
    pairs = []
    for killed, pid in stage.kills:
        later = [moment for moment, _, other in stage.lives if moment > killed and other != pid]
        pairs.append((killed, min(later, default=float("inf"))))
    return pairs


def overlaps_kill(stage, start, end):
    return any(start <= back and end >= killed for killed, back in restarts(stage))


def check_times(stage, bound):
    """Whether the center answered within so many seconds."""
    faults = []
    probes = [record[1:] for record in read(stage.prober.records) if record[0] == "probe"]
    late = [record[1:] for record in read(stage.prober.records) if record[0] == "late"]
    peers = sorted((sent, answered) for sent, answered, whom, _, _ in probes if whom != "center")
    peer_starts = [sent for sent, _ in peers]
    back = restarts(stage)
    longest = dict.fromkeys(("center", "without what is excused", "bus and bystander", "restart"), (0, 0))

    def note(what, seconds, moment):
        longest[what] = max(longest[what], (seconds, moment))

    for killed, owned in back:
        note("restart", owned - killed, killed)
        if owned == float("inf"):
            faults.append((killed, "the service did not come back"))
    for sent, answered in peers:
        note("bus and bystander", answered - sent, sent)
    for sent, answered, whom, method, error in probes:
        if whom != "center":
            continue
        in_restart = [owned for killed, owned in back if sent <= owned and answered >= killed]
        if error is not None:
            if not in_restart:
                faults.append((sent, f"{method} was answered by {error}"))
            continue
        # What waits while the service is away is counted from when it is there again.
        start = max([sent, *[owned for owned in in_restart if owned <= answered]])
        seconds = answered - start
        note("center", seconds, sent)
        if seconds <= bound:
            note("without what is excused", seconds, sent)
            continue
        first = bisect.bisect_left(peer_starts, start - 2)
        last = bisect.bisect_right(peer_starts, answered)
        peer = max((end - begin for begin, end in peers[first:last] if end >= start), default=0)
        asleep = sum(min(answered, woke) - max(start, due) for due, woke in late if due < answered and woke > start)
        # How late the bus was, the peers show.
        excused = max(peer, asleep) + stage.samples.without_processor(start, answered)
        note("without what is excused", seconds - excused, sent)
        if seconds - excused > bound:
            faults.append(
                (sent, f"{method} was answered after {seconds:.2f} s; the bus, the bystander and the machine "
                 f"explain {excused:.2f} s")
            )
    return faults, longest


# Memory


def check_sizes(stage):
    faults = []
    most = (0, 0)
    for time, _, resident, descriptors, _ in stage.samples.sizes:
        most = (max(most[0], resident), max(most[1], descriptors))
        if resident > MOST_BYTES:
            faults.append((time, f"the service has {resident >> 20} MiB of memory"))
        if descriptors > MOST_DESCRIPTORS:
            faults.append((time, f"the service has {descriptors} descriptors"))
    if not all(stage.final):
        faults.append((stage.ended, "the service is not there at the end"))
    else:
        if stage.final[0] > stage.base[0] + SLACK_BYTES:
            faults.append(
                (stage.ended, f"the service keeps {stage.final[0] >> 20} MiB after the load, and had "
                 f"{stage.base[0] >> 20} before it")
            )
        if stage.final[1] > stage.base[1] + SLACK_DESCRIPTORS:
            faults.append(
                (stage.ended, f"the service keeps {stage.final[1]} descriptors after the load, and had "
                 f"{stage.base[1]} before it")
            )
    return faults, most


# The verdict


def alike(faults):
    """The faults in lists of those whose texts differ in numbers only."""
    lists = {}
    for time, text in faults:
        lists.setdefault(re.sub(r"[0-9.]+", "", text), []).append((time, text))
    return lists.values()


class Verdict:
    """`faults` are pairs of time and text; `lines` say what was measured."""

    def __init__(self, stage, bound):
        meanings = Meanings()
        faults = list(stage.broken)
        accepted, refused, poster_faults = read_posters(stage)
        faults += poster_faults
        streams = []
        last_life = max((moment for moment, _, _ in stage.lives if moment < stage.ended), default=0)
        for number, actor in enumerate(stage.observers):
            stream, looked = stream_of_observer(stage, actor, number, meanings)
            streams.append(stream)
            if looked < last_life:
                faults.append((stage.ended, f"{actor.name} did not see its registrations after the last restart"))
        streams.append(stream_of_command(stage.command_records, meanings, stage.ended))
        lost = 0
        for stream in streams:
            lane_faults, missing = check_lanes(stream, accepted)
            faults += stream.faults + lane_faults
            lost += missing
        faults += meanings.faults
        time_faults, longest = check_times(stage, bound)
        size_faults, most = check_sizes(stage)
        faults += time_faults + size_faults
        self.faults = sorted(faults)
        reasons = sum((stream.reasons for stream in streams), collections.Counter())
        count = sum(len(lane) for lane in accepted.values())
        self.lines = [
            f"{len(stage.bouts)} bouts of hostile clients, {sum(at < stage.ended for at, _ in stage.kills)} kills, "
            f"{count} posts accepted, {sum(refused.values())} without an answer or refused {dict(refused)}",
            f"received: {sum(len(stream.own) for stream in streams)} of these, "
            f"{sum(stream.foreign for stream in streams)} of strangers, "
            f"{sum(stream.forged for stream in streams)} forged signals seen through",
            f"lost of what was accepted: {lost}; announced in all: {dict(reasons)}",
            "longest in seconds: " + ", ".join(f"{what} {seconds:.2f}" for what, (seconds, _) in longest.items()),
            f"memory: {stage.base[0] >> 20} MiB before, {most[0] >> 20} at most, {(stage.final[0] or 0) >> 20} after; "
            f"descriptors: {stage.base[1]}, {most[1]}, {stage.final[1]}; "
            f"the bus had {max((size[4] for size in stage.samples.sizes), default=0) >> 20} MiB at most",
        ]
