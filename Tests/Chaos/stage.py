# SPDX-FileCopyrightText: The Carillon authors
# SPDX-License-Identifier: Apache-2.0
"""One run: a bus, the well-behaved, the hostile by a plan that a seed makes, and somebody who kills the service."""

import collections
import os
import random
import signal
import subprocess
import sys

from gi.repository import Gio, GLib

import buses
from contract import (
    BUS_NAME, DBUS, DBUS_PATH, END, INTERFACE, LOAD_PATIENCE, NAMES, OBJECT_PATH, PATIENCE, PROPERTIES,
    START_PATIENCE, now
)
from hostile.files import remove_configuration
from watch import Process, Samples, descriptor_count, resident_bytes

HERE = os.path.dirname(os.path.abspath(__file__))

OBSERVERS = 5
POSTERS = 4
STYLES = 3

#: Smaller than the standard ones, so that a run reaches them, and so that all that waits can be kept on disk.
CONFIGURATION = """
[Limits]
observer-bytes=33554432
observer-bytes-per-client=8388608
queued-bytes=33554432
queued-bytes-per-client=16777216
queued-post-bytes=16777216
queued-post-bytes-per-client=8388608
answer-bytes=16777216
answer-bytes-per-client=4194304
in-flight-bytes=16777216
state-bytes=268435456
"""

#: A kind of hostile client that acts from one moment, in seconds from the beginning of the load, to another.
Bout = collections.namedtuple("Bout", "start end kind seed")


def plan(seed, seconds, kinds, kill_every):
    """The bouts and the moments of the kills. Every kind has its turn before one has another."""
    chance = random.Random(f"{seed} plan")
    bouts = []
    remaining = []
    for slot in range(3):
        moment = 0.5 + slot * 0.4
        while moment < seconds - 1.5 and kinds:
            if not remaining:
                remaining = chance.sample(kinds, len(kinds))
            end = min(moment + chance.uniform(2, 6), seconds)
            bouts.append(Bout(moment, end, remaining.pop(), chance.randrange(10**6)))
            moment = end + chance.uniform(0, 1.5)
    kills = []
    moment = 3.0
    while kill_every and (moment := moment + chance.uniform(0.2, 1.8) * kill_every) < seconds:
        kills.append(moment)
    return sorted(bouts), kills


class Failure(Exception):
    """The run can't go on."""


class Actor:
    """A process of a well-behaved client."""

    def __init__(self, stage, name, program, *arguments):
        self.name = name
        self.records = os.path.join(stage.directory, f"{name}.records")
        self.said = []
        self.process = subprocess.Popen(
            [sys.executable, "-B", os.path.join(HERE, program), *arguments], env=stage.bus.environment,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stage.errors, text=True, start_new_session=True,
        )
        channel = GLib.IOChannel.unix_new(self.process.stdout.fileno())
        stage.add(self)
        self._watch = GLib.io_add_watch(channel, GLib.PRIORITY_DEFAULT, GLib.IO_IN | GLib.IO_HUP, self._hears)

    def _hears(self, channel, _condition):
        line = channel.readline()
        if not line:
            return GLib.SOURCE_REMOVE
        self.said.append(line.strip())
        return GLib.SOURCE_CONTINUE

    def order(self, text):
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()

    def has_said(self, word):
        return any(line.split()[0] == word for line in self.said)


class Stage:
    #: Seconds between two samples of the service's waits for a processor, and of its sizes.
    delay_interval = 0.1
    size_interval = 0.5

    def __init__(self, kind, seed, seconds, scale, executables, directory, kinds, kill_every):
        self.kind = kind
        self.seed = seed
        self.seconds = seconds
        self.scale = scale
        self.directory = directory
        self.executables = executables
        self.bouts, self.planned_kills = plan(seed, seconds, kinds, kill_every)
        #: What broke while the run went on: pairs of time and text. The judge adds what the records show.
        self.broken = []
        #: (time of the kill, or of the beginning; time when the name had an owner again or None; the service's pid)
        self.lives = []
        self.kills = []
        self.service = None
        self.began = None
        self.ended = None
        self.base = None
        self.final = (None, None)
        self._context = GLib.MainContext.default()
        self._hostile = {}
        self._actors = []
        self.command = None

    def note(self, text):
        """Notes that something broke at this moment."""
        self.broken.append((now(), text))

    # The loop

    def iterate(self, seconds):
        """Runs the loop for that time at most, or until something happened."""
        timer = GLib.timeout_add(max(1, round(seconds * 1000)), lambda: GLib.SOURCE_REMOVE)
        self._context.iteration(True)
        if self._context.find_source_by_id(timer) is not None:
            GLib.source_remove(timer)
        self._look()

    def wait_until(self, condition, what, seconds=PATIENCE):
        """Runs the loop until the condition holds. False, and something broke, when it does not in time."""
        deadline = now() + seconds
        while not condition():
            if now() > deadline:
                self.note(f"not within {seconds} s: {what}; bus and service said last:\n{self.bus.log_tail(30)}")
                return False
            self.iterate(0.05)
        return True

    def call(self, method, arguments=None, destination=BUS_NAME, path=OBJECT_PATH, interface=INTERFACE, seconds=30):
        """Calls a method while the loop goes on. Returns its values, or None after an error."""
        answers = []

        def answered(connection, result):
            try:
                answers.append(connection.call_finish(result).unpack())
            except GLib.Error:
                answers.append(None)

        self.connection.call(
            destination, path, interface, method, arguments, None, Gio.DBusCallFlags.NONE, round(seconds * 1000), None,
            answered,
        )
        while not answers:
            self.iterate(0.05)
        return answers[0]

    # Beginning and end

    def start(self):
        configuration = os.path.join(self.directory, "system", "carillon")
        os.makedirs(configuration)
        with open(os.path.join(configuration, "carillon.conf"), "w", encoding="utf-8") as file:
            file.write(CONFIGURATION)
        self.open_bus()
        self.observers = [
            Actor(self, f"observer{number}", "observer.py", self._records(f"observer{number}"), str(number), self.seed)
            for number in range(OBSERVERS)
        ]
        self.bystander = Actor(self, "bystander", "prober.py", "--bystander", self._records("bystander"))
        self.wait_until_ready([*self.observers, self.bystander])
        self._start_command()
        self.base = (resident_bytes(self.service.pid), descriptor_count(self.service.pid))
        self.posters = [
            Actor(self, f"poster{number}", "poster.py", self._records(f"poster{number}"), str(number), self.seed, "40")
            for number in range(POSTERS)
        ]
        self.prober = Actor(self, "prober", "prober.py", self._records("prober"))
        self.wait_until_ready([*self.posters, self.prober])

    def open_bus(self):
        """Starts the bus, and a connection that sees the service come and go."""
        self.bus = buses.Bus(self.kind, self.directory, self.executables["carillond"])
        self.errors = open(os.path.join(self.directory, "errors"), "ab")  # noqa: SIM115
        self.samples = Samples(self.bus.pid)
        self._sampled = self._sized = 0.0
        self.connection = Gio.DBusConnection.new_for_address_sync(
            self.bus.address,
            Gio.DBusConnectionFlags.AUTHENTICATION_CLIENT | Gio.DBusConnectionFlags.MESSAGE_BUS_CONNECTION, None, None,
        )
        self.connection.signal_subscribe(
            DBUS, DBUS, "NameOwnerChanged", DBUS_PATH, BUS_NAME, Gio.DBusSignalFlags.NONE, self._owner_changed
        )

    def add(self, actor):
        """Has the actor ended with the rest."""
        self._actors.append(actor)

    def _records(self, name):
        return os.path.join(self.directory, f"{name}.records")

    def wait_until_ready(self, actors):
        def missing():
            return [actor.name for actor in actors if not actor.has_said("ready")]

        if not self.wait_until(lambda: not missing(), "all clients are ready", START_PATIENCE):
            self.note(f"not ready: {', '.join(missing())}")
            raise Failure("the run could not begin")

    def _start_command(self):
        """`carillon observe`, which is the package's own client."""
        self.command_records = self._records("command")
        with open(self.command_records, "wb") as output:
            self.command = subprocess.Popen(
                [self.executables["carillon"], "observe", "--json", *NAMES, END], env=self.bus.environment,
                stdin=subprocess.DEVNULL, stdout=output, stderr=self.errors, start_new_session=True,
            )
        if not self.wait_until(self._command_is_registered, "carillon observe is ready", START_PATIENCE):
            raise Failure("the run could not begin")

    def _command_is_registered(self):
        """Whether the center lists all observers of the command."""
        clients = (self.call("ListClients") or ([],))[0]
        for client in clients:
            if client.get("pid") == self.command.pid and client["observers"] == len(NAMES) + 1:
                self.command_name = client["name"]
                return True
        return False

    def end_actors(self):
        """Ends the well-behaved clients, whose records are then complete."""
        for process, _ in self._hostile.values():
            buses.end(process)
        self._hostile.clear()
        for actor in self._actors:
            try:
                actor.order("end")
                actor.process.wait(PATIENCE)
            except (OSError, subprocess.TimeoutExpired) as problem:
                self.note(f"{actor.name} did not end well: {problem}")
                buses.end(actor.process)
            if actor.process.returncode != 0:
                self.note(f"{actor.name} ended with {actor.process.returncode}")
        self._actors.clear()
        if self.command:
            self.command.send_signal(signal.SIGINT)
            self.command.wait(PATIENCE)
            self.command = None

    def stop(self):
        """Ends everything, whatever happened before."""
        self.end_actors()
        self.connection.close_sync(None)
        self.bus.stop()
        self.errors.close()

    # The service

    def _owner_changed(self, _connection, sender, _path, _interface, _signal, parameters):
        _, _, owner = parameters.unpack()
        if sender != DBUS or not owner:
            return
        moment = now()
        try:
            pid = self.connection.call_sync(
                DBUS, DBUS_PATH, DBUS, "GetConnectionUnixProcessID", GLib.Variant("(s)", (owner,)), None,
                Gio.DBusCallFlags.NONE, PATIENCE * 1000, None,
            ).unpack()[0]
        except GLib.Error:
            return  # it is gone already
        if self.service and self.service.pid == pid:
            self.broken.append((moment, f"the bus closed the service's connection; it is {owner} now"))
            return
        self._look()
        try:
            self.service = Process(pid)
        except ProcessLookupError:
            return
        self.lives.append((moment, owner, pid))

    def _look(self):
        """Samples what is due, and sees whether the service ended."""
        moment = now()
        if self.service and self.service.has_ended():
            pid = self.service.pid
            self.service.close()
            self.service = None
            if pid not in [killed for _, killed in self.kills]:
                self.broken.append((moment, f"the service, process {pid}, ended, and nobody had killed it"))
        if moment - self._sampled > self.delay_interval:
            self._sampled = moment
            self.samples.take_delays(self.service and self.service.pid)
        if moment - self._sized > self.size_interval:
            self._sized = moment
            self.samples.take_sizes(self.service and self.service.pid)

    def kill(self):
        """Kills the service, if it is there at this moment."""
        if self.service:
            self.kills.append((now(), self.service.pid))
            os.kill(self.service.pid, signal.SIGKILL)

    # The load

    def play(self):
        """Carries out the plan."""
        self.began = now()
        # The command first: GDBus believes an answer whoever sends it, as long as the number is right.
        victims = [self.command_name]
        victims += [actor.said[0].split()[1] for actor in [*self.observers, *self.posters, self.prober]]
        events = [(bout.start, 0, bout) for bout in self.bouts] + [(bout.end, 1, bout) for bout in self.bouts]
        events += [(moment, 2, None) for moment in self.planned_kills]
        events.sort(key=lambda event: event[:2])
        for moment, what, bout in events:
            while now() - self.began < moment:
                self.iterate(min(0.1, max(0.001, moment - (now() - self.began))))
            if what == 0:
                self._hostile[bout] = (self._begin(bout, victims), bout)
            elif what == 1:
                buses.end(self._hostile.pop(bout)[0])
                self._clean_up(bout)
            else:
                self.kill()
        while now() - self.began < self.seconds:
            self.iterate(0.1)
        self.ended = now()

    def _begin(self, bout, victims):
        arguments = [bout.kind, str(bout.seed), str(bout.end - bout.start), str(self.scale), *victims]
        return subprocess.Popen(
            [sys.executable, "-B", os.path.join(HERE, "hostile_client.py"), *arguments], env=self.bus.environment,
            stdin=subprocess.DEVNULL, stdout=self.errors, stderr=self.errors, start_new_session=True,
        )

    def _clean_up(self, bout):
        """A hostile client that was killed leaves no files behind that are its own doing."""
        if bout.kind == "configuration":
            remove_configuration(self.bus.environment)
            self.connection.call(
                BUS_NAME, OBJECT_PATH, INTERFACE, "ReloadConfiguration", None, None, Gio.DBusCallFlags.NONE, -1, None,
                None,
            )

    def settle(self):
        """Has the posters end, and the observers get all that is due to them."""
        for poster in self.posters:
            poster.order("stop")
        if not self.wait_until(
            lambda: all(poster.has_said("stopped") for poster in self.posters), "the last answers", LOAD_PATIENCE
        ):
            raise Failure("the center does not answer after the load")
        for observer in self.observers:
            observer.order(f"settle {POSTERS * STYLES}")
        self.wait_until(
            lambda: all(observer.has_said("settled") for observer in self.observers), "observers got the last posts",
            LOAD_PATIENCE,
        )
        self.wait_until(self._command_has_all, "carillon observe got the last posts", LOAD_PATIENCE)
        self.wait_until(self._command_is_registered, "the registrations of carillon observe are there")

    def _command_has_all(self):
        with open(self._records("command"), "rb") as file:
            return file.read().count(f'"name": "{END}"'.encode()) >= POSTERS * STYLES

    def rest(self, slack_bytes, slack_descriptors, seconds=30):
        """Waits until the service is as small as it was, or for that time."""
        deadline = now() + seconds
        while True:
            pid = self.service and self.service.pid
            self.final = (pid and resident_bytes(pid), pid and descriptor_count(pid))
            small = all(self.final) and (
                self.final[0] <= self.base[0] + slack_bytes and self.final[1] <= self.base[1] + slack_descriptors
            )
            if small or now() > deadline:
                return
            self.iterate(0.2)

    def statistics(self):
        """The service's own counters."""
        return (self.call("GetAll", GLib.Variant("(s)", (INTERFACE,)), interface=PROPERTIES) or ({},))[0].get(
            "Statistics", {})
