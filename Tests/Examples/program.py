# SPDX-License-Identifier: Apache-2.0
"""Programs that run while GLib's main loop does, which is what a bus of ours needs to start the service."""

import fcntl
import os
import signal
import subprocess
import time

from gi.repository import GLib

from contract import PATIENCE, START_PATIENCE

context = GLib.MainContext.default()


class Failure(Exception):
    """Something that must hold does not."""


def wait_until(condition, what, seconds=PATIENCE):
    """Runs the main loop until the condition holds, and gives what it gave. `what` is text, or gives it."""
    deadline = time.monotonic() + seconds
    while not (result := condition()):
        if time.monotonic() >= deadline:
            raise Failure(f"not within {seconds} s: {what() if callable(what) else what}")
        # A blocking iteration that the timer ends if nothing else does: what other processes do wakes nobody here.
        timer = GLib.timeout_add(20, lambda: GLib.SOURCE_REMOVE)
        context.iteration(True)
        if context.find_source_by_id(timer) is not None:
            GLib.source_remove(timer)
    return result


class Program:
    """A command of the shell in a process group of its own, and the lines that it prints."""

    def __init__(self, command, directory, environment):
        self.command = command
        self.lines = []
        self._rest = {}
        self.errors = []
        # It ends with this process, however that ends.
        self.process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "bash", "-c", command], cwd=directory, env=environment,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        )
        self._open = 2
        for stream, lines in ((self.process.stdout, self.lines), (self.process.stderr, self.errors)):
            fcntl.fcntl(stream, fcntl.F_SETFL, fcntl.fcntl(stream, fcntl.F_GETFL) | os.O_NONBLOCK)
            condition = GLib.IO_IN | GLib.IO_HUP | GLib.IO_ERR
            GLib.unix_fd_add_full(GLib.PRIORITY_DEFAULT, stream.fileno(), condition, self._hears, lines)

    def _hears(self, descriptor, _condition, lines):
        try:
            data = os.read(descriptor, 65536)
        except BlockingIOError:
            return GLib.SOURCE_CONTINUE
        *complete, rest = (self._rest.get(descriptor, b"") + data).split(b"\n")
        if not data and rest:
            complete.append(rest)
        self._rest[descriptor] = rest
        lines.extend(line.decode(errors="replace") for line in complete)
        if data:
            return GLib.SOURCE_CONTINUE
        self._open -= 1
        return GLib.SOURCE_REMOVE

    def wait_for_line(self, line, start=0):
        """The index of that line among those it printed, from `start` on."""
        def found():
            if line in self.lines[start:]:
                return True
            if self.process.poll() is not None and not self._open:
                raise Failure(
                    f"'{self.command}' ended with {self.process.returncode} and not with the line '{line}': "
                    f"{self.errors[-5:]}"
                )
            return False

        # Of one that has said nothing yet the start is waited for as well.
        patience = PATIENCE if self.lines else START_PATIENCE
        wait_until(
            found, lambda: f"'{self.command}' says '{line}'; it said {self.lines[start:][-5:]}, {self.errors[-5:]}",
            patience,
        )
        return self.lines.index(line, start)

    def wait_for_end(self):
        """Its exit status."""
        wait_until(
            lambda: self.process.poll() is not None and not self._open,
            lambda: f"'{self.command}' ends; it said {self.lines[-5:]}, {self.errors[-5:]}", START_PATIENCE,
        )
        return self.process.returncode

    def _members(self):
        """Its processes, and those that they started."""
        for entry in os.listdir("/proc"):
            if entry.isdigit():
                try:
                    if os.getpgid(int(entry)) == self.process.pid:
                        yield int(entry)
                except ProcessLookupError:
                    pass

    def stop(self):
        """Stops it, and returns when all of it has stopped: kill returns before."""
        os.killpg(self.process.pid, signal.SIGSTOP)
        wait_until(lambda: all(map(is_stopped, self._members())), f"'{self.command}' has stopped")

    def go_on(self):
        os.killpg(self.process.pid, signal.SIGCONT)

    def end(self):
        """Kills what is left of it."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        wait_until(lambda: not self._open, f"the output of '{self.command}' ends")
        self.process.stdout.close()
        self.process.stderr.close()


def is_stopped(pid):
    """Whether no thread of the process runs any more, because of SIGSTOP or as it has ended."""
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/stat", encoding="utf-8") as file:
                # The state stands behind the name, which is in parentheses.
                if file.read().rpartition(")")[2].split()[0] not in "TZX":
                    return False
    except (FileNotFoundError, ProcessLookupError):
        pass
    return True
