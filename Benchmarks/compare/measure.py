# SPDX-License-Identifier: Apache-2.0
"""What is measured: every function adds to the figures of one question.

Figures are lists with one value of each round, in the order of the rounds, so that those of two ways that were measured
one after the other can be compared."""

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from processes import PATIENCE, Failure, Process, fields, resident, wake_ups
from ways import ROOT, BusWay

NAME = "org.carillon.load"
SIZE = 100
OBSERVERS = (1, 10, 50)
AMONG = (1, 10_000, 100_000)
POSTS = {1: 40_000, 10: 10_000, 50: 3_000}
RATE = 500
IDLE_SECONDS = 60


def progress(text):
    print(f"bench: {text}", file=sys.stderr, flush=True)


class Load:
    """Observers of a way that are ready, and runs of posters."""

    def __init__(self, server, observers, others=0, stopped=0):
        self.server = server
        self.observers = []
        self.stopped = []
        try:
            for _ in range(observers + stopped):
                self.observers.append(server.observe(NAME, "--others", others))
            for observer in self.observers:
                observer.line("ready", 300)
            server.wait_until_settled(len(self.observers))
        except BaseException:  # nothing of it stays behind
            self.stop()
            raise
        for _ in range(stopped):
            self.stopped.append(self.observers.pop())
            os.kill(self.stopped[-1].pid, signal.SIGSTOP)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self):
        # What is stopped does not end before it goes on.
        for observer in self.stopped:
            observer.stop(signal.SIGKILL)
        for observer in self.observers:
            observer.stop()

    def run(self, posts, rate=0, patience=PATIENCE):
        before = self.server.processor_time()
        poster = self.server.post(NAME, "--count", posts, "--size", SIZE, "--rate", rate)
        try:
            posted = fields(poster.line("posted=", patience))
        finally:
            poster.stop()
        reports = [self._report(observer) for observer in self.observers]
        received = sum(report["received"] for report in reports)
        last = max(report["last-at"] for report in reports)
        clients = posted["cpu-us"] + sum(report["cpu-us"] for report in reports)
        servers = self.server.processor_time() - before
        return {
            "rate": received / ((last - posted["first-at"]) / 1e9),
            "lost": len(reports) * posts - received,
            "faults": sum(report["faults"] for report in reports),
            # Seconds for 10,000 deliveries.
            "servers": servers * 1e4 / received,
            "all": (servers + clients / 1e6) * 1e4 / received,
            "p50": statistics.median(report["p50"] for report in reports) / 1e3,
            "p99": statistics.median(report["p99"] for report in reports) / 1e3,
        }

    def _report(self, observer):
        for patience in (30, 5, 5):
            try:
                return fields(observer.line("received=", patience))
            except Failure:
                if observer.process.poll() is not None:
                    raise
                # The end was lost, as other posts may have been.
                poster = self.server.post(NAME, "--count", 0)
                poster.line("posted=")
                poster.stop()
        raise Failure(f"{observer}: nothing arrived")


class Figures:
    """What was measured, as it is in the file."""

    def __init__(self, ways, rounds):
        self.ways = ways
        self.data = {"rounds": rounds, "questions": {}, "lost": {}, "out of order": {}, "failed": {}}

    def add(self, question, way, key, value):
        of_way = self.data["questions"].setdefault(question, {}).setdefault(way.key, {})
        of_way.setdefault(str(key), []).append(value)

    def note(self, way, result):
        """Counts what no run may have."""
        for key, name in (("lost", "lost"), ("faults", "out of order")):
            self.data[name][way.key] = self.data[name].get(way.key, 0) + result[key]

    def failed(self, way, question, failure):
        key = way.key if way else "all"
        progress(f"{key}: {question}: {failure}")
        self.data["failed"].setdefault(key, []).append(f"{question}: {failure}")


def attempt(figures, way, question, action):
    """What one way can't do does not end the others."""
    try:
        action()
    except (Failure, OSError, subprocess.CalledProcessError) as failure:
        figures.failed(way, question, failure)


def loads(figures, tools, rounds, questions):
    """Throughput, latency, processor time, memory, and one observer that is stopped. All ways are measured in turn in
    each round, so that what else the machine does hits them alike."""
    servers = []
    for way in figures.ways:
        attempt(figures, way, "start", lambda way=way: servers.append(way.start(tools)))
    try:
        for server in servers:
            figures.add("memory", server.way, "idle", server.memory())
        for number in range(rounds):
            progress(f"loads, round {number + 1} of {rounds}")
            for step in (_throughput, _latency):
                for server in servers:
                    attempt(figures, server.way, step.__name__[1:], lambda: step(figures, server, questions))
        for server in servers:
            figures.add("memory", server.way, "loaded", server.memory())
    finally:
        for server in servers:
            server.stop()


def _throughput(figures, server, questions):
    way = server.way
    for observers in OBSERVERS if "throughput" in questions else [10] if "stopped" in questions else []:
        posts = int(POSTS[observers] * way.posts)
        with Load(server, observers) as load:
            result = load.run(posts)
        figures.note(way, result)
        figures.add("throughput", way, observers, result["rate"])
        figures.add("processor time of servers", way, observers, result["servers"])
        figures.add("processor time of all", way, observers, result["all"])
        if observers == 10 and "stopped" in questions:
            attempt(figures, way, "stopped", lambda: _stopped(figures, server, posts, result["rate"]))


def _stopped(figures, server, posts, rate):
    """Beside the run of as many posts to ten observers that was just made."""
    with Load(server, 10, stopped=1) as load:
        result = load.run(posts, patience=20)
    figures.note(server.way, result)
    figures.add("stopped", server.way, "kept", result["rate"] / rate)


def _latency(figures, server, questions):
    if "latency" not in questions:
        return
    with Load(server, 1) as load:
        result = load.run(2 * RATE, RATE)
    figures.note(server.way, result)
    figures.add("latency", server.way, "p50", result["p50"])
    figures.add("latency", server.way, "p99", result["p99"])


def names(figures, tools, rounds):
    """One name among others; and the memory when a hundred thousand registrations have left."""
    left = []
    try:
        for way in figures.ways:
            attempt(figures, way, "names", lambda way=way: left.append(_names(figures, way, tools, rounds)))
        if not left:
            return
        progress(f"memory, {IDLE_SECONDS} s after the registrations left; and wake-ups")
        rest = Rest(tools)
        time.sleep(IDLE_SECONDS)
        figures.data.setdefault("service", {}).update(rest.figures())
        rest.stop()
        for server, idle in left:
            figures.add("memory", server.way, "left", server.memory())
            if server.service:
                figures.add("memory", server.way, "service idle", idle)
                figures.add("memory", server.way, "service left", resident(server.service.pid))
    finally:
        for server, _ in left:
            server.stop()


def _names(figures, way, tools, rounds):
    progress(f"names, {way.key}")
    servers, started = [], []
    idle = None
    try:
        for among in AMONG:
            servers.append(way.start(tools, has_many=True))
            if servers[-1].service:
                time.sleep(0.2)
                idle = resident(servers[-1].service.pid)
            started.append(Load(servers[-1], 1, others=among - 1))
        figures.add("memory", way, "registered", servers[-1].memory())
        for _ in range(rounds):
            for among, load in zip(AMONG, started):
                result = load.run(way.among.get(among) or int(20_000 * way.posts))
                figures.note(way, result)
                figures.add("names", way, among, result["rate"])
    except BaseException:  # nothing of it stays behind
        for load in started:
            load.stop()
        for server in servers:
            server.stop()
        raise
    for load in started:
        load.stop()
    for server in servers[:-1]:
        server.stop()
    return servers[-1], idle


class Rest:
    """A service with one observer, at rest."""

    def __init__(self, tools):
        self.server = BusWay("plain", "", "dbus-daemon").start(tools)
        self.load = Load(self.server, 1)
        time.sleep(2)
        self.start = time.monotonic()
        self.before = wake_ups(self.server.service.pid)

    def figures(self):
        pid = self.server.service.pid
        seconds = round(time.monotonic() - self.start)
        return {"wake-ups": wake_ups(pid) - self.before, "idle seconds": seconds, "resident": [resident(pid)]}

    def stop(self):
        self.load.stop()
        self.server.stop()


def start_up(figures, tools, times):
    """Milliseconds until the answer to a call that makes the bus start the service, and to the next."""
    first, second = [], []
    for _ in range(times):
        # One that starts the service when it is called.
        with BusWay("raw", "", "dbus-daemon").start(tools) as server:
            call = Process([tools.binaries / "carillon-bus-load", "call"], server.environment, tools.log)
            result = fields(call.line("first="))
            call.stop()
        first.append(result["first"] / 1e6)
        second.append(result["second"] / 1e6)
    figures.data.setdefault("service", {}).update({"first call": first, "next call": second})


def counts(figures, tools, posts):
    """Instructions and system calls, which no other load on the machine changes."""
    with tempfile.NamedTemporaryFile("r", suffix=".json") as file:
        progress("counts")
        command = [sys.executable, ROOT / "Benchmarks" / "counts.py", tools.binaries, "--posts", str(posts)]
        command += ["--service", tools.service, "--observers", "0", "10", "--pace", "flood", "--json", file.name, "--ways", "plain", "library"]
        if tools.missing_channels() is None:
            command.append("channel")
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=tools.log)
        figures.data["counts"] = json.load(file)


def short(ways, tools):
    """Whether the programs work, and nothing is lost or out of order; of mosquitto, that drops, only the first."""
    status = 0
    for way in ways:
        try:
            with way.start(tools) as server, Load(server, 3) as load:
                result = load.run(1000)
        except (Failure, OSError, subprocess.CalledProcessError) as failure:
            print(f"{way.key}: {failure}")
            status = 1
            continue
        print(f"{way.key}: lost {result['lost']}, out of order {result['faults']}")
        if result["faults"] or (result["lost"] and way.kind):
            status = 1
    return status
