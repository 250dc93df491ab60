# SPDX-FileCopyrightText: The Carillon authors
# SPDX-License-Identifier: Apache-2.0
"""hosts.py [--hosts N] [--rest SECONDS] [--json FILE]: what carillon-bridge costs with N hosts on one broker.

Run by `tools/bench --bridge`. All hosts are on this machine, each with a bus, carillond and carillon-bridge of its own,
and reach one mosquitto over TLS, with a certificate each, by the loopback interface of a network namespace that has
nothing else in it. Prints tables in Markdown; docs/beyond.md says what they show."""

import argparse
import json
import os
import statistics
import sys
import time

import gi

gi.require_version("Gio", "2.0")
from gi.repository import Gio, GLib  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "Tests", "Bridge"))
import network  # noqa: E402
import tables  # noqa: E402
from host import SERVICE, SERVICE_PATH  # noqa: E402
from lab import Lab  # noqa: E402
from programs import wake_ups, wait_until  # noqa: E402

NAME = "com.example.Load"
#: What a notification holds in these measurements: about 100 bytes.
PADDING = "x" * 70
#: Notifications in each run for latency, one after the other with a pause, and in each for throughput.
SINGLE, MANY = 300, 20_000
#: Posts of which every host gets each.
WIDE = 50
#: Names for each of two hosts, to see what a filter costs the broker; each name has two.
FILTERS = 1500
BROKER = "log_type error\nlog_type notice\nlog_type information\nlog_type subscribe\nmax_queued_messages 100000\n" \
         "sys_interval 0\npersistence false\nset_tcp_nodelay true\n"


def progress(text):
    print(f"bench: {text}", file=sys.stderr, flush=True)


class Loopback(network.Loopback):
    """Without relays, which would be measured, too."""

    def add(self, name):
        self._machines[name] = "127.0.0.1"
        return "127.0.0.1"

    def server_addresses(self, _name):
        return ["127.0.0.1"]

    def reach(self, _name, server):
        return self.listen(server)


class Ear:
    """A connection to the bus of a host that posts and observes; what it gets has the time when it came."""

    def __init__(self, host, *names):
        self.host = host
        self.connection = Gio.DBusConnection.new_for_address_sync(
            host.environment["DBUS_SESSION_BUS_ADDRESS"],
            Gio.DBusConnectionFlags.AUTHENTICATION_CLIENT | Gio.DBusConnectionFlags.MESSAGE_BUS_CONNECTION, None, None,
        )
        self.connection.set_exit_on_close(False)
        self.times = []
        self.connection.signal_subscribe(
            None, SERVICE, "Notification", None, None, Gio.DBusSignalFlags.NO_MATCH_RULE,
            lambda *arguments: self.times.append(time.monotonic_ns()))
        for name in names:
            self.call("AddObserver", GLib.Variant("(ssa{sv})", (name, "", {})))

    def call(self, method, arguments):
        return self.connection.call_sync(
            SERVICE, SERVICE_PATH, SERVICE, method, arguments, None, Gio.DBusCallFlags.NONE, 60_000, None)

    def post(self, name, number):
        """Posts without waiting for the answer. Returns when."""
        user_info = {"n": GLib.Variant("x", number), "padding": GLib.Variant("s", PADDING)}
        moment = time.monotonic_ns()
        self.connection.call(
            SERVICE, SERVICE_PATH, SERVICE, "Post", GLib.Variant("(ssa{sv}a{sv})", (name, "", user_info, {})), None,
            Gio.DBusCallFlags.NONE, 60_000, None, None)
        return moment

    def wait(self, count):
        """Runs the loop until so many have come in all."""
        context = GLib.MainContext.default()
        deadline = time.monotonic() + 120
        while len(self.times) < count:
            timer = GLib.timeout_add(1000, lambda: GLib.SOURCE_REMOVE)
            context.iteration(True)
            if context.find_source_by_id(timer) is not None:
                GLib.source_remove(timer)
            if time.monotonic() > deadline:
                raise AssertionError(f"{self.host.name} got {len(self.times)} of {count}:\n{self.host.bridge.tail()}")


# What the kernel counts


def memory(pid):
    """KiB: shared out among those who share (PSS), written by it alone, and all that is resident."""
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
        fields = {line.split(":")[0]: int(line.split()[1]) for line in file if line.endswith("kB\n")}
    return {"pss": fields["Pss"], "own": fields["Private_Dirty"], "rss": fields["Rss"]}


def processor_time(pid):
    total = 0
    for thread in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{thread}/schedstat", encoding="ascii") as file:
            total += int(file.read().split()[0])
    return total / 1e9


def traffic():
    """Bytes and packets that went over loopback, where each is counted once as sent."""
    with open("/proc/self/net/dev", encoding="ascii") as file:
        fields = next(line for line in file if line.strip().startswith("lo:")).split(":")[1].split()
    return int(fields[8]), int(fields[9])


def connections():
    """Established connections in this namespace, by their end at the broker's port."""
    with open("/proc/self/net/tcp", encoding="ascii") as file:
        return [line.split()[1] for line in file if line.split()[3] == "01"]


def percentile(values, percent):
    values = sorted(values)
    return values[min(len(values) - 1, len(values) * percent // 100)]


# The measurements


def start_hosts(lab, count):
    hosts = []
    for number in range(count):
        # `carillon post` is faster than a bridge: what waits for it is to fit.
        hosts.append(lab.host(f"h{number}", export="com.example.*", imports="com.example.*", bridge=False,
                              settings={"Limits": {"queue": MANY}}))  # fmt: skip
        hosts[-1].start_bridge(wait=False)
        if number % 10 == 9:
            progress(f"{number + 1} hosts have been started")
    for host in hosts:
        host.wait_connected()
    return hosts


def settled(pids):
    """Waits until five seconds have gone by in which hardly anything was done."""
    def rests():
        before = sum(processor_time(pid) for pid in pids)
        time.sleep(5)
        return sum(processor_time(pid) for pid in pids) - before < 0.02 + 0.0005 * len(pids)

    wait_until(rests, "rest", 300)


def at_rest(lab, hosts, seconds):
    bridges = [host.bridge.pid for host in hosts]
    settled([*bridges, lab.broker.program.pid])
    progress(f"at rest for {seconds} s")
    before = traffic(), [wake_ups(pid) for pid in bridges], [processor_time(pid) for pid in bridges], \
        processor_time(lab.broker.program.pid)
    time.sleep(seconds)
    (more_bytes, more_packets), wakes = traffic(), [wake_ups(pid) for pid in bridges]
    minutes = seconds / 60
    return {
        "bytes": (more_bytes - before[0][0]) / len(hosts) / minutes,
        "packets": (more_packets - before[0][1]) / len(hosts) / minutes,
        "wake-ups": sum(b - a for a, b in zip(before[1], wakes)) / len(hosts) / minutes,
        "bridge processor ms": 1e3 * (sum(map(processor_time, bridges)) - sum(before[2])) / len(hosts) / minutes,
        "broker processor ms": 1e3 * (processor_time(lab.broker.program.pid) - before[3]) / len(hosts) / minutes,
    }


def latency(poster, observer, name):
    """Microseconds from the post to the arrival, one after the other."""
    values = []
    for number in range(SINGLE):
        count = len(observer.times)
        moment = poster.post(name, number)
        observer.wait(count + 1)
        values.append((observer.times[count] - moment) / 1000)
        time.sleep(0.005)
    return {"median": statistics.median(values), "p99": percentile(values, 99)}


def throughput(here, there):
    """Messages in a second through one bridge out and one in, as fast as `carillon post` posts."""
    observer = there.observe("com.example.Many", options=["--count", str(MANY)])
    there.broker.wait_subscribed(there.name, "carillon/1/home/+/+/n/com/example/Many")
    # While the broker is asked for the values of a name, what is published comes by that subscription, too.
    time.sleep(5)
    watched = {"bridge out": here.bridge.pid, "bridge in": there.bridge.pid, "broker": there.broker.program.pid}
    before = {what: processor_time(pid) for what, pid in watched.items()}
    began, (bytes_before, packets_before) = time.monotonic(), traffic()
    here.run("carillon", "post", "com.example.Many", f"--repeat={MANY}", "n=1", f"padding={PADDING}", seconds=300)
    posted = time.monotonic() - began
    observer.program.wait(60)
    seconds = time.monotonic() - began
    bytes_after, packets_after = traffic()
    used = {what: 1e6 * (processor_time(pid) - before[what]) / MANY for what, pid in watched.items()}
    return {"bytes": (bytes_after - bytes_before) / MANY, "packets": (packets_after - packets_before) / MANY,
            "a second": MANY / seconds, "posted a second": MANY / posted, "processor us": used,
            "lost": here.status()["lost-out"] + there.status()["lost-in"]}  # fmt: skip


def fan_out(ears):
    """One post after the other that all hosts get: milliseconds until the last has it, and deliveries in a second."""
    poster, others = ears[0], ears[1:]
    spans = []
    for number in range(WIDE):
        counts = [len(ear.times) for ear in others]
        moment = poster.post(NAME, number)
        for ear, count in zip(others, counts):
            ear.wait(count + 1)
        spans.append((max(ear.times[-1] for ear in others) - moment) / 1e6)
    return {"receivers": len(others), "median ms": statistics.median(spans), "p99 ms": percentile(spans, 99)}


def filter_memory(lab, hosts):
    """Bytes of the broker for a filter that nobody else has."""
    before = memory(lab.broker.program.pid)["own"]
    names = [f"com.example.filters.N{number}" for number in range(FILTERS)]
    ears = [Ear(host, *(f"{name}.{host.name}" for name in names)) for host in hosts[:2]]
    for ear in ears:
        last = f"{names[-1]}.{ear.host.name}".replace(".", "/")
        lab.broker.wait_subscribed(ear.host.name, f"carillon/1/home/+/+/n/{last}")
    return (memory(lab.broker.program.pid)["own"] - before) * 1024 / (2 * FILTERS * len(ears))


def measure(count, rest):
    figures = {"hosts": count, "processors": os.cpu_count(), "rest": rest}
    with Lab(settings=BROKER, network_=Loopback()) as lab:
        settled([lab.broker.program.pid])
        figures["broker alone"] = memory(lab.broker.program.pid)
        hosts = start_hosts(lab, count)
        ears = [Ear(host, NAME) for host in hosts]
        for host in hosts:
            lab.broker.wait_subscribed(host.name, "carillon/1/home/+/+/n/com/example/Load")
        port = f":{lab.network.listen('broker')[1]:04X}"
        figures["connections"] = len([end for end in connections() if end.endswith(port)])
        figures["at rest"] = at_rest(lab, hosts, rest)
        figures["memory"] = {
            what: {kind: statistics.median(memory(getattr(host, what).pid)[kind] for host in hosts)
                   for kind in ("pss", "own", "rss")}
            for what in ("bridge", "service", "bus")
        }  # fmt: skip
        figures["broker"] = memory(lab.broker.program.pid)
        # Before any load, of which memory would be left that is used again.
        progress("filters")
        figures["bytes for a filter"] = filter_memory(lab, hosts)
        progress("latency")
        local = Ear(hosts[0], "org.example.Local")
        figures["latency in one session"] = latency(ears[0], local, "org.example.Local")
        # Of a name that nobody else wants.
        other = Ear(hosts[1], "com.example.Single")
        lab.broker.wait_subscribed(hosts[1].name, "carillon/1/home/+/+/n/com/example/Single")
        figures["latency"] = latency(ears[0], other, "com.example.Single")
        progress("all hosts get each")
        figures["fan-out"] = fan_out(ears)
        progress("throughput")
        figures["throughput"] = throughput(hosts[0], hosts[1])
        figures["broker after load"] = memory(lab.broker.program.pid)
    return figures


def main():
    parser = argparse.ArgumentParser(prog="tools/bench --bridge")
    parser.add_argument("--hosts", type=int, default=100)
    parser.add_argument("--rest", type=int, default=240)
    parser.add_argument("--json", metavar="FILE")
    arguments = parser.parse_args()
    figures = measure(max(2, arguments.hosts), arguments.rest)
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(figures, file, indent=1)
            file.write("\n")
    print(tables.measured(figures))
    if figures["throughput"]["lost"]:
        print(f"bench: {figures['throughput']['lost']} notifications were lost", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
