# SPDX-FileCopyrightText: The Carillon authors
# SPDX-License-Identifier: Apache-2.0
"""Machines on one network: namespaces that a Linux bridge joins, or, where these can't be made, addresses of loopback."""

import os
import signal
import socket
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


class NetworkError(Exception):
    """Something of the network could not be made."""


def make():
    """The network that can be made here. `tools/bridge-lab` has tried whether there are namespaces, and says so."""
    return Namespaces() if os.environ.get("CARILLON_LAB_NETWORK") == "namespaces" else Loopback()


def _ip(*words):
    done = subprocess.run(["ip", *words], capture_output=True, text=True, timeout=30, check=False)
    if done.returncode != 0:
        raise NetworkError(f"ip {' '.join(words)}: {done.stderr.strip()}")


class Namespaces:
    """Each machine has a network namespace, and a cable to a switch. All of it is within the namespaces that
    `tools/bridge-lab` made, and so is gone with that, however it ends."""

    kind = "network namespaces"
    port = 8883
    _labs = 0

    def __init__(self):
        Namespaces._labs += 1
        self._number = Namespaces._labs
        self._switch = f"switch{self._number}"
        self._machines = {}
        _ip("link", "add", "name", self._switch, "type", "bridge")
        _ip("link", "set", self._switch, "up")

    def add(self, name):
        """A machine; its address is returned."""
        number = len(self._machines) + 1
        namespace, inner, outer = f"lab{self._number}-{name}", "eth0", f"c{self._number}-{number}"
        address = f"10.77.{number // 250}.{number % 250 + 1}"
        _ip("netns", "add", namespace)
        self._machines[name] = (namespace, outer, address)
        _ip("link", "add", "name", outer, "type", "veth", "peer", "name", inner, "netns", namespace)
        _ip("link", "set", outer, "master", self._switch, "up")
        _ip("-n", namespace, "link", "set", "lo", "up")
        _ip("-n", namespace, "address", "add", f"{address}/16", "dev", inner)
        _ip("-n", namespace, "link", "set", inner, "up")
        return address

    def server_addresses(self, name):
        """At which addresses a certificate of this machine has to be valid for all others."""
        return [self._machines[name][2]]

    def reach(self, _name, server):
        """Address and port at which one machine reaches the server of another."""
        return self._machines[server][2], self.port

    def command(self, name, words):
        """The words that run a command on a machine."""
        return ["nsenter", f"--net=/run/netns/{self._machines[name][0]}", "--", *words]

    def listen(self, name):
        """Where a server on this machine shall listen."""
        return self._machines[name][2], self.port

    def pull(self, name):
        """Pulls the machine's cable out of the switch: nothing comes through, and nobody is told."""
        _ip("link", "set", self._machines[name][1], "down")

    def plug(self, name):
        """Puts it back."""
        _ip("link", "set", self._machines[name][1], "up")

    def close(self):
        for namespace, _, _ in self._machines.values():
            subprocess.run(["ip", "netns", "delete", namespace], capture_output=True, timeout=30, check=False)
        subprocess.run(["ip", "link", "delete", self._switch], capture_output=True, timeout=30, check=False)


class Loopback:
    """Each machine has an address of 127.0.0.0/8, and reaches servers by a relay of its own, which is its cable: one
    that is stopped passes nothing on and ends nothing. What a machine may reach is not confined by that."""

    kind = "addresses of loopback"
    _labs = 0

    def __init__(self):
        # Labs of other processes have other addresses, as far as that can be had.
        self._prefix = f"127.{os.getpid() // 250 % 250 + 1}.{os.getpid() % 250 + 1}"
        self._machines = {}
        self._relays = {}
        self._servers = {}

    def add(self, name):
        address = f"{self._prefix}.{len(self._machines) + 1}"
        self._machines[name] = address
        return address

    def server_addresses(self, _name):
        return [f"{self._prefix}.{number}" for number in range(1, 32)]

    def listen(self, name):
        if name not in self._servers:
            with socket.socket() as probe:
                probe.bind((self._machines[name], 0))
                self._servers[name] = probe.getsockname()[1]
        return self._machines[name], self._servers[name]

    def reach(self, name, server):
        """Starts the relay, if there is none."""
        target, port = self.listen(server)
        if (name, server) not in self._relays:
            process = subprocess.Popen(
                [sys.executable, "-B", os.path.join(HERE, "relay.py"), self._machines[name], target, str(port)],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
            )
            line = process.stdout.readline()
            if not line:
                process.wait()
                raise NetworkError(f"the relay of {name} does not start")
            self._relays[name, server] = (process, int(line))
        return self._machines[name], self._relays[name, server][1]

    def command(self, _name, words):
        return list(words)

    def pull(self, name):
        self._signal(name, signal.SIGSTOP)

    def plug(self, name):
        self._signal(name, signal.SIGCONT)

    def _signal(self, name, number):
        for (machine, _), (process, _) in self._relays.items():
            if machine == name:
                process.send_signal(number)

    def close(self):
        for process, _ in self._relays.values():
            process.kill()
            process.wait()
            process.stdout.close()
