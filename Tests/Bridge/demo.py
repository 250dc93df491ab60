#!/usr/bin/python3
# SPDX-FileCopyrightText: The Carillon authors
# SPDX-License-Identifier: Apache-2.0
"""What `tools/bridge-lab demo` shows: two machines, a broker and the cable between them, as at terminals of each."""

import os
import shlex
import sys
import threading
import time

from host import HOST
from lab import Lab
from programs import Lines

NAME = "com.example.Saved"
COLORS = {"desk": "\x1b[36m", "laptop": "\x1b[33m", "broker": "\x1b[35m"}


class Screen:
    """Prints what is typed and what comes back, with the name of the machine before it."""

    def __init__(self):
        self.colors = sys.stdout.isatty() and "NO_COLOR" not in os.environ
        self._lock = threading.Lock()
        self._followed = []
        self._over = threading.Event()
        threading.Thread(target=self._follow, daemon=True).start()

    def line(self, machine, text):
        with self._lock:
            before, after = (COLORS[machine], "\x1b[0m") if self.colors else ("", "")
            print(f"{before}{machine:>7} | {text}{after}", flush=True)

    def say(self, text):
        with self._lock:
            bold, after = ("\x1b[1m", "\x1b[0m") if self.colors else ("", "")
            print(f"\n{bold}{text}{after}", flush=True)

    def type(self, machine, *words):
        self.line(machine, f"$ {shlex.join(words)}")

    def run(self, host, *words, text=None):
        self.type(host.name, *words)
        for line in host.run(*words, text=text, status=None)[1].splitlines():
            self.line(host.name, line)

    def follow(self, host, *words):
        """Starts a command that goes on, and shows what it prints from now on."""
        self.type(host.name, *words)
        program = host.start(f"terminal-{len(self._followed)}", *words)
        self._followed.append((host.name, Lines(program.log)))
        program.wait_for("observing")
        return program

    def _follow(self):
        while not self._over.wait(0.1):
            for machine, lines in self._followed:
                for line in lines.take():
                    self.line(machine, line)

    def finish(self):
        time.sleep(0.5)
        self._over.set()


def main():
    screen = Screen()
    with Lab() as lab:
        screen.say(f"Two machines and a broker, on {lab.network.kind}. The broker knows hosts by their certificates.")
        quick = {"Broker": {"keep-alive": 5}}
        desk = lab.host("desk", export="com.example.*", settings=quick)
        laptop = lab.host("laptop", user="bert", imports="com.example.*", settings=quick)
        for host in (desk, laptop):
            screen.line(host.name, f"bridge.conf: {'export' if host is desk else 'import'}=com.example.*")

        screen.say("A post here, an observer there, over TLS")
        screen.follow(laptop, "carillon", "observe", "--details", NAME)
        lab.broker.wait_subscribed("laptop", "carillon/1/home/+/+/n/com/example/Saved")
        screen.run(desk, "carillon", "post", NAME, "--object", "/home/anna/letter.txt", "pages=2")
        time.sleep(1)

        screen.say("The cable is pulled, and put back after four seconds")
        desk.pull_cable()
        screen.run(desk, "carillon", "post", NAME, "--object", "/home/anna/notes.txt", "pages=7")
        screen.run(desk, "carillon", "post", NAME, "--object", "/home/anna/notes.txt", "pages=8")
        time.sleep(4)
        screen.line("desk", "the cable is back")
        desk.put_cable_back()
        time.sleep(4)

        screen.say("Who is there")
        screen.run(laptop, "carillon", "get", HOST)
        screen.line("desk", "the bridge is killed")
        desk.bridge.kill()
        time.sleep(1)
        screen.run(laptop, "carillon", "get", HOST)

        screen.say("A machine without Carillon")
        screen.type("broker", "mosquitto_pub", "-t", "carillon/1/home/sensor/shed/n/com/example/Saved", "-m", '{"pages": 1}', "…")
        lab.broker.publish("sensor", "carillon/1/home/sensor/shed/n/com/example/Saved", '{"pages": 1}')
        time.sleep(1)
        screen.finish()
    return 0


if __name__ == "__main__":
    sys.exit(main())
