#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Counts what the service does for a notification, which no other load on the machine changes: instructions in user
space, by valgrind's callgrind, and system calls, by strace.

    counts.py BINARIES [--posts N] [--observers N …] [--ways WAY …] [--profile DIRECTORY] [--bus PROGRAM] [--json FILE]

BINARIES is a directory with optimised carillond, carillon-bus-load and carillon-library-load. Each figure is the difference of a run with
N posts and one with three times as many, so that starting and ending are not in it. A run has a bus, a service and a
directory for its state of its own. tools/bench --counts builds what is needed.

A poster has a pace: `window` waits for one answer in 64 posts, with at most 128 unanswered; `flood` waits for nothing;
`leisure` posts a hundred times a second, and each time the service is asleep.

Ways are `plain`, carillon-bus-load with single posts; `library`, both sides with the Swift library, which posts and hears
together what piles up; and `channel`, the same on a channel. The library has a window of its own, and no such pace.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "compare"))

from arguments import Parser, whole  # noqa: E402

PACES = {"window": [], "flood": ["--unpaced"], "leisure": ["--rate", "100"]}
PACES_OF_LIBRARY = {"flood": [], "leisure": ["--rate", "100"]}
WAYS = ("plain", "library", "channel")
SERVICE = "org.carillon.NotificationCenter1"
SIZE = 100
# For what should take a minute at most. Under valgrind, beside others, it may take that.
PATIENCE = 600


class Run:
    """One load on a bus and a service of its own, with the service under `tool`."""

    def __init__(self, options, way, tool, name):
        self.options = options
        self.way = way
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="carillon-counts-"))
        self.out = self.directory / name
        self.tool = tool(self.out)
        self.processes = []

    def __enter__(self):
        state = self.directory / "state"
        state.mkdir(mode=0o700)
        environment = dict(os.environ, XDG_RUNTIME_DIR=str(state), XDG_CONFIG_HOME=str(state), LC_ALL="C")
        environment.pop("DISPLAY", None)
        environment.pop("WAYLAND_DISPLAY", None)
        if self.way == "channel":
            environment["CARILLON_TRANSPORT"] = "channel"
        self.environment = environment
        bus = self.start([self.options.bus, "--session", "--nofork", "--nopidfile", "--print-address"])
        environment["DBUS_SESSION_BUS_ADDRESS"] = bus.stdout.readline().strip()
        self.service = self.start([*self.tool, str(self.options.service or self.options.binaries / "carillond")])
        self.wait_for_service()
        return self

    def __exit__(self, *_):
        for process in reversed(self.processes):
            if process.poll() is None:
                process.kill()
            process.wait()
            process.stdout.close()
        shutil.rmtree(self.directory)

    def start(self, command):
        process = subprocess.Popen(command, env=self.environment, stdout=subprocess.PIPE, text=True)
        self.processes.append(process)
        return process

    def wait_for_service(self):
        wait = ["gdbus", "wait", "--session", "--timeout", str(PATIENCE), SERVICE]
        subprocess.run(wait, env=self.environment, check=True)

    def load(self, role, *arguments):
        program = "carillon-bus-load" if self.way == "plain" else "carillon-library-load"
        return self.start([str(self.options.binaries / program), role, "load", *arguments])

    def post(self, observers, posts, pace):
        receivers = [self.load("observe") for _ in range(observers)]
        for receiver in receivers:
            if not receiver.stdout.readline().startswith("ready"):
                raise RuntimeError("an observer could not register")
        paces = PACES if self.way == "plain" else PACES_OF_LIBRARY
        poster = self.load("post", "--count", str(posts), "--size", str(SIZE), *paces[pace])
        if poster.wait(PATIENCE):
            raise RuntimeError("the poster failed")
        for receiver in receivers:
            report = dict(item.split("=") for item in receiver.stdout.readline().split())
            if report["received"] != str(posts) or report["faults"] != "0":
                raise RuntimeError(f"an observer got {report}, of {posts} posts")

    def end(self):
        """Ends the service, and waits for it and its tool."""
        self.service_process().send_signal(signal.SIGTERM)
        self.service.wait(PATIENCE)

    def service_process(self):
        # strace runs it as a child and would die of the signal itself; valgrind is the service.
        children = pathlib.Path(f"/proc/{self.service.pid}/task/{self.service.pid}/children").read_text().split()
        return ProcessByID(int(children[0])) if children else self.service


class ProcessByID:
    def __init__(self, pid):
        self.pid = pid

    def send_signal(self, number):
        os.kill(self.pid, number)


def callgrind(out):
    return ["valgrind", "--quiet", "--tool=callgrind", f"--callgrind-out-file={out}"]


def strace(out):
    return ["strace", "--follow-forks", "--summary-only", "--output", str(out)]


def instructions(options, way, observers, posts, pace):
    name = f"callgrind.{way}-{observers}-{pace}-{posts}"
    with Run(options, way, callgrind, name) as run:
        run.post(observers, posts, pace)
        run.end()
        text = run.out.read_text()
        if options.profile:
            options.profile.mkdir(parents=True, exist_ok=True)
            shutil.copy(run.out, options.profile / name)
        return int(re.search(r"^(?:summary|totals): (\d+)", text, re.MULTILINE).group(1))


def system_calls(options, way, observers, posts, pace):
    with Run(options, way, strace, "strace") as run:
        run.post(observers, posts, pace)
        run.end()
        counts = {}
        for line in run.out.read_text().splitlines():
            found = re.match(r"\s*[\d.]+\s+[\d.]+\s+\d+\s+(\d+)\s+(?:\d+\s+)?(\w+)$", line)
            if found and found.group(2) != "total":
                counts[found.group(2)] = int(found.group(1))
        return counts


def difference(count, options, way, observers, pace):
    """Of each of the things that `count` counts, or of the one, for a post."""
    posts = options.posts
    few, many = (count(options, way, observers, number, pace) for number in (posts, 3 * posts))
    if isinstance(few, int):
        return (many - few) / (2 * posts)
    names = sorted(many, key=lambda name: few.get(name, 0) - many[name])
    return {name: (many[name] - few.get(name, 0)) / (2 * posts) for name in names}


def main():
    parser = Parser(prog="tools/bench --counts", description=__doc__.split("\n\n")[0])
    parser.add_argument("binaries", type=pathlib.Path, nargs="?", help=argparse.SUPPRESS)
    parser.add_argument("--parse", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--posts", type=whole(1, 10**7), default=1000)
    parser.add_argument("--observers", type=whole(0, 10**5), nargs="*", default=[0, 1, 10])
    parser.add_argument("--pace", choices=PACES, nargs="*", default=list(PACES))
    parser.add_argument("--ways", choices=WAYS, nargs="+", default=["plain"])
    parser.add_argument("--only", choices=["instructions", "system-calls"])
    parser.add_argument("--bus", metavar="PROGRAM", default="dbus-daemon")
    parser.add_argument("--service", type=pathlib.Path, help="instead of carillond in BINARIES")
    parser.add_argument("--profile", type=pathlib.Path, help="keep callgrind's files there")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write what the last pace came to there, too")
    options = parser.parse_args()
    if options.parse and options.binaries:  # before what they are for is built
        parser.error(f"unexpected argument {str(options.binaries)!r}")
    if options.parse:
        return 0
    if not options.binaries:
        parser.error("needs the directory of the programs")

    figures = {way: {"instructions": {}, "system calls": {}} for way in options.ways}
    for way in options.ways:
        paces = [pace for pace in options.pace if way == "plain" or pace in PACES_OF_LIBRARY]
        if options.only != "system-calls":
            print(f"| {way}: instructions of the service for a post, by observers | " + " | ".join(paces) + " |")
            print("|---" * (len(paces) + 1) + "|")
            for observers in options.observers:
                found = [difference(instructions, options, way, observers, pace) for pace in paces]
                print(f"| {observers} | " + " | ".join(f"{count:,.0f}" for count in found) + " |", flush=True)
                figures[way]["instructions"][observers] = found[-1]
            print()
        if options.only != "instructions":
            print(f"| {way}: system calls of the service for a post, by observers and pace | all | of them |")
            print("|---|---|---|")
            for observers in options.observers:
                for pace in paces:
                    calls = difference(system_calls, options, way, observers, pace)
                    most = ", ".join(f"{name} {count:.2f}" for name, count in calls.items() if count >= 0.01)
                    print(f"| {observers}, {pace} | {sum(calls.values()):.2f} | {most} |", flush=True)
                    figures[way]["system calls"][observers] = calls
            print()
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
