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
    """Seconds of processor time that it has used, or None when it is gone."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return sum(map(int, file.read().rpartition(")")[2].split()[11:13])) / os.sysconf("SC_CLK_TCK")
    except OSError:
        return None


#: Bytes that are unread between the service and the bus although both keep up: dbus-broker writes up to 32 messages at a
#: time, and the next when others had their turn.
MOST_ON_THE_WAY = 12 << 10


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
        #: (time, bytes that the service has not read, bytes of it that the bus has not)
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

    def take_unread(self, socket):
        if (unread := socket.unread()) is not None:
            self.unread.append((now(), *unread))

    def share_at_bus(self, start, end):
        """For what part of that time the service had read what the bus handed on, and the bus what the service did.

        What a client waited for was at the bus then, and no receiver could have read it sooner. 0 where too few samples
        tell."""
        inside = [sample for sample in self.unread if start <= sample[0] <= end]
        return sum(max(sample[1:]) <= MOST_ON_THE_WAY for sample in inside) / len(inside) if len(inside) >= 4 else 0

    def without_processor(self, start, end, margin=0.3):
        """Seconds within that time in which the service could have run and had no processor.

        `margin` is in seconds, and no less than the time between two samples."""
        inside = [sample for sample in self.delays if start - margin <= sample[0] <= end + margin]
        return sum(
            later[2] - earlier[2]
            for earlier, later in zip(inside, inside[1:])
            if earlier[1] == later[1] and None not in (earlier[2], later[2])
        )
