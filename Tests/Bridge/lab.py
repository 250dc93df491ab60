# SPDX-FileCopyrightText: The Carillon authors
# SPDX-License-Identifier: Apache-2.0
"""The lab: machines on a network, each with a session and a bridge, and a broker. Everything is in one temporary
directory, and is ended by its id when the lab is closed."""

import itertools
import os
import shutil
import tempfile

import network
from broker import Broker
from certificates import Authority
from host import Host
from programs import LabError

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class Lab:
    """With `with`: closed at the end. With tls=False there are no certificates, and everybody is anonymous."""

    def __init__(self, settings="", access=None, tls=True, network_=None):
        self.directory = tempfile.mkdtemp(prefix="carillon-lab-")
        self.programs = []
        self.hosts = {}
        self._files = itertools.count(1)
        self.network = network_ or network.make()
        try:
            self.authority = Authority(os.path.join(self.directory, "authority")) if tls else None
            options = {"access": access} if access else {} if tls else {"access": "pattern readwrite #\n"}
            self.broker = Broker(self, settings=settings, tls=tls, **options)
        except BaseException:
            self.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def host(self, name, *, bridge=True, **options):
        """A machine with a session, and with a bridge that is connected."""
        host = Host(self, name, **options)
        self.hosts[host.directory] = host
        if bridge:
            host.start_bridge()
        return host

    @staticmethod
    def environment():
        """What all programs have of the environment."""
        return {
            "PATH": os.environ.get("PATH", "/usr/bin:/bin"), "LC_ALL": "C.UTF-8", "TZ": "UTC",
            **{key: os.environ[key] for key in ("LD_LIBRARY_PATH", "G_MESSAGES_DEBUG") if key in os.environ},
        }  # fmt: skip

    @staticmethod
    def program(name):
        """The file of a program of the build; of another one its name."""
        if not name.startswith("carillon"):
            return name
        for variable in ("CARILLON_BIN_DIR",):
            path = os.path.join(os.environ.get(variable) or os.path.join(ROOT, ".build", "debug"), name)
            if os.access(path, os.X_OK):
                return path
        raise LabError(f"there is no {name}: CARILLON_BIN_DIR names the directory of a build")

    def file(self, name):
        """A file of this name that nothing else of the lab writes to."""
        return os.path.join(self.directory, f"{next(self._files)}-{name}")

    def logs(self):
        """The ends of all logs, for who looks for what went wrong."""
        parts = []
        for host in self.hosts.values():
            parts += [f"--- {program.name}\n{program.tail(25)}" for program in (host.service, host.bridge) if program]
        if getattr(self, "broker", None):
            parts.append(f"--- broker\n{self.broker.tail(25)}")
        return "\n".join(parts)

    def close(self):
        """Ends everything, in the opposite order of its start, and removes the directory."""
        for program in reversed(self.programs):
            # A bridge that goes on by itself, while its bus ends, would take a while to say so.
            program.kill() if program.is_running else program.stop()
        self.programs = []
        self.network.close()
        if os.environ.get("CARILLON_LAB_KEEP") != "1":
            shutil.rmtree(self.directory, ignore_errors=True)
