# SPDX-FileCopyrightText: The Carillon authors
# SPDX-License-Identifier: Apache-2.0
"""A machine with a session: a bus of its own, the service, and the bridge."""

import json
import os
import shlex
import signal
import subprocess

import gvariant
from programs import PATIENCE, JSONProgram, LabError, Program, wait_until

SERVICE = "org.carillon.NotificationCenter1"
SERVICE_PATH = "/org/carillon/NotificationCenter1"
BRIDGE = "org.carillon.Bridge1"
BRIDGE_PATH = "/org/carillon/Bridge1"

#: What the bridge posts of its own in the session.
LOST = "org.carillon.Bridge.Lost"
HOST = "org.carillon.Bridge.Host"
CONNECTION = "org.carillon.Bridge.Connection"


class Host:
    """One machine. All that runs there is of one user."""

    def __init__(self, lab, name, user="anna", export="", imports="", settings=None, broker=None, machine=None,
                 certificate=None, service_settings="", system_bus=None):  # fmt: skip
        self.lab = lab
        self.name = name
        self.user = user
        self.broker = broker or lab.broker
        self.machine = machine or name
        if not machine:
            lab.network.add(name)
        self.directory = os.path.join(lab.directory, f"{self.machine}-{name}-{user}")
        self.runtime = os.path.join(self.directory, "runtime")
        self.configuration = os.path.join(self.directory, "config", "carillon")
        for directory in (self.runtime, self.configuration, os.path.join(self.directory, "home")):
            os.makedirs(directory, mode=0o700)
        self.settings = {
            "Broker": self._broker_settings(certificate),
            "Bridge": {"realm": "home", "host": name, "user": user, "export": export, "import": imports},
            "Limits": {},
        }
        for section, entries in (settings or {}).items():
            self.settings.setdefault(section, {}).update(entries)
        self.write_settings()
        with open(os.path.join(self.configuration, "carillon.conf"), "w", encoding="utf-8") as file:
            file.write(service_settings)
        self.bus = self.service = self.bridge = None
        self.environment = lab.environment() | {
            "HOME": os.path.join(self.directory, "home"), "XDG_RUNTIME_DIR": self.runtime,
            "XDG_CONFIG_HOME": os.path.dirname(self.configuration),
            "XDG_CONFIG_DIRS": os.path.join(self.directory, "nowhere"),
            "DBUS_SESSION_BUS_ADDRESS": f"unix:path={self.runtime}/bus",
            "DBUS_SYSTEM_BUS_ADDRESS": system_bus or f"unix:path={self.runtime}/no-system-bus",
        }  # fmt: skip
        self.start_bus()
        self.start_service()

    def _broker_settings(self, certificate):
        address, port = self.lab.network.reach(self.machine, self.broker.name)
        settings = {"host": address, "port": port}
        if not self.broker.tls:
            return settings | {"tls": "false"}
        certificate, key = certificate or self.lab.authority.client(self.name)
        return settings | {"ca-file": self.lab.authority.file, "certificate-file": certificate, "key-file": key}

    def write_settings(self):
        """Writes bridge.conf from `settings`. What is empty is left out."""
        with open(os.path.join(self.configuration, "bridge.conf"), "w", encoding="utf-8") as file:
            for section, entries in self.settings.items():
                file.write(f"[{section}]\n")
                file.writelines(f"{key}={value}\n" for key, value in entries.items() if value != "")

    # Its programs

    def words(self, *command):
        """The words that run a command here. The first may be a program of the build."""
        program = self.lab.program(command[0])
        return self.lab.network.command(self.machine, [program, *(str(word) for word in command[1:])])

    def start(self, name, *command, kind=Program, **options):
        program = kind(
            f"{name} of {self.name}", self.words(*command), self.environment,
            os.path.join(self.directory, f"{name}.log"), **options,
        )  # fmt: skip
        self.lab.programs.append(program)
        return program

    def run(self, *command, status=0, text=None, seconds=PATIENCE):
        """Runs a command to its end, and returns what it printed. `status` None allows any."""
        try:
            done = subprocess.run(
                self.words(*command), env=self.environment, input=text, capture_output=True, text=True,
                timeout=seconds, check=False, stdin=subprocess.DEVNULL if text is None else None,
            )  # fmt: skip
        except subprocess.TimeoutExpired as error:
            raise AssertionError(f"on {self.name}, {shlex.join(command)} does not end in {seconds} s: {error.stderr}") from error
        if status is not None and done.returncode != status:
            raise AssertionError(
                f"on {self.name}, {shlex.join(map(str, command))} ends with {done.returncode}:\n{done.stdout}{done.stderr}"
            )
        return done.stdout if status is not None else (done.returncode, done.stdout, done.stderr)

    def start_bus(self):
        address = self.environment["DBUS_SESSION_BUS_ADDRESS"]
        self.bus = self.start(
            "bus", "dbus-daemon", "--session", "--nofork", "--nopidfile", "--print-address", f"--address={address}")
        # It says so when it listens.
        self.bus.wait_for("unix:path=")

    def start_service(self):
        self.service = self.start("service", "carillond")
        self.run("gdbus", "wait", "--session", "--timeout", str(PATIENCE), SERVICE)

    def start_bridge(self, wait=True, arguments=()):
        """Starts the bridge, and waits until it is connected."""
        self.bridge = self.start("bridge", "carillon-bridge", *arguments)
        if wait:
            self.wait_connected()
        return self.bridge

    def wait_connected(self, is_connected=True):
        """Waits until the bridge says that it is connected, or is not."""
        seen = {}

        def connected():
            if is_connected and not self.bridge.is_running:
                raise LabError(f"the bridge of {self.name} ended with {self.bridge.process.returncode}:\n{self.bridge.tail()}")
            seen.update(self.status() or {})
            return seen.get("connected") is is_connected

        wait_until(connected, lambda: f"the bridge of {self.name} says connected={is_connected}; its status is {seen}, "
                   f"its log\n{self.bridge.tail()}\nthat of the broker\n{self.broker.tail()}")  # fmt: skip

    def restart_bridge(self, number=signal.SIGTERM):
        self.bridge.stop(number)
        return self.start_bridge()

    # The bridge's interface

    def call(self, method, *arguments, destination=BRIDGE, path=BRIDGE_PATH, timeout=PATIENCE):
        """Calls a method with gdbus, and returns its values; None where nobody has the name, or it fails."""
        status, printed, error = self.run(
            "gdbus", "call", "--session", "--timeout", str(timeout), "--dest", destination, "--object-path", path,
            "--method", method if "." in method else f"{destination}.{method}", *arguments, status=None,
        )  # fmt: skip
        if status != 0:
            self.last_error = error.strip()
            return None
        return gvariant.parse(printed)

    def status(self):
        """What GetStatus says, or None where no bridge runs."""
        answer = self.call("GetStatus")
        return answer[0] if answer else None

    def wait_status(self, condition, what):
        """Waits until the status is so, and returns it."""
        seen = {}

        def holds():
            seen.clear()
            seen.update(self.status() or {})
            return bool(seen) and condition(seen)

        wait_until(holds, lambda: f"the bridge of {self.name} says {what}; its status is {seen}, its log\n{self.bridge.tail()}")
        return dict(seen)

    def wait_subscribed(self, *topics):
        """Waits until the broker has subscribed the bridge to all of these filters. What the status says is what the bridge
        has asked for, and what others publish may be ahead of that."""
        bridge = self.settings["Bridge"]
        self.broker.wait_subscribed_client(f"carillon-{bridge['realm']}-{bridge['host']}-{bridge['user']}-", *topics)

    # Posting and observing, with the command

    def observe(self, *names, retained=False, options=()):
        """An observer that goes on, and has registered. It is told who posted, host and user as well."""
        return Observer(self, names, [*options, *(["--retained"] if retained else [])])

    def post(self, name, user_info=None, object_=None, options=()):
        """Posts one notification."""
        words = ["carillon", "post", name, "--json", json.dumps(user_info or {}), *options]
        self.run(*words, *([] if object_ is None else ["--object", object_]))

    def post_many(self, name, numbers, object_=None, options=()):
        """Posts {"n": number} for each, on one connection."""
        text = "".join(f'{{"n": {number}}}\n' for number in numbers)
        self.run("carillon", "post", name, "--lines", *options, *([] if object_ is None else ["--object", object_]), text=text)

    def poster(self, name, *options):
        """A poster that goes on: each line of JSON that it is sent is a post."""
        return self.start("poster", "carillon", "post", name, "--lines", *options, takes_input=True)

    def values(self, name):
        """The values that are kept of a name, as objects of JSON."""
        _, printed, _ = self.run("carillon", "get", name, "--json", status=None)
        return [json.loads(line) for line in printed.splitlines()]

    def value(self, name, object_=""):
        """userInfo of the one value of name and object, or None."""
        found = [value["userInfo"] for value in self.values(name) if value["object"] == object_]
        assert len(found) < 2, found
        return found[0] if found else None

    def wait_value(self, name, object_, expected):
        """Waits until the value is this; None is that there is none."""
        seen = []

        def is_so():
            seen[:] = [self.value(name, object_)]
            return seen[0] == expected

        wait_until(is_so, lambda: f"{self.name} has {expected} as the value of {name} {object_!r}; it has {seen}")

    def statistics(self):
        """The counts of the service."""
        answer = self.call(
            "org.freedesktop.DBus.Properties.Get", SERVICE, "Statistics", destination=SERVICE, path=SERVICE_PATH)
        return answer[0]

    def pull_cable(self):
        self.lab.network.pull(self.machine)

    def put_cable_back(self):
        self.lab.network.plug(self.machine)


class Observer:
    """`carillon observe --json --details` in the background."""

    _count = 0

    def __init__(self, host, names, options):
        Observer._count += 1
        self.host = host
        self.names = names
        self.program = host.start(
            f"observer-{Observer._count}", "carillon", "observe", "--json", "--details", *options, *names,
            kind=JSONProgram, output=os.path.join(host.directory, f"observer-{Observer._count}.jsonl"),
        )  # fmt: skip
        self.program.wait_for("observing")

    @property
    def notifications(self):
        """What arrived, as objects of JSON."""
        return [each for each in self.program.objects if "name" in each and "event" not in each]

    @property
    def numbers(self):
        """The entry n of each that has one."""
        return [each["userInfo"]["n"] for each in self.notifications if "n" in each["userInfo"]]

    def numbers_of(self, host):
        """The entry n of each that came from a host, or None."""
        return [each["userInfo"].get("n") for each in self.notifications if each["details"].get("host") == host]

    def wait(self, count, seconds=PATIENCE):
        """Waits until so many have arrived, and returns them."""
        wait_until(
            lambda: len(self.notifications) >= count,
            lambda: f"{self} has {count}; it has {len(self.notifications)}, the last {self.notifications[-3:]}", seconds,
        )
        return self.notifications

    def wait_for(self, condition, what, seconds=PATIENCE):
        """Waits until one has arrived for which the condition holds, and returns it."""

        def found():
            return next((each for each in self.notifications if condition(each)), None)

        return wait_until(found, lambda: f"{self} has {what}; it has {self.notifications[-5:]}", seconds)

    def wait_until(self, condition, what, seen, seconds=PATIENCE):
        """Waits until a condition holds of what has arrived; `seen` tells how it stands."""
        wait_until(condition, lambda: f"{self} has word {what}; {seen()}; it has {self.notifications[-3:]}", seconds)

    def stop(self):
        self.program.stop(signal.SIGINT)

    def __str__(self):
        return f"the observer of {', '.join(self.names) or 'all'} on {self.host.name}"
