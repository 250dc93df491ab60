# SPDX-FileCopyrightText: The Carillon authors
# SPDX-License-Identifier: Apache-2.0
"""What the kernel tells of the service and the bus: life, memory, descriptors, and waits for a processor."""

import os
import select

from contract import now


def resident_bytes(pid, kind="VmRSS"):
    """The resident memory of a process, or a kind of it, or None when the process is gone.

    Of the kinds, `RssAnon` is what is in no file: what the process has taken for itself."""
    try:
        with open(f"/proc/{pid}/status", encoding="ascii") as file:
            for line in file:
                if line.startswith(f"{kind}:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return None


def descriptor_count(pid):
    """How many descriptors it has open, or None when it is gone."""
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return None


def waited_for_processor(pid):
    """Seconds that its threads could have run and had no processor (`run_delay`), or None when it is gone."""
    try:
        total = 0
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/schedstat", encoding="ascii") as file:
                total += int(file.read().split()[1])
        return total / 1e9
    except OSError:
        return None


def processor_seconds(pid):
    """Seconds of processor time that the threads that it has now have used, or None when it is gone."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return None
    total = 0
    for thread in threads:
        try:
            with open(f"/proc/{pid}/task/{thread}/schedstat", encoding="ascii") as file:
                total += int(file.read().split()[0])
        except OSError:
            continue  # it has ended
    return total / 1e9


#: Bytes that are unread between the service and the bus although both keep up: dbus-broker writes up to 32 messages at a
#: time, and the next when others had their turn.
MOST_ON_THE_WAY = 12 << 10
#: The part of the time that a process runs which has nothing to wait for.
ALL_THE_TIME = 0.9
#: Seconds for which a process may keep memory that it has freed.
KEPT_AFTER_USE = 3


#: Seconds between a sample of memory and the answer of the service that belongs to it.
NEAR = 0.15


def is_idle(earlier, later):
    """Of two samples of what lies unread: whether both sides had read all, or went on reading, and the service slept."""
    seconds = later[0] - earlier[0]
    keep_up = all(
        after == 0 or after <= MOST_ON_THE_WAY and after != before for before, after in zip(earlier[1:3], later[1:3])
    )
    # Less than nothing where a thread has ended.
    return keep_up and 0 <= later[3] - earlier[3] < ALL_THE_TIME * seconds


class Process:
    """A process that is nobody's child here, watched until it ends."""

    def __init__(self, pid):
        self.pid = pid
        self._descriptor = os.pidfd_open(pid)

    def has_ended(self):
        return bool(select.select([self._descriptor], [], [], 0)[0])

    def close(self):
        os.close(self._descriptor)


class Samples:
    """Measurements of the service and the bus through a run."""

    def __init__(self, bus_pid):
        self.bus_pid = bus_pid
        #: (time, pid of the service, its seconds without a processor)
        self.delays = []
        #: (time, pid, resident bytes, descriptors, resident bytes of the bus)
        self.sizes = []
        #: (time, bytes that the service has not read, bytes of it that the bus has not, its seconds of processor time)
        self.unread = []
        #: (time, resident bytes of the service that are in no file)
        self.memory = []

    def take_delays(self, pid):
        self.delays.append((now(), pid, pid and waited_for_processor(pid)))

    def take_sizes(self, pid):
        sizes = (resident_bytes(pid), descriptor_count(pid), resident_bytes(self.bus_pid)) if pid else (None,)
        if all(sizes):
            self.sizes.append((now(), pid, *sizes))

    def take_memory(self, pid):
        if memory := resident_bytes(pid, "RssAnon"):
            self.memory.append((now(), memory))

    def take_unread(self, socket, pid):
        unread, processor = socket.unread(), processor_seconds(pid)
        if None not in (unread, processor):
            self.unread.append((now(), *unread, processor))

    def seconds_at_bus(self, start, end):
        """Seconds within that time in which what a client waited for was most likely at the bus, and no receiver could have
        read it sooner: in which the service read what the bus handed on, and the bus what the service did, and the service
        did not run all the time, as it would with something to do that it had read before."""
        return sum(
            max(0, min(end, later[0]) - max(start, earlier[0]))
            for earlier, later in zip(self.unread, self.unread[1:])
            if later[0] > start and earlier[0] < end and is_idle(earlier, later)
        )

    def uncounted(self, held, most_per_held, besides):
        """Samples of memory that what the service said that it holds does not explain: tuples of time, memory, and bytes
        held. And how many samples could be judged.

        `held` has tuples of when it was asked, when it answered, and the bytes. What it held shortly before counts, too."""
        found, judged = [], 0
        for moment, memory in self.memory:
            near = [(answered, size) for asked, answered, size in held if asked <= moment + NEAR]
            if not any(answered >= moment - NEAR for answered, _ in near):
                continue
            judged += 1
            most = max(size for answered, size in near if answered >= moment - KEPT_AFTER_USE)
            if memory > most_per_held * most + besides:
                found.append((moment, memory, most))
        return found, judged

    def without_processor(self, start, end, margin=0.3):
        """Seconds within that time in which the service could have run and had no processor.

        `margin` is in seconds, and no less than the time between two samples."""
        inside = [sample for sample in self.delays if start - margin <= sample[0] <= end + margin]
        return sum(
            later[2] - earlier[2]
            for earlier, later in zip(inside, inside[1:])
            if earlier[1] == later[1] and None not in (earlier[2], later[2])
        )
