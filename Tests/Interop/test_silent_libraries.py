# SPDX-FileCopyrightText: The Carillon authors
# SPDX-License-Identifier: Apache-2.0
"""Observers whose D-Bus library never answers Peer.Ping, as it comes from the distribution (B6).

The programs are in `silent`. Each takes a name to observe, and prints `ready` with its unique name; then, when the
notification with the object "end" has come, `received=N dropped=N faults=N`, where a fault is a hole in the sequence
that was not announced, or an object that is not the next number.

With CARILLON_RATES set, how many notifications a second each received is printed.
"""

import os
import select
import subprocess
import sys
import time

import carillon_interop
from carillon_interop import go_on, stop, wait_until, write_file

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "silent")

#: More than ten times what may be on its way without an answer.
MANY = int(os.environ.get("CARILLON_RATES") or 2000)

#: What may be on its way without an answer, twice, and the window that may pass while nothing is known.
MOST_ON_ITS_WAY = 2 * 128 + 64


def library(name, program, *arguments):
    return (name, [program, *arguments])


LIBRARIES = [
    library("ruby-dbus", "ruby", f"{HERE}/observe.rb"),
    library("Emacs", "emacs", "--batch", "--quick", "--load", f"{HERE}/observe.el"),
    library("jeepney", sys.executable, "-B", f"{HERE}/observe_jeepney.py"),
    library("libdbus without a dispatcher", sys.executable, "-B", f"{HERE}/observe_libdbus.py"),
]


class Observer:
    """One of the programs, registered."""

    def __init__(self, command, name, *arguments):
        # It ends with this process, however that ends.
        command = ["setpriv", "--pdeathsig", "KILL", *command, name, *arguments]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, bufsize=0)
        self.unique_name = self.next_line("ready").split()[1]

    @property
    def pid(self):
        return self.process.pid

    def next_line(self, beginning):
        """The next line, which has to begin like this."""
        line = b""
        deadline = time.monotonic() + carillon_interop.PATIENCE
        while not line.endswith(b"\n"):
            if not select.select([self.process.stdout], [], [], max(0, deadline - time.monotonic()))[0]:
                raise AssertionError(f"{self.process.args} did not say '{beginning}' in time, only {line}")
            byte = self.process.stdout.read(1)
            if not byte:
                raise AssertionError(f"{self.process.args} ended: {line}")
            line += byte
        if not line.startswith(beginning.encode()):
            raise AssertionError(f"{self.process.args} said {line} and not '{beginning}'")
        return line.decode()

    def report(self):
        """What it counted up to the end of the load."""
        words = self.next_line("received=").split()
        return {key: int(value) for key, value in (word.split("=") for word in words)}

    def close(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


class SilentLibraries(carillon_interop.TestCase):
    def observer(self, command, *arguments):
        observer = Observer(command, self.name, *arguments)
        self.addCleanup(observer.close)
        return observer

    def status(self, observer):
        entry = self.control.list_clients()[observer.unique_name]
        return {key: value.unpack() for key, value in entry.items()}

    def post(self, *objects):
        """Posts, at the pace at which the service answers."""
        for number, object_ in enumerate(objects):
            self.control.post_without_reply(self.name, str(object_))
            if number % 64 == 63:
                self.control.ping()

    def wait_until_read(self, observer):
        wait_until(lambda: self.status(observer)["queued"] == 0, "nothing waits for it", carillon_interop.PATIENCE)

    def test_one_that_reads_receives_everything(self):
        """B6: many times what may be on its way, in order, though it never answered."""
        for name, command in LIBRARIES:
            with self.subTest(library=name):
                self.name = carillon_interop.fresh_name()
                observer = self.observer(command)
                started = time.monotonic()
                self.post(*range(MANY), "end")
                self.assertEqual(observer.report(), {"received": MANY, "dropped": 0, "faults": 0})
                seconds = time.monotonic() - started
                if "CARILLON_RATES" in os.environ:
                    print(f"rate: {name}: {MANY / seconds:.0f}/s", file=sys.stderr)
                # It really is one that never answers.
                self.assertEqual(self.status(observer)["flow"], "unanswered")
                observer.close()

    def test_one_that_stops_is_bounded_and_told(self):
        """B6, A4, S4: then it gets what was kept, and knows what was not."""
        path = os.path.join(os.environ["XDG_CONFIG_HOME"], "carillon", "carillon.conf")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        write_file(path, "[Limits]\nqueued-per-client=200\n")
        self.control.call("ReloadConfiguration")
        self.addCleanup(self.control.call, "ReloadConfiguration")
        self.addCleanup(os.remove, path)
        for name, command in LIBRARIES:
            with self.subTest(library=name):
                self.name = carillon_interop.fresh_name()
                observer = self.observer(command)
                # At first it reads, at its pace, and is known for one that does not answer.
                for start in range(0, 300, 100):
                    self.post(*range(start, start + 100))
                    self.wait_until_read(observer)
                self.assertEqual(self.status(observer)["dropped"], 0)
                stop(observer.pid)
                self.post(*range(300, 2000))
                status = self.status(observer)
                self.assertEqual((status["flow"], status["queued"]), ("unanswered", 200))
                self.assertLessEqual(status["unconfirmed"], MOST_ON_ITS_WAY)
                self.assertEqual(status["delivered"] + status["dropped"] + status["queued"], 2000)
                self.assertGreater(status["dropped"], 1000)
                go_on(observer.pid)
                self.wait_until_read(observer)
                self.post("end")
                self.assertEqual(
                    observer.report(),
                    {"received": 2000 - status["dropped"], "dropped": status["dropped"], "faults": 0},
                )
                observer.close()

    def test_another_connection_of_its_process_that_is_not_read(self):
        """B6: there lies the news of its name, which the bus sends to each connection, and tells nothing of others."""
        command = LIBRARIES[-1][1]
        observer = self.observer(command, "spare")
        self.post(*range(MANY), "end")
        self.assertEqual(observer.report(), {"received": MANY, "dropped": 0, "faults": 0})
        self.assertEqual(self.status(observer)["flow"], "unanswered")


def is_missing(command):
    """Whether the program, or its library, is not installed."""
    checks = {
        "ruby": ["ruby", "-e", "require 'dbus'"],
        "emacs": ["emacs", "--batch", "--eval", "(or (featurep 'dbusbind) (kill-emacs 1))"],
        sys.executable: [sys.executable, "-c", "import jeepney"],
    }
    try:
        return subprocess.run(checks[command[0]], stderr=subprocess.DEVNULL, check=False).returncode != 0
    except FileNotFoundError:
        return True


if __name__ == "__main__":
    if missing := [name for name, command in LIBRARIES if is_missing(command)]:
        print(f"cannot run: no {', '.join(missing)} (needs ruby-dbus, emacs-nox, python3-jeepney)", file=sys.stderr)
        sys.exit(carillon_interop.CANNOT_RUN)
    carillon_interop.main()
