#!/usr/bin/python3
# SPDX-FileCopyrightText: The Carillon authors
# SPDX-License-Identifier: Apache-2.0
"""shell.py [HOST …]: what `tools/bridge-lab shell` gives: hosts that send and take com.example.*, and a shell among them."""

import os
import pty
import shlex
import subprocess
import sys
import threading

from lab import Lab

FUNCTION = """\
on() {
    local host=$1
    shift
    case $host in
%s
        *) echo "on: there is no $host" >&2; return 1 ;;
    esac
}
pull() { echo "pull $1" >&"$LAB_CABLES"; }
plug() { echo "plug $1" >&"$LAB_CABLES"; }
where() { cat "$LAB_DIRECTORY/where"; }
PS1='lab$ '
"""


def main(names):
    with Lab() as lab:
        hosts = {name: lab.host(name, export="com.example.*", imports="com.example.*") for name in names}
        cases = []
        for name, host in hosts.items():
            words = shlex.join(["env", *(f"{key}={value}" for key, value in host.environment.items()), f"PATH={path()}"])
            inside = shlex.join(lab.network.command(name, []))
            cases.append(f"        {name}) {inside} {words} \"$@\" ;;")
        file = os.path.join(lab.directory, "shell")
        with open(file, "w", encoding="utf-8") as stream:
            stream.write(FUNCTION % "\n".join(cases))
        with open(os.path.join(lab.directory, "where"), "w", encoding="utf-8") as stream:
            stream.write("".join(f"{name}: {host.configuration}/bridge.conf\n" for name, host in hosts.items()))
            stream.write(f"broker: {lab.broker.directory}/mosquitto.conf, log {lab.broker.log}\n")
        print(f"On {lab.network.kind}: {', '.join(names)}. on HOST COMMAND …, pull HOST, plug HOST, where; exit ends all of it.")
        reading, writing = os.pipe()
        os.set_inheritable(writing, True)
        os.environ |= {"LAB_DIRECTORY": lab.directory, "LAB_CABLES": str(writing)}
        threading.Thread(target=obey, args=(reading, hosts), daemon=True).start()
        words = ["bash", "--noprofile", "--rcfile", file, "-i"]
        # With a terminal of its own: that of the caller belongs to processes that can't be seen from these namespaces.
        if sys.stdin.isatty():
            return os.waitstatus_to_exitcode(pty.spawn(words))
        return subprocess.run(words, close_fds=False, check=False).returncode


def obey(reading, hosts):
    """Does what the functions of the shell ask for."""
    with open(reading, encoding="utf-8") as orders:
        for order in orders:
            what, _, name = order.strip().partition(" ")
            if name not in hosts:
                print(f"{what}: there is no {name}\r", file=sys.stderr)
            elif what == "pull":
                hosts[name].pull_cable()
            else:
                hosts[name].put_cable_back()


def path():
    return f"{os.environ.get('CARILLON_BIN_DIR', '')}:{os.environ['PATH']}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or ["desk", "laptop"]))
