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
#: Seconds between two ticks of the service's fastest timer: it wakes up for those whether or not it reads.
TICK = 0.01
#: Seconds between two samples beyond which nobody knows what was between them.
LONGEST_BETWEEN = 0.06
#: The system calls in which a loop waits for whatever comes: poll, epoll_wait, ppoll, epoll_pwait, epoll_pwait2.
WAITING_CALLS = {"x86_64": {7, 232, 271, 281, 441}, "aarch64": {22, 73, 441}}.get(os.uname().machine)
#: Seconds for which a process may keep memory that it has freed.
KEPT_AFTER_USE = 3


#: Seconds between a sample of memory and the answer of the service that belongs to it.
NEAR = 0.15


def loop_times(pid):
    """Of the process's first thread: seconds of processor time, seconds without a processor, how often it slept, and
    whether it is in a system call in which it waits for one thing only. None when it is gone."""
    try:
        with open(f"/proc/{pid}/task/{pid}/schedstat", encoding="ascii") as file:
            ran, waited = (int(word) / 1e9 for word in file.read().split()[:2])
        with open(f"/proc/{pid}/task/{pid}/status", encoding="ascii") as file:
            (sleeps,) = (int(line.split()[1]) for line in file if line.startswith("voluntary_ctxt_switches:"))
    except OSError:
        return None
    return ran, waited, sleeps, is_blocked(pid)


def is_blocked(pid):
    """Whether the first thread is in a system call that is none of a loop's. No where the kernel does not tell."""
    try:
        with open(f"/proc/{pid}/task/{pid}/syscall", encoding="ascii") as file:
            call = file.read().split()[0]
    except (OSError, IndexError):
        return False
    # "-1" is a wait outside of any call, as for a page of a file.
    return WAITING_CALLS is not None and call != "running" and int(call) not in WAITING_CALLS


def part_elsewhere(earlier, later):
    """Of the time between two samples of the loop, the part that was not the service's.

    Without a processor it can't do anything. A loop that reads all that it is given sleeps when there is nothing, and
    what a client waits for is at the bus then. That it was so is believed where nothing was left unread; where little was,
    and another amount each time, and it slept; and where another amount was, and it fell asleep more often than its timers
    tell. It is not believed where the bus has much of it unread, behind which an answer waits, nor of a loop that is in a
    system call in which it waits for one thing, nor where samples are too far apart."""
    seconds = later[0] - earlier[0]
    unread_before, unread, unread_by_bus = earlier[1], later[1], later[2]
    ran, waited, sleeps = (after - before for before, after in zip(earlier[3:6], later[3:6]))
    sleeps_before_all_is_read = 0 if unread <= MOST_ON_THE_WAY else 2 + seconds / TICK
    has_read = unread == 0 or unread != unread_before and sleeps > sleeps_before_all_is_read
    rests = has_read and unread_by_bus <= MOST_ON_THE_WAY and not later[6] and seconds <= LONGEST_BETWEEN
    part = 1 - ran / seconds if rests else waited / seconds
    return min(1, max(0, part))


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
        #: (time, bytes that the service has not read, bytes of it that the bus has not, then the times of its loop)
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
        unread, times = socket.unread(), loop_times(pid)
        if None not in (unread, times):
            self.unread.append((now(), *unread, *times))

    def seconds_elsewhere(self, start, end):
        """Seconds within that time in which the service could not do anything for a client: it had no processor, or what
        the client waited for was at the bus, as no receiver could have read it sooner."""
        return sum(
            (min(end, later[0]) - max(start, earlier[0])) * part_elsewhere(earlier, later)
            for earlier, later in zip(self.unread, self.unread[1:])
            if later[0] > start and earlier[0] < end
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
