# SPDX-License-Identifier: Apache-2.0
"""The ways that notifications can go, each with its servers and the programs that load it."""

import getpass
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

from processes import PATIENCE, Failure, Process, processor_time, resident

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "Tests" / "Chaos"))

import buses  # noqa: E402  private buses of both implementations

# Raw match rules, a hundred thousand of one connection.
buses.LIMITS["max_match_rules_per_connection"] = 1_000_000

CENTER = "org.carillon.NotificationCenter1"
PACKAGES = {
    "gdnc": ("gnustep-base-runtime", "libgnustep-base-dev", "gobjc"),
    "redis": ("redis-server", "libhiredis-dev"),
    "mosquitto": ("mosquitto", "libmosquitto-dev"),
}
CONFIGURATION = """[Limits]
observers-per-client=1048576
observer-bytes-per-client=1073741824
"""


class Way:
    """A way, and a server of it where `start` was called.

    `posts` is how many posts take about as long as those of other ways, `among` the same by registrations."""

    def __init__(self, key, title, kind=None, posts=1.0, among=None):
        self.key = key
        self.title = title
        self.kind = kind
        self.posts = posts
        self.among = among or {}

    #: The raw broadcast that it is compared with.
    @property
    def base(self):
        return f"raw-{self.kind.removeprefix('dbus-')}" if self.kind else "raw-daemon"

    @property
    def is_ours(self):
        return False

    def missing(self, _tools):
        """Why it can't be measured here; None where it can."""
        return None


class BusWay(Way):
    """On a message bus: raw, or through the service."""

    def __init__(self, family, title, kind, **rest):
        super().__init__(f"{family}-{kind.removeprefix('dbus-')}", title, kind, **rest)
        self.family = family

    @property
    def is_ours(self):
        return self.family != "raw"

    def missing(self, tools):
        if not buses.available(self.kind):
            return f"{self.kind} is not installed"
        if self.family == "channel":
            return tools.missing_channels()
        return None

    def command(self, tools):
        if self.family in ("raw", "plain"):
            return [tools.peers / "dbus-load", "raw" if self.family == "raw" else "carillon"]
        return [tools.binaries / "carillon-library-load"]

    def start(self, tools, has_many=False):
        return BusServer(self, tools, has_many)


class PeerWay(Way):
    """A server that is no message bus."""

    def missing(self, tools):
        return tools.failures.get(self.key)

    def command(self, tools):
        return [tools.peers / f"{self.key}-load"]

    def start(self, tools, has_many=False):
        return PeerServer(self, tools)


RAW_AMONG = {1: 20_000, 10_000: 2_000, 100_000: 50}
WAYS = [
    BusWay("raw", "raw broadcast", "dbus-daemon", among=RAW_AMONG),
    BusWay("plain", "plain clients", "dbus-daemon"),
    BusWay("library", "library on the bus", "dbus-daemon"),
    BusWay("channel", "library on a channel", "dbus-daemon"),
    BusWay("raw", "raw broadcast", "dbus-broker", among=RAW_AMONG),
    BusWay("plain", "plain clients", "dbus-broker"),
    BusWay("library", "library on the bus", "dbus-broker"),
    BusWay("channel", "library on a channel", "dbus-broker"),
    PeerWay("gdnc", "GNUstep gdnc", posts=0.5),
    PeerWay("redis", "Redis", posts=4),
    PeerWay("mosquitto", "mosquitto", posts=1),
]


class Tools:
    """The programs: those of this project, and the loads of the peers, which are compiled here."""

    def __init__(self, binaries, service, directory):
        self.binaries = pathlib.Path(binaries)
        self.service = pathlib.Path(service)
        self.directory = pathlib.Path(directory)
        self.peers = self.directory / "peers"
        self.peers.mkdir()
        self.failures = {}
        self.log = open(self.directory / "log", "ab")  # noqa: SIM115
        self._compile("dbus-load.c", *self._packages("dbus-1"))
        if "dbus-load.c" in self.failures:
            raise Failure(self.failures["dbus-load.c"])
        self._compile("redis-load.c", *self._packages("hiredis"))
        self._compile("mosquitto-load.c", *self._packages("libmosquitto"))
        gnustep = [self._ask("gnustep-config", option) for option in ("--objc-flags", "--base-libs")]
        self._compile("gdnc-load.m", *gnustep)
        for key, program in (("redis", "redis-server"), ("mosquitto", "mosquitto"), ("gdnc", "gdnc")):
            if find(program) is None or f"{key}-load.c" in self.failures or f"{key}-load.m" in self.failures:
                self.failures[key] = f"not installed: {' '.join(PACKAGES[key])} (tools/bench --setup)"
        self._missing_channels = False

    def _ask(self, *command):
        try:
            return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
        except (OSError, subprocess.CalledProcessError):
            return None

    def _packages(self, name):
        return self._ask("pkg-config", "--cflags", name), self._ask("pkg-config", "--libs", name)

    def _compile(self, source, flags, libraries):
        if flags is None or libraries is None:
            self.failures[source] = f"what {source} needs is not installed"
            return
        path = ROOT / "Benchmarks" / "peers" / source
        program = self.peers / path.stem
        command = ["cc", "-O2", "-std=gnu11", *flags, "-o", str(program), str(path), *libraries]
        # gnustep-config asks for a list of dependencies, which would stand in this directory.
        result = subprocess.run(command, cwd=self.peers, capture_output=True, text=True)
        if result.returncode:
            self.failures[source] = f"{source} can't be compiled: {result.stderr[:2000]}"

    def missing_channels(self):
        """Why there are no channels; None where there are."""
        if self._missing_channels is False:
            way = BusWay("channel", "", "dbus-daemon")
            with way.start(self) as server:
                self._missing_channels = server.missing_channels()
        return self._missing_channels


def find(program):
    """Servers are not in everybody's path."""
    return shutil.which(program) or shutil.which(program, path="/usr/sbin:/sbin:/usr/local/sbin")


class Server:
    """All that carries notifications on a way, in a directory of its own. `pids` are those of its processes."""

    def __init__(self, way, tools):
        self.way = way
        self.tools = tools
        self.directory = tempfile.mkdtemp(prefix=f"{way.key}-", dir=tools.directory)
        self.environment = dict(os.environ)
        self.pids = []
        self.service = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def observe(self, name, *arguments):
        command = [*self.way.command(self.tools), "observe", name, *arguments]
        return Process(command, self.environment, self.tools.log)

    def post(self, name, *arguments):
        command = [*self.way.command(self.tools), "post", name, *arguments]
        return Process(command, self.environment, self.tools.log)

    def wait_until_settled(self, _observers):
        """Until so many observers that said that they are ready are where the way has them."""

    def processor_time(self):
        return sum(processor_time(pid) for pid in self.pids)

    def memory(self):
        return sum(resident(pid) for pid in self.pids)


class BusServer(Server):
    """A bus; and a service where the way is through one."""

    def __init__(self, way, tools, has_many):
        super().__init__(way, tools)
        self.bus = buses.Bus(way.kind, self.directory, str(tools.service))
        self.environment = dict(self.bus.environment)
        self.pids = [self.bus.pid]
        if way.family == "channel":
            self.environment["CARILLON_TRANSPORT"] = "channel"
        if not way.is_ours:
            return
        try:
            self._start_service(has_many)
        except BaseException:  # nothing of it stays behind
            self.stop()
            raise

    def _start_service(self, has_many):
        if has_many:
            folder = pathlib.Path(self.environment["XDG_CONFIG_HOME"]) / "carillon"
            folder.mkdir()
            (folder / "carillon.conf").write_text(CONFIGURATION, encoding="utf-8")
        self.service = Process([self.tools.service], self.environment, self.tools.log)
        self.pids.append(self.service.pid)
        wait = ["gdbus", "wait", "--session", "--timeout", str(PATIENCE), CENTER]
        subprocess.run(wait, env=self.environment, check=True)

    def ask(self, method, *arguments):
        """What gdbus prints for a call of the service."""
        command = ["gdbus", "call", "--session", "--dest", CENTER, "--object-path", "/" + CENTER.replace(".", "/")]
        result = subprocess.run(
            [*command, "--method", method, *arguments], env=self.environment, capture_output=True, text=True
        )
        if result.returncode:
            raise Failure(result.stderr.strip())
        return result.stdout

    def wait_until_settled(self, observers):
        # They may open their channels a moment after their registrations.
        end = time.monotonic() + 10
        while self.way.family == "channel":
            open_channels = self.ask(f"{CENTER}.ListClients").count("'channel': <true>")
            if open_channels >= observers:
                return
            if time.monotonic() > end:
                raise Failure(f"the library opened {open_channels} channels of {observers}")
            time.sleep(0.1)

    def missing_channels(self):
        if "OpenChannel" not in self.ask("org.freedesktop.DBus.Introspectable.Introspect"):
            return "the service has no method OpenChannel"
        observer = self.observe("org.carillon.load")
        try:
            observer.line("ready")
            self.wait_until_settled(1)
        except Failure as failure:
            return str(failure)
        finally:
            observer.stop()
        return None

    def stop(self):
        if self.service:
            self.service.stop()
        self.bus.stop()


class PeerServer(Server):
    """Redis, mosquitto or gdnc, each on a socket in its directory."""

    def __init__(self, way, tools):
        super().__init__(way, tools)
        socket = f"{self.directory}/socket"
        self.environment["LOAD_SERVER"] = socket
        if way.key == "redis":
            # A subscriber that is slow for a moment is not what is measured.
            limits = ["--client-output-buffer-limit", "pubsub 0 0 0"]
            command = ["redis-server", "--port", "0", "--unixsocket", socket, "--save", "", "--dir", self.directory]
            command += ["--loglevel", "warning", *limits]
        elif way.key == "mosquitto":
            configuration = f"{self.directory}/mosquitto.conf"
            with open(configuration, "w", encoding="utf-8") as file:
                # Started by root it would become another user, who may not use this directory.
                file.write(f"listener 0 {socket}\nuser {getpass.getuser()}\nallow_anonymous true\n")
                file.write("max_queued_messages 0\n")
            command = [find("mosquitto"), "-c", configuration]
        else:
            # gdnc's name is found through files in these.
            for variable in ("HOME", "TMPDIR", "TEMP", "TMP"):
                self.environment[variable] = self.directory
            command = ["gdnc", "--no-fork"]
        self.process = Process(command, self.environment, tools.log)
        self.pids = [self.process.pid]
        try:
            self._wait(socket)
        except BaseException:  # nothing of it stays behind
            self.stop()
            raise

    def _wait(self, socket):
        end = time.monotonic() + 20
        while time.monotonic() < end:
            if self.process.process.poll() is not None:
                raise Failure(f"{self.process} ended at once")
            files = [name for _, _, names in os.walk(self.directory) for name in names]
            if os.path.exists(socket) or (self.way.key == "gdnc" and files):
                time.sleep(0.3)
                return
            time.sleep(0.05)
        raise Failure(f"{self.process} does not listen")

    def stop(self):
        self.process.stop()
