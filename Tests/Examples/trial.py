# SPDX-License-Identifier: Apache-2.0
"""What is asked of an example, on one bus.

In this order; a key in parentheses is what its README.md may declare that it can't do (readme.py):

1. Without a bus, and on one that can't start the service (no-service), observer and poster end with one line on
   standard error, to which a hint may be added, and a status other than 0.
2. The observer says `observing com.example.Saved`; the poster says `reached 1` (registers: 0), the observer prints the
   notification, and an observer of ours gets exactly these types and values. So again for another object and an integer
   that no double holds (large-integers).
3. What the service refuses the poster tells by the name of the error (error-name), with status 1.
4. A notification that somebody else than the service sends to the observer is not printed (forged).
5. The service is killed. The observer has it started again, says `observing` once more, gets what is retained or
   not, and then what is posted exactly once; it is registered once (restart).
6. The observer is stopped, and more is posted than queues hold. When it goes on, what it printed and what it said to be
   lost is all, in order (lost).
7. Another observer gets what is retained (retained).
8. An observer of another name gets that and nothing else.

There is nobody but the observer to have the service started: this process only calls it when it is there, unless the
observer is none.
"""

import os
import shlex
import signal

from gi.repository import Gio, GLib

import buses
from contract import BUS_NAME, DBUS, DBUS_PATH, INTERFACE, OBJECT_PATH, PATIENCE
from program import Failure, Program, wait_until

NAME = "com.example.Saved"
OTHER = "com.example.Other"
TITLE = "Annual report — 2026"

#: 2^53 + 1, the first that a double does not hold.
LARGE = 9007199254740993

#: As little as an observer that is stopped soon exceeds, and a poster by its first argument.
CONFIGURATION = "[Limits]\nqueued-per-client=100\nobject-length=100\n"

#: More than what may be on its way to who never answers (five windows of 64), and the queue, together.
FLOOD = 1000


class Trial:
    def __init__(self, readme, folder, kind, binaries, directory):
        self.readme = readme
        self.folder = folder
        self.kind = kind
        self.binaries = binaries
        self.directory = directory
        self.bus = None
        self.connection = None
        self.programs = []
        self.environment = None
        #: The lines for what is retained, in the order of posting.
        self.values = []

    def run(self):
        try:
            self._without_a_bus()
            if "no-service" not in self.readme.cannot:
                self._without_a_service()
            self._start_bus(os.path.join(self.binaries, "carillond"))
            observer = self._observer()
            if "registers" in self.readme.cannot:
                self._start_service()
            self._deliver(observer)
            self._refuse()
            if "registers" not in self.readme.cannot:
                for key, check in (
                    ("forged", self._forge), ("restart", self._restart), ("lost", self._lose),
                    ("retained", self._retain),
                ):
                    if key not in self.readme.cannot:
                        check(observer)
            self._other_name()
        finally:
            self._stop()

    def report(self):
        """What the programs said, for a failure."""
        # Those that are observed by what comes later, and the last ones.
        observers = [program for program in self.programs[:-3] if program.command.startswith(self.readme.observer)]
        for program in [*observers[-2:], *self.programs[-3:]]:
            yield f"$ {program.command}    (status {program.process.returncode})"
            yield from (f"    {line}" for line in program.lines[-12:])
            yield from (f"    standard error: {line}" for line in program.errors[-30:])
        if self.bus:
            yield "the end of the log of bus and service:"
            yield from (f"    {line}" for line in self.bus.log_tail(30).splitlines())

    # The checks

    def _without_a_bus(self):
        environment = self._with_binaries(buses.environment_in(os.path.join(self.directory, "no-bus")))
        environment["DBUS_SESSION_BUS_ADDRESS"] = f"unix:path={self.directory}/no-bus/bus"
        self._expect_failures(environment, "without a bus")

    def _without_a_service(self):
        self._start_bus("/bin/false")
        self._expect_failures(self.environment, "without a service")
        self._stop()

    def _expect_failures(self, environment, when):
        for command in (self.readme.observer, self.readme.poster):
            program = self._program(command, environment=environment)
            if program.wait_for_end() == 0:
                raise Failure(f"'{command}' ends with status 0 {when}")
            said = [line for line in program.errors if line.strip()]
            if not 1 <= len(said) <= 2 or program.process.returncode in (126, 127):
                raise Failure(f"'{command}' says {said} {when}, which is not a line that tells why, and perhaps a hint")
            if program.lines:
                raise Failure(f"'{command}' prints {program.lines} {when}")

    def _deliver(self, observer):
        reference = Reference(self.bus.address)
        try:
            self._post(observer, "report.txt", 4711, "report.txt's poster", arguments=())
            self._check_types(reference, "report.txt", 4711)
            if "large-integers" not in self.readme.cannot:
                self._post(observer, "large.txt", LARGE, "an integer beyond 2^53")
                self._check_types(reference, "large.txt", LARGE)
        finally:
            reference.close()

    def _post(self, observer, object_, size, what, arguments=None):
        """Has the poster post, and the observer print that next."""
        start = len(observer.lines)
        poster = self._program(self.readme.poster, *((object_, str(size)) if arguments is None else arguments))
        status = poster.wait_for_end()
        reached = ["reached 0" if "registers" in self.readme.cannot else "reached 1"]
        if (status, poster.lines) != (0, reached):
            raise Failure(f"{what}: the poster ends with status {status} and says {poster.lines} instead of {reached}")
        line = f"{NAME} {object_} bytes={size} clean=true title={TITLE}"
        observer.wait_for_line(line, start)
        if observer.lines[start:] != [line]:
            raise Failure(f"{what}: the observer prints {observer.lines[start:]} instead of '{line}'")
        self.values.append(line)

    def _check_types(self, reference, object_, size):
        wanted = {
            "bytes": GLib.Variant("x", size), "clean": GLib.Variant("b", True), "title": GLib.Variant("s", TITLE),
        }
        name, got_object, user_info = reference.next()
        wanted = GLib.Variant("(ssa{sv})", (NAME, object_, wanted))
        # Entries of a dictionary have no order.
        got = GLib.Variant("(ssa{sv})", (name, got_object, dict(sorted(user_info.items()))))
        if not got.equal(wanted):
            raise Failure(f"the poster posts {got.print_(True)} instead of {wanted.print_(True)}")

    def _refuse(self):
        poster = self._program(self.readme.poster, "x" * 101)
        status = poster.wait_for_end()
        said = "\n".join(poster.errors)
        if status != 1 or poster.lines:
            raise Failure(f"a poster that is refused ends with status {status} and prints {poster.lines}")
        wanted = ["object-length"]
        if "error-name" not in self.readme.cannot:
            wanted.append("org.carillon.Error.LimitExceeded")
        for text in wanted:
            if text not in said:
                raise Failure(f"a poster that is refused says '{said}', without '{text}'")

    def _forge(self, observer):
        start = len(observer.lines)
        forged = GLib.Variant("(ssa{sv}atstt)", (NAME, "forged", {}, [1], ":1.1", 1, 1))
        for name in self._observing_clients():
            self.connection.emit_signal(name, OBJECT_PATH, INTERFACE, "Notification", forged)
        # The bus keeps the order: what comes of this comes behind the other.
        line = self._post_ourselves("genuine")
        observer.wait_for_line(line, start)
        if observer.lines[start:] != [line]:
            raise Failure(f"the observer believes a stranger: it prints {observer.lines[start:]}")

    def _restart(self, observer):
        start = len(observer.lines)
        os.kill(self._service_pid(), signal.SIGKILL)
        observing = f"observing {NAME}"
        observer.wait_for_line(observing, start)
        poster = self._program(self.readme.poster, "after.txt")
        if (poster.wait_for_end(), poster.lines) != (0, ["reached 1"]):
            raise Failure(f"after the service was killed the poster says {poster.lines}")
        after = f"{NAME} after.txt bytes=4711 clean=true title={TITLE}"
        last = self._post_ourselves("last")
        observer.wait_for_line(last, start)
        # What was on its way may be announced as lost, though it came.
        got = [line for line in observer.lines[start:] if not line.endswith(" (service-restarted)")]
        # Values that are retained may come before it says that it observes: it is busy with the answer until then.
        got.remove(observing)
        # Who registers anew gets what is retained once more, unless its library knows better.
        if got not in ([after, last], [*self.values, after, last]):
            raise Failure(f"after the service was killed the observer prints {got} instead of {[after, last]}")
        self.values.append(after)
        # The service remembers who was registered: without RemoveObservers there is one more with each restart.
        clients = self._observing_clients()
        if list(clients.values()) != [1]:
            raise Failure(f"after the service was killed the observer is registered {clients} times, and not once")

    def _lose(self, observer):
        start = len(observer.lines)
        observer.stop()
        lines = [self._post_ourselves(str(number)) for number in range(FLOOD)]
        lines.append(self._post_ourselves("end"))
        observer.go_on()
        observer.wait_for_line(lines[-1], start)
        got, lost = [], 0
        for line in observer.lines[start:]:
            if line.startswith("lost ") and line.endswith(" (queue-full)"):
                lost += int(line.split()[1])
            else:
                got.append(line)
        if lost == 0 or len(got) + lost != len(lines):
            raise Failure(f"of {len(lines)} the observer prints {len(got)}, and says that it lost {lost}")
        left = iter(lines)
        if not all(line in left for line in got):
            raise Failure(f"the observer prints what was not posted, or in another order: {got[:5]} …")

    def _retain(self, _observer):
        second = self._observer()
        last = self._post_ourselves("last of all")
        second.wait_for_line(last)
        second.lines.remove(f"observing {NAME}")
        if second.lines != [*self.values, last]:
            raise Failure(f"an observer that comes later prints {second.lines} instead of {[*self.values, last]}")

    def _other_name(self):
        observer = self._observer(OTHER)
        user_info = {
            "count": GLib.Variant("u", 7), "label": GLib.Variant("s", "ä ö"), "on": GLib.Variant("b", False),
            "ratio": GLib.Variant("d", 0.5), "start": GLib.Variant("n", -3),
        }
        self._post_ourselves("of another name")
        self._post_ourselves("room", OTHER, user_info)
        line = f"{OTHER} room count=7 label=ä ö on=false ratio=0.5 start=-3"
        observer.wait_for_line(line)
        if observer.lines[1:] != [line]:
            raise Failure(f"an observer of {OTHER} prints {observer.lines[1:]} instead of '{line}'")

    # What they need

    def _start_bus(self, executable):
        directory = os.path.join(self.directory, os.path.basename(executable))
        os.makedirs(os.path.join(directory, "config", "carillon"))
        with open(os.path.join(directory, "config", "carillon", "carillon.conf"), "w", encoding="utf-8") as file:
            file.write(CONFIGURATION)
        self.bus = buses.Bus(self.kind, directory, executable)
        self.environment = self._with_binaries(self.bus.environment)
        self.connection = connect(self.bus.address)

    def _start_service(self):
        # Without blocking: dbus-broker has us start what it activates.
        started = []
        self.connection.call(
            DBUS, DBUS_PATH, DBUS, "StartServiceByName", GLib.Variant("(su)", (BUS_NAME, 0)), None,
            Gio.DBusCallFlags.NONE, PATIENCE * 1000, None,
            lambda connection, result: started.append(connection.call_finish(result)),
        )
        wait_until(lambda: started, "the service starts")

    def _with_binaries(self, environment):
        # The package of Python is where a package of a distribution would have it.
        package = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python")
        return {**environment, "PATH": f"{self.binaries}:{environment['PATH']}", "PYTHONPATH": package}

    def _program(self, command, *arguments, environment=None):
        words = " ".join([command, *map(shlex.quote, arguments)])
        program = Program(words, self.folder, environment or self.environment)
        self.programs.append(program)
        return program

    def _observer(self, *arguments):
        observer = self._program(self.readme.observer, *arguments)
        observer.wait_for_line(f"observing {arguments[0] if arguments else NAME}")
        return observer

    def _call(self, destination, path, interface, method, arguments):
        reply = self.connection.call_sync(
            destination, path, interface, method, arguments, None, Gio.DBusCallFlags.NO_AUTO_START, PATIENCE * 1000,
            None,
        )
        return reply.unpack()

    def _post_ourselves(self, object_, name=NAME, user_info=None):
        """Posts something that is not retained, and gives the line for it."""
        arguments = GLib.Variant("(ssa{sv}a{sv})", (name, object_, user_info or {"clean": GLib.Variant("b", True)}, {}))
        self._call(BUS_NAME, OBJECT_PATH, INTERFACE, "Post", arguments)
        return f"{name} {object_} clean=true"

    def _observing_clients(self):
        (clients,) = self._call(BUS_NAME, OBJECT_PATH, INTERFACE, "ListClients", None)
        return {client["name"]: client["observers"] for client in clients if client["observers"] > 0}

    def _service_pid(self):
        name = GLib.Variant("(s)", (BUS_NAME,))
        (pid,) = self._call(DBUS, DBUS_PATH, DBUS, "GetConnectionUnixProcessID", name)
        return pid

    def _stop(self):
        if self.bus is None:
            return
        for program in self.programs:
            program.end()
        try:
            # Asked for last, as an observer has it started again.
            os.kill(self._service_pid(), signal.SIGKILL)
        except GLib.Error:
            pass  # there is none
        self.connection.close_sync()
        self.bus.stop()


class Reference:
    """An observer of ours, which sees exactly the D-Bus types. It looks on, so that it does not count as reached."""

    def __init__(self, address):
        self._received = []
        self._connection = connect(address)
        self._connection.signal_subscribe(
            BUS_NAME, INTERFACE, "Notification", OBJECT_PATH, None, Gio.DBusSignalFlags.NO_MATCH_RULE,
            lambda *arguments: self._received.append(arguments[5]),
        )
        options = {"monitor": GLib.Variant("b", True)}
        self._connection.call_sync(
            BUS_NAME, OBJECT_PATH, INTERFACE, "AddObserver", GLib.Variant("(ssa{sv})", (NAME, "", options)), None,
            Gio.DBusCallFlags.NO_AUTO_START, PATIENCE * 1000, None,
        )

    def next(self):
        """Name, object and userInfo, this with its values as they came, of the next notification."""
        wait_until(lambda: self._received, "the observer of the test gets the notification")
        arguments = self._received.pop(0)
        entries = arguments.get_child_value(2)
        user_info = {}
        for index in range(entries.n_children()):
            entry = entries.get_child_value(index)
            user_info[entry.get_child_value(0).get_string()] = entry.get_child_value(1).get_variant()
        return arguments.get_child_value(0).get_string(), arguments.get_child_value(1).get_string(), user_info

    def close(self):
        self._connection.close_sync()


def connect(address):
    flags = Gio.DBusConnectionFlags
    return Gio.DBusConnection.new_for_address_sync(
        address, flags.AUTHENTICATION_CLIENT | flags.MESSAGE_BUS_CONNECTION, None, None
    )
