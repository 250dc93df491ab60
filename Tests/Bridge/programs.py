# SPDX-FileCopyrightText: The Carillon authors
# SPDX-License-Identifier: Apache-2.0
"""Programs of the lab: each has its output in a file, and is ended by its id. And waiting, always with a bound."""

import contextlib
import json
import os
import signal
import subprocess
import time

#: Seconds that one wait may take. Only what fails waits for so long, and a busy machine must not make it fail.
PATIENCE = 60


class LabError(Exception):
    """Something of the lab did not do what it is there for."""


def wait_until(condition, what, seconds=PATIENCE):
    """Waits until the condition holds, and returns what it returned. `what` is text, or a function that gives it."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() >= deadline:
            raise AssertionError(f"not within {seconds} s: {what() if callable(what) else what}")
        time.sleep(0.02)


class Program:
    """A process in the background."""

    def __init__(self, name, command, environment, log, takes_input=False, output=None):
        self.name = name
        self.log = log
        self.output = output or log
        with contextlib.ExitStack() as files:
            stderr = files.enter_context(open(log, "ab"))
            stdout = files.enter_context(open(output, "ab")) if output else stderr
            self.process = subprocess.Popen(
                [str(word) for word in command], env=environment, stdout=stdout, stderr=stderr,
                stdin=subprocess.PIPE if takes_input else subprocess.DEVNULL, start_new_session=True,
            )
        self.pid = self.process.pid

    @property
    def is_running(self):
        return self.process.poll() is None

    def text(self):
        """What it has said so far."""
        with open(self.log, encoding="utf-8", errors="replace") as file:
            return file.read()

    def wait_for(self, text, seconds=PATIENCE):
        """Waits until it has said this."""

        def said():
            if text in self.text():
                return True
            if not self.is_running:
                raise LabError(f"{self.name} ended with {self.process.returncode} before it said {text!r}:\n{self.tail()}")
            return False

        wait_until(said, lambda: f"{self.name} says {text!r}; it said\n{self.tail()}", seconds)

    def wait(self, seconds=PATIENCE):
        """Waits for its end, and returns its status."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} does not end within {seconds} s:\n{self.tail()}") from None

    def tail(self, lines=20):
        return "\n".join(self.text().splitlines()[-lines:])

    def send(self, text):
        """Writes to its standard input."""
        self.process.stdin.write(text.encode())
        self.process.stdin.flush()

    def close_input(self):
        self.process.stdin.close()

    def send_signal(self, number):
        if self.is_running:
            self.process.send_signal(number)

    def freeze(self):
        """Stops it, and returns when all of its threads have stopped."""
        self.send_signal(signal.SIGSTOP)
        wait_until(lambda: all(state == "T" for state in thread_states(self.pid)), f"{self.name} has stopped")

    def thaw(self):
        self.send_signal(signal.SIGCONT)

    def kill(self):
        """Ends it as a crash would."""
        self.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self, number=signal.SIGTERM, seconds=15):
        """Asks it to end, and makes it. Returns its status."""
        self.thaw()
        self.send_signal(number)
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
        if self.process.stdin and not self.process.stdin.closed:
            with contextlib.suppress(OSError):
                self.process.stdin.close()
        return self.process.returncode


class Lines:
    """Reads the lines of a growing file, each once."""

    def __init__(self, path):
        self.path = path
        self._offset = 0
        self._rest = b""

    def take(self):
        try:
            with open(self.path, "rb") as file:
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return []
        self._offset += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [line.decode("utf-8", "replace") for line in lines]


class JSONProgram(Program):
    """One that prints a JSON object a line."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self._lines = Lines(self.output)
        self._objects = []

    @property
    def objects(self):
        self._objects += [json.loads(line) for line in self._lines.take() if line.startswith("{")]
        return self._objects


def thread_states(pid):
    """The state of each thread, as the kernel shows it."""
    states = []
    for thread in os.listdir(f"/proc/{pid}/task"):
        with contextlib.suppress(FileNotFoundError), open(f"/proc/{pid}/task/{thread}/stat", encoding="utf-8") as file:
            states.append(file.read().rpartition(")")[2].split()[0])
    return states


def wake_ups(pid):
    """How often a thread of it has stopped waiting for something."""
    total = 0
    for thread in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{thread}/status", encoding="utf-8") as file:
            total += int(next(line for line in file if line.startswith("voluntary_ctxt")).split()[1])
    return total
