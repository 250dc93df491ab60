# SPDX-License-Identifier: Apache-2.0
"""A private bus that starts the real service, with directories of its own, on which commands run."""

import contextlib
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time

#: Seconds that a condition may take. Only a test that fails waits for so long.
PATIENCE = 60

#: The same for a whole command that a document shows: it may compile something, or open a window for the first time.
COMMAND_PATIENCE = 120

NAME = "org.carillon.NotificationCenter1"

_BUS = """<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <type>session</type>
  <listen>unix:path={runtime}/bus</listen>
  <auth>EXTERNAL</auth>
  <servicedir>{services}</servicedir>
  <policy context="default">
    <allow send_destination="*" eavesdrop="true"/>
    <allow eavesdrop="true"/>
    <allow own="*"/>
  </policy>
  <!-- As in the session.conf that comes with dbus-daemon: its own standard values are those of a system's bus. -->
  <limit name="max_incoming_bytes">1000000000</limit>
  <limit name="max_incoming_unix_fds">250000000</limit>
  <limit name="max_outgoing_bytes">1000000000</limit>
  <limit name="max_outgoing_unix_fds">250000000</limit>
  <limit name="max_message_size">1000000000</limit>
  <limit name="service_start_timeout">120000</limit>
  <limit name="auth_timeout">240000</limit>
  <limit name="pending_fd_timeout">150000</limit>
  <limit name="max_completed_connections">100000</limit>
  <limit name="max_incomplete_connections">10000</limit>
  <limit name="max_connections_per_user">100000</limit>
  <limit name="max_pending_service_starts">10000</limit>
  <limit name="max_names_per_connection">50000</limit>
  <limit name="max_match_rules_per_connection">50000</limit>
  <limit name="max_replies_per_connection">50000</limit>
</busconfig>
"""


class StageError(Exception):
    """The stage could not be set."""


def wait_for(what, condition, seconds=None):
    """Waits until the condition holds, and gives what it gave."""
    seconds = PATIENCE if seconds is None else seconds
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() >= deadline:
            raise StageError(f"not within {seconds} s: {what() if callable(what) else what}")
        time.sleep(0.02)
    return value


class Stage:
    """Directories, a bus, and the processes that were started. To be used in `with`.

    `binaries` has `carillon` and `carillond`, and may have `carillon-bridge`. ROOT in the environment is that of the
    repository.
    """

    def __init__(self, binaries, root, extra_path=()):
        self.root = root
        self.binaries = os.path.abspath(binaries)
        self.extra_path = list(extra_path)
        for name in ("carillon", "carillond"):
            if not os.access(f"{self.binaries}/{name}", os.X_OK):
                raise StageError(f"there is no program {self.binaries}/{name}")

    def __enter__(self):
        self.directory = tempfile.mkdtemp(prefix="carillon-shown-")
        self.processes = []
        try:
            for name in ("runtime", "home", "scratch", "services", "bin"):
                os.mkdir(f"{self.directory}/{name}", 0o700)
            self.scratch = f"{self.directory}/scratch"
            # A directory of its own: beside the programs of a build lie a thousand things that are no part of it.
            for name in ("carillon", "carillond", "carillon-bridge"):
                if os.access(f"{self.binaries}/{name}", os.X_OK):
                    os.symlink(f"{self.binaries}/{name}", f"{self.directory}/bin/{name}")
            with open(f"{self.directory}/services/{NAME}.service", "w", encoding="utf-8") as file:
                file.write(f"[D-BUS Service]\nName={NAME}\nExec={self.directory}/bin/carillond\n")
            self.environment = {
                "PATH": ":".join([f"{self.directory}/bin", *self.extra_path, "/usr/local/bin:/usr/bin:/bin"]),
                "HOME": f"{self.directory}/home",
                "ROOT": self.root,
                # Where a package has it.
                "PYTHONPATH": f"{self.root}/python",
                "XDG_RUNTIME_DIR": f"{self.directory}/runtime",
                "XDG_CONFIG_HOME": f"{self.directory}/home/.config",
                "TMPDIR": self.scratch,
                "LC_ALL": "C.UTF-8",
                "TZ": "UTC",
                "PYTHONDONTWRITEBYTECODE": "1",
                "PYTHONUNBUFFERED": "1",
                # No accessibility bus, no dconf: programs with a window would have the bus start them.
                "NO_AT_BRIDGE": "1",
                "GTK_A11Y": "none",
                "GSETTINGS_BACKEND": "memory",
            }
            self._start_bus()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _start_bus(self):
        runtime = f"{self.directory}/runtime"
        with open(f"{self.directory}/bus.conf", "w", encoding="utf-8") as file:
            file.write(_BUS.format(runtime=runtime, services=f"{self.directory}/services"))
        with open(f"{self.directory}/bus.log", "wb") as log:
            bus = subprocess.Popen(
                ["dbus-daemon", f"--config-file={self.directory}/bus.conf", "--nofork", "--nopidfile"],
                env=self.environment, stdout=log, stderr=log, start_new_session=True)  # fmt: skip
        self.processes.append(bus)
        wait_for(lambda: f"a bus: {self.bus_log()}", lambda: os.path.exists(f"{runtime}/bus"))
        self.environment["DBUS_SESSION_BUS_ADDRESS"] = f"unix:path={runtime}/bus"

    def start_display(self):
        """Starts an X server without a screen, for what comes after."""
        if "DISPLAY" in self.environment:
            return
        reading, writing = os.pipe()
        with open(f"{self.directory}/xvfb.log", "wb") as log:
            self.start(["Xvfb", "-displayfd", str(writing), "-screen", "0", "800x600x24", "-nolisten", "tcp", "-noreset"],
                       stdout=log, stderr=log, pass_fds=[writing])  # fmt: skip
        os.close(writing)
        with open(reading, "rb") as stream:
            ready, _, _ = select.select([stream], [], [], PATIENCE)
            number = stream.readline().strip() if ready else b""
        if not number:
            raise StageError("Xvfb did not start")
        self.environment.update(
            DISPLAY=f":{number.decode()}", GDK_BACKEND="x11", QT_QPA_PLATFORM="xcb", SDL_VIDEODRIVER="x11",
            GSK_RENDERER="cairo", LIBGL_ALWAYS_SOFTWARE="1")  # fmt: skip

    def bus_log(self):
        """What the bus and the service said."""
        with contextlib.suppress(OSError), open(f"{self.directory}/bus.log", encoding="utf-8", errors="replace") as log:
            return log.read()
        return ""

    def start(self, arguments, **options):
        """Starts a program in a process group of its own, which ends with the stage."""
        options.setdefault("cwd", self.scratch)
        options.setdefault("env", self.environment)
        process = subprocess.Popen(arguments, start_new_session=True, stdin=subprocess.DEVNULL, **options)
        self.processes.append(process)
        return process

    def run(self, arguments, seconds=None):
        """Runs a program to its end, and gives its exit status and all that it said."""
        seconds = COMMAND_PATIENCE if seconds is None else seconds
        process = self.start(arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        try:
            output, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            end(process)
            return 124, f"not within {seconds} s: {' '.join(arguments)}"
        return process.returncode, output.decode(errors="replace")

    def succeeds(self, command):
        """Whether a line of shell ends with 0."""
        return self.run(["bash", "-c", command])[0] == 0

    def __exit__(self, *_):
        # The last one first, so that the bus, with which the service ends, goes last.
        for process in reversed(self.processes):
            end(process)
        # What those left behind. The directory's name is nobody else's.
        limit = time.monotonic() + 60
        while (strays := list(self._strays())) and time.monotonic() < limit:
            for pid in strays:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            # One that is killed is there until the kernel has come to it.
            time.sleep(0.01)
        shutil.rmtree(self.directory, ignore_errors=True)

    def _strays(self):
        marker = f"XDG_RUNTIME_DIR={self.directory}/runtime\0".encode()
        for entry in os.listdir("/proc"):
            if entry.isdigit() and int(entry) != os.getpid():
                with contextlib.suppress(OSError), open(f"/proc/{entry}/environ", "rb") as file:
                    if marker in file.read():
                        yield int(entry)


def end(process):
    """Ends a process that was started here, with its group, if it still runs."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is not None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(5)
