# SPDX-FileCopyrightText: The Carillon authors
# SPDX-License-Identifier: Apache-2.0
"""A bus of one's own, of either implementation, that starts the service when somebody calls it.

dbus-daemon starts programs by itself. dbus-broker leaves that to its controller, in a session the launcher with
systemd; here the controller is this process.
"""

import os
import shutil
import signal
import socket
import subprocess
import uuid

from gi.repository import Gio, GLib

from contract import BUS_NAME, PATIENCE

KINDS = ("dbus-daemon", "dbus-broker")

#: As in a session: the standard limits of dbus-daemon are those of the system's bus.
LIMITS = {
    "max_incoming_bytes": 1_000_000_000,
    "max_incoming_unix_fds": 250_000_000,
    "max_outgoing_bytes": 1_000_000_000,
    "max_outgoing_unix_fds": 250_000_000,
    "max_message_size": 1_000_000_000,
    "service_start_timeout": 120_000,
    "auth_timeout": 240_000,
    "pending_fd_timeout": 150_000,
    "max_completed_connections": 100_000,
    "max_incomplete_connections": 10_000,
    "max_connections_per_user": 100_000,
    "max_pending_service_starts": 10_000,
    "max_names_per_connection": 50_000,
    "max_match_rules_per_connection": 50_000,
    "max_replies_per_connection": 50_000,
}


def environment_in(directory):
    """This process's environment, without anything of the session, and with directories in that one."""
    session = ("DBUS_", "XDG_", "LISTEN_", "DISPLAY", "WAYLAND_", "SWAYSOCK", "I3SOCK", "NOTIFY_SOCKET", "LC_")
    environment = {key: value for key, value in os.environ.items() if not key.startswith(session)}
    environment["LANG"] = "C.UTF-8"
    # The report of a crash in a debug build takes tens of seconds; the reason is in the log all the same.
    environment["SWIFT_BACKTRACE"] = "enable=no"
    for variable, name in (
        ("HOME", "home"), ("XDG_RUNTIME_DIR", "run"), ("XDG_CONFIG_HOME", "config"), ("XDG_CONFIG_DIRS", "system"),
        ("XDG_DATA_HOME", "data"), ("XDG_STATE_HOME", "state"), ("XDG_CACHE_HOME", "cache"),
    ):
        environment[variable] = os.path.join(directory, name)
        os.makedirs(environment[variable], mode=0o700, exist_ok=True)
    return environment


#: Seconds that a bus has to end by itself.
STOP_PATIENCE = 10


class Bus:
    """A bus that runs. `environment` is that of its clients."""

    def __init__(self, kind, directory, executable):
        self.kind = kind
        self.directory = directory
        self.executable = executable
        self.path = f"{directory}/bus"
        self.address = f"unix:path={self.path}"
        self.environment = environment_in(directory)
        self.environment["DBUS_SESSION_BUS_ADDRESS"] = self.address
        #: What the bus and the services that it started say.
        self.log = os.path.join(directory, "log")
        self._log = open(self.log, "ab")  # noqa: SIM115
        if kind == "dbus-daemon":
            self._start_daemon()
        else:
            self._start_broker()
        self.pid = self.process.pid

    def log_tail(self, lines=40):
        """The end of what was said."""
        with open(self.log, encoding="utf-8", errors="replace") as file:
            return "".join(file.readlines()[-lines:])

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(STOP_PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()  # it is still busy with what it was left
            self.process.wait(PATIENCE)
        self._log.close()

    # dbus-daemon

    def _start_daemon(self):
        services = os.path.join(self.directory, "services")
        os.makedirs(services)
        with open(f"{services}/{BUS_NAME}.service", "w", encoding="utf-8") as file:
            file.write(f"[D-BUS Service]\nName={BUS_NAME}\nExec='{self.executable}'\n")
        limits = "\n".join(f'<limit name="{name}">{value}</limit>' for name, value in LIMITS.items())
        configuration = os.path.join(self.directory, "bus.conf")
        with open(configuration, "w", encoding="utf-8") as file:
            file.write(
                f"""<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
                "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
                <busconfig><type>session</type><keep_umask/><listen>{self.address}</listen><auth>EXTERNAL</auth>
                <servicedir>{services}</servicedir><policy context="default">
                <allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/><allow own="*"/></policy>
                {limits}</busconfig>"""
            )
        self.process = subprocess.Popen(
            ["dbus-daemon", f"--config-file={configuration}", "--nofork", "--nopidfile", "--nosyslog",
             "--print-address=1"],
            env=self.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self._log,
        )
        if not self.process.stdout.readline():
            raise RuntimeError(f"dbus-daemon did not start: {self.log_tail()}")

    # dbus-broker

    def _start_broker(self):
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(f"{self.directory}/bus")
        listener.listen(512)
        listener.setblocking(False)  # the broker accepts until there is nobody left
        ours, theirs = socket.socketpair(socket.AF_UNIX)
        os.set_inheritable(theirs.fileno(), True)
        self.process = subprocess.Popen(
            ["dbus-broker", "--controller", str(theirs.fileno()), "--machine-id", uuid.uuid4().hex,
             "--max-bytes", str(10**12), "--max-fds", str(10**8), "--max-matches", str(10**9)],
            env=self.environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=self._log,
            pass_fds=[theirs.fileno()],
        )
        theirs.close()
        # GDBus speaks to the broker as to any peer.
        stream = Gio.Socket.new_from_fd(ours.detach()).connection_factory_create_connection()
        self._controller = Gio.DBusConnection.new_sync(
            stream, None, Gio.DBusConnectionFlags.AUTHENTICATION_CLIENT, None, None
        )
        self._controller.signal_subscribe(
            None, "org.bus1.DBus.Name", "Activate", None, None, Gio.DBusSignalFlags.NONE, self._activate
        )
        self._control("AddName", GLib.Variant("(osu)", ("/org/bus1/DBus/Name/0", BUS_NAME, os.getuid())))
        descriptors = Gio.UnixFDList.new()
        descriptors.append(listener.fileno())
        self._control(
            "AddListener", GLib.Variant("(ohv)", ("/org/bus1/DBus/Listener/0", 0, session_policy())), descriptors
        )
        listener.close()

    def _control(self, method, arguments, descriptors=None, path="/org/bus1/DBus/Broker", interface="Broker"):
        self._controller.call_with_unix_fd_list_sync(
            None, path, f"org.bus1.DBus.{interface}", method, arguments, None, Gio.DBusCallFlags.NONE,
            PATIENCE * 1000, descriptors, None,
        )

    def _activate(self, _connection, _sender, _path, _interface, _signal, parameters):
        (activation,) = parameters.unpack()
        service = subprocess.Popen(
            [self.executable], env=self.environment, stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log
        )
        GLib.child_watch_add(GLib.PRIORITY_DEFAULT, service.pid, self._service_ended, activation)
        service.returncode = 0  # it is waited for by GLib

    def _service_ended(self, _pid, _status, activation):
        # Harmless unless it ended before it had its name: whoever waits for it then learns of it. It is its own activation
        # that is over: the end of a process can be seen here when the bus has asked for the next one already.
        try:
            self._control(
                "Reset", GLib.Variant("(ts)", (activation, "org.bus1.DBus.Name.Error.StartupFailure")),
                path="/org/bus1/DBus/Name/0", interface="Name",
            )
        except GLib.Error as error:
            if "NotFound" not in error.message and not self._controller.is_closed():
                print(f"dbus-broker: {error.message}", flush=True)


def session_policy():
    """What dbus-broker takes for: everyone may connect, own, send and receive everything."""
    anything = (True, 1, "", "", "", "", 0, 0, 0, 2**64 - 1)
    batch = (True, 1, [(True, 1, True, "")], [anything], [anything])
    signature = "bta(btbs)a(btssssuutt)a(btssssuutt)"
    return GLib.Variant(
        f"(a(u({signature}))a(buu({signature}))a(ss)bs)", ([(2**32 - 1, batch)], [], [], False, "session")
    )


def available(kind):
    """Whether that implementation is installed."""
    return shutil.which(kind) is not None


def end(process):
    """Kills a process that is a leader of its group, with that group, and waits for it."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()
