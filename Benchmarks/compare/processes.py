# SPDX-License-Identifier: Apache-2.0
"""Loads and servers as processes, and what the kernel counts of them."""

import os
import select
import signal
import subprocess
import time

#: For what should take some seconds at most, on a machine that does much else.
PATIENCE = 120


class Failure(Exception):
    """A load or a server that did not do what it is there for."""


class Process:
    """A program whose lines are read. Ended by its id, and never by its name."""

    def __init__(self, command, environment, log):
        self.command = command
        self.log = log
        self.process = subprocess.Popen(
            [str(word) for word in command], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=log, bufsize=0,
        )
        self.pid = self.process.pid
        self.text = b""

    def line(self, start, patience=PATIENCE):
        """The next line that starts so, without its end; what stands before it is skipped."""
        end = time.monotonic() + patience
        while True:
            while b"\n" in self.text:
                line, self.text = self.text.split(b"\n", 1)
                if line.startswith(start.encode()):
                    return line.decode()
            if not select.select([self.process.stdout], [], [], max(0, end - time.monotonic()))[0]:
                raise Failure(f"{self}: no '{start}' within {patience} s")
            more = os.read(self.process.stdout.fileno(), 65536)
            if not more:
                raise Failure(f"{self}: ended with {self.process.wait()} before '{start}'")
            self.text += more

    def stop(self, number=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(number)
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def __str__(self):
        return " ".join(os.path.basename(str(word)) for word in self.command[:4])


def fields(line):
    """What is in a line of key=value."""
    return {key: int(value) for key, value in (item.split("=") for item in line.split())}


def processor_time(pid):
    """Seconds that all threads of a process have used; of threads that ended, nothing."""
    total = 0
    for task in os.listdir(f"/proc/{pid}/task"):
        try:
            with open(f"/proc/{pid}/task/{task}/schedstat", encoding="ascii") as file:
                total += int(file.read().split()[0])
        except (FileNotFoundError, ProcessLookupError):
            continue  # the thread has ended since
    return total / 1e9


def resident(pid):
    """MiB of memory."""
    with open(f"/proc/{pid}/status", encoding="utf-8") as status:
        return int(next(line for line in status if line.startswith("VmRSS")).split()[1]) / 1024


def wake_ups(pid):
    """How often a thread of it has stopped waiting for something."""
    total = 0
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/status", encoding="utf-8") as status:
            total += int(next(line for line in status if line.startswith("voluntary_ctxt")).split()[1])
    return total
