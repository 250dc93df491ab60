# SPDX-FileCopyrightText: The Carillon authors
# SPDX-License-Identifier: Apache-2.0
"""The program behind `tools/chaos --lives`: what short lives of clients leave in the memory of the service.

A session has hundreds of thousands of them: commands that post and end, programs that register, ask and leave. Each kind
comes and goes many times, until all that is kept of those who left is full, and then as often again. Between the second
time and the third the service may not have grown.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time

try:
    import gi

    gi.require_version("Gio", "2.0")
    from gi.repository import Gio, GLib  # noqa: F401
except (ImportError, ValueError) as problem:
    print(f"cannot run: {problem} (needs python3-gi)", file=sys.stderr)
    sys.exit(77)

import buses  # noqa: E402
from contract import BUS_NAME, INTERFACE, PROPERTIES  # noqa: E402
from watch import resident_bytes  # noqa: E402
from wire import Connection, add_observer, asked, message, post  # noqa: E402

V = GLib.Variant
PING = message("Ping", interface="org.freedesktop.DBus.Peer", answer=True)

#: Seconds of rest after which the service has given back what a load needed.
REST = 2.5
#: What the memory may grow by, in bytes: pages that are in use in part, and for each life.
MOST_GROWTH, MOST_PER_LIFE = 160 << 10, 16
#: How often they come at most, until the service does not grow any more.
MOST_TIMES = 6


def options(**values):
    """Options of a post or an observer, by their names with underscores."""
    types = {bool: "b", int: "u", str: "s", list: "as"}
    return {name.replace("_", "-"): V(types[type(value)], value) for name, value in values.items()}


def life(*contents, ask=None):
    """One that sends this, makes a call at the end and reads its answer, unless it leaves at once, and leaves."""
    def live(number):
        with Connection() as connection:
            connection.send(b"".join(make(number) for make in contents))
            if ask:
                connection.raw_answer_to(asked([ask(number)]))
    return live


def suspended(number):
    return message("SetSuspended", V("(b)", (True,)))


def observing(**wanted):
    return lambda number: add_observer("life", f"o{number}", options(**wanted))


def posting(**wanted):
    return lambda number: post("life", f"o{number}", None, options(**wanted))


def asking_for(member, signature=None, values=()):
    return lambda number: message(member, V(signature, values) if signature else None, answer=True)


def ping(number):
    return PING


def of_two(number):
    """Somebody says that a client is suspended, and both leave."""
    with Connection() as one, Connection() as two:
        one.send(add_observer("life"))
        one.raw_answer_to(asked([PING]))
        two.raw_answer_to(
            asked([message("OverrideSuspension", V("(ss)", (one.name, "suspended")), answer=True)]))


LIVES = {
    "post": life(posting()),
    "post-refused": life(lambda number: post("")),
    "post-answered": life(posting(), ask=ping),
    "post-at-exit": life(posting(posting_style="at-exit", coalesce_on=["name"]), ask=ping),
    "value": life(lambda number: post("life", "value", None, options(retain=True)), ask=ping),
    "value-while-connected": life(posting(retain=True, while_connected=True), ask=ping),
    "value-that-expires": life(
        lambda number: post("life", f"o{number % 50}", None, options(retain=True, expires_after=1)), ask=ping),
    "observer": life(observing(), posting(), ask=ping),
    "observer-that-leaves-at-once": life(observing()),
    "observer-that-is-removed": life(
        observing(), lambda number: message("RemoveObservers", V("(ss)", ("", ""))), ask=ping),
    "observer-of-values": life(observing(retained=True), ask=ping),
    "observer-with-interval": life(observing(minimum_interval=60_000), posting(), posting(), ask=ping),
    "suspended": life(observing(suspension_behavior="hold"), suspended, posting(), ask=ping),
    "suspended-by-another": of_two,
    "unread": life(observing(), *[posting()] * 80),
    "channel": life(asking_for("OpenChannel", "(a{sv})", ({},))),
    "follow-interest": life(ask=asking_for("FollowInterest", "(su)", ("", 1))),
    "follow-values": life(ask=asking_for("FollowValues", "(tu)", (0, 1))),
    "options": life(
        lambda number: message("SetClientOptions", V("(a{sv})", (options(batches=True, details=["uid", "app"]),))), ask=ping),
    "ping": life(ask=ping),
    "lists": life(ask=asking_for("ListClients")),
    "explain": life(ask=asking_for("Explain", "(sss)", (":1.4711", "life", ""))),
    "properties": life(
        ask=lambda number: message("Get", V("(ss)", (INTERFACE, "Statistics")), interface=PROPERTIES, answer=True)),
    "unknown-call": life(ask=asking_for("Nothing")),
}


def arguments():
    parser = argparse.ArgumentParser(prog="tools/chaos --lives", allow_abbrev=False)
    parser.add_argument("--binaries", required=True, help="the directory with carillond")
    parser.add_argument("--bus", choices=[*buses.KINDS, "both"], default="both")
    parser.add_argument("--count", type=int, default=3000, help="lives of a kind, each time")
    parser.add_argument("--together", action="store_true", help="all kinds with one service")
    return parser.parse_args()


def live(address, kinds, count):
    """Lives of these kinds, in a process of its own. Its status."""
    pid = os.fork()
    if pid == 0:
        os.environ["DBUS_SESSION_BUS_ADDRESS"] = address
        try:
            for kind in kinds:
                for number in range(count):
                    LIVES[kind](number)
        except BaseException as problem:  # pylint: disable=broad-exception-caught
            print(f"{kind}: {problem!r}", file=sys.stderr)
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def try_kinds(kinds, bus_kind, options_):
    """Whether the service stops growing: from the third time on, and the sixth at last."""
    directory = tempfile.mkdtemp(prefix="carillon-lives-")
    bus = buses.Bus(bus_kind, directory, "/bin/false")
    executable = os.path.join(options_.binaries, "carillond")
    with open(os.path.join(directory, "carillond.log"), "wb") as log:
        service = subprocess.Popen([executable], env=bus.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        sizes = []
        wait_until_there(bus)
        most = MOST_GROWTH + MOST_PER_LIFE * options_.count
        # What stays of each life stays each time; a table that grows, or a rest that was too short on a busy machine, is
        # over some time.
        while len(sizes) < 3 or sizes[-1] - sizes[-2] > most and len(sizes) < MOST_TIMES:
            if live(bus.address, kinds, options_.count) != 0:
                return False
            time.sleep(REST)
            sizes.append(resident_bytes(service.pid, "RssAnon"))
            if service.poll() is not None:
                print(f"the service ended with {service.returncode}", file=sys.stderr)
                return False
        grown = sizes[-1] - sizes[-2]
        name = kinds[0] if len(kinds) == 1 else "all kinds together"
        verdict = "" if grown <= most else f"   TOO MUCH: {most >> 10} KiB at most"
        print(f"{name:32}{bus_kind:12}" + "".join(f"{size >> 10:7}" for size in sizes) + f" KiB {grown >> 10:+6}{verdict}", flush=True)
        return not verdict
    finally:
        if service.poll() is None:
            service.kill()
        service.wait()
        bus.stop()
        shutil.rmtree(directory, ignore_errors=True)


def wait_until_there(bus):
    """Returns when the service answers."""
    os.environ["DBUS_SESSION_BUS_ADDRESS"] = bus.address
    end = time.monotonic() + 20
    while time.monotonic() < end:
        with Connection() as connection:
            answer = connection.raw_answer_to(asked([message(
                "GetNameOwner", V("(s)", (BUS_NAME,)), destination="org.freedesktop.DBus",
                path="/org/freedesktop/DBus", interface="org.freedesktop.DBus", answer=True)]))
        if answer[1] == 2:
            return
        time.sleep(0.05)
    raise SystemExit("the service does not answer")


def main():
    options_ = arguments()
    kinds = buses.KINDS if options_.bus == "both" else [options_.bus]
    groups = [list(LIVES)] if options_.together else [[kind] for kind in LIVES]
    print(f"{'lives':32}{'bus':12}  memory after {options_.count} of each, as many again, and again; what the last added")
    results = [try_kinds(group, kind, options_) for kind in kinds for group in groups]
    print(f"{results.count(False)} of {len(results)} left something behind" if False in results else "nothing was left behind")
    return 1 if False in results else 0


if __name__ == "__main__":
    sys.exit(main())
