#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Measures the notification center beside raw D-Bus broadcasts and beside other programs that carry notifications, in
one run and in turn. docs/performance.md says what is measured and how; tools/bench builds what is needed."""

import argparse
import datetime
import json
import os
import pathlib
import platform
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from arguments import Parser, whole  # noqa: E402

QUESTIONS = ("throughput", "latency", "stopped", "names", "start-up", "counts")


def options():
    parser = Parser(prog="tools/bench", description=__doc__)
    parser.add_argument("--binaries", type=pathlib.Path, help=argparse.SUPPRESS)
    parser.add_argument("--service", type=pathlib.Path, help=argparse.SUPPRESS)
    parser.add_argument("--parse", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write all figures there, too")
    parser.add_argument("--only", choices=QUESTIONS, nargs="+", metavar="QUESTION",
                        help="measure only these: " + ", ".join(QUESTIONS))
    parser.add_argument("--ways", nargs="+", metavar="WAY", help="measure only these ways, by the names in the figures")
    parser.add_argument("--rounds", type=whole(1, 1000), default=3, metavar="N", help="of each measurement; 3 by default")
    parser.add_argument("--short", action="store_true",
                        help="only whether the programs work, and nothing is lost or out of order")
    parser.add_argument("--report", action="store_true",
                        help="rewrite docs/performance/figures.json, and the tables and plots of docs/performance.md")
    parser.add_argument("--draw", action="store_true",
                        help="rewrite the tables and plots of docs/performance.md from its figures; measures nothing")
    parser.add_argument("--check", action="store_true",
                        help="whether the tables and plots of docs/performance.md are those of its figures")
    arguments = parser.parse_args()
    if arguments.short and (arguments.only or arguments.json or arguments.report):
        parser.error("--short measures nothing, so it can't be combined with --only, --json or --report")
    arguments.only = arguments.only or list(QUESTIONS)
    if arguments.ways:
        check_ways(parser, arguments.ways)
    return arguments


def check_ways(parser, chosen):
    try:
        from ways import WAYS
    except (ImportError, ValueError):  # what it needs may not be installed yet
        return
    known = [way.key for way in WAYS]
    for key in chosen:
        if key not in known:
            parser.error(f"--ways can't be {key!r}, but some of: {' '.join(known)}")


def machine():
    """What the figures depend on."""
    def ask(*command):
        try:
            return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
        except (OSError, subprocess.CalledProcessError):
            return ""

    system = platform.freedesktop_os_release().get("PRETTY_NAME", platform.system())
    dbus = ask("dbus-daemon", "--version").split("\n")[0].split(" ")[-1]
    broker = ask("dbus-broker", "--version").split("\n")[0].split(" ")[-1]
    return {
        "date": datetime.date.today().isoformat(), "processors": os.cpu_count(), "system": system,
        "kernel": platform.release(), "dbus-daemon": dbus, "dbus-broker": broker,
        "commit": ask("git", "rev-parse", "--short", "HEAD"), "load": os.getloadavg()[0],
    }


def main():
    arguments = options()
    if arguments.parse:  # before what they are for is built
        return 0
    import report

    if arguments.draw or arguments.check:
        return report.check() if arguments.check else report.write(report.read())

    import measure
    from ways import WAYS, Tools

    started = datetime.datetime.now()
    with tempfile.TemporaryDirectory(prefix="carillon-bench-") as directory:
        tools = Tools(arguments.binaries, arguments.service or arguments.binaries / "carillond", directory)
        missing = {way.key: way.missing(tools) for way in WAYS}
        chosen = [way for way in WAYS if not arguments.ways or way.key in arguments.ways]
        there = [way for way in chosen if missing[way.key] is None]
        for way in chosen:
            if missing[way.key]:
                measure.progress(f"{way.key} is missing: {missing[way.key]}")
        if arguments.short:
            return measure.short(there, tools)
        figures = measure.Figures(there, arguments.rounds)
        figures.data["machine"] = machine()
        figures.data["missing"] = {key: reason for key, reason in missing.items() if reason}
        steps = [
            (("throughput", "latency", "stopped"),
             lambda: measure.loads(figures, tools, arguments.rounds, arguments.only)),
            (("names",), lambda: measure.names(figures, tools, arguments.rounds)),
            (("start-up",), lambda: measure.start_up(figures, tools, 2 * arguments.rounds + 1)),
            (("counts",), lambda: measure.counts(figures, tools, 300)),
        ]
        for questions, step in steps:
            if set(questions).intersection(arguments.only):
                measure.attempt(figures, None, ", ".join(questions), step)
    figures.data["seconds"] = round((datetime.datetime.now() - started).total_seconds())
    measure.progress(f"took {figures.data['seconds']} s")
    if arguments.json:
        arguments.json.write_text(json.dumps(figures.data, indent=1) + "\n", encoding="utf-8")
    print(report.text(figures.data))
    if arguments.report:
        report.write(figures.data)
    return 0


if __name__ == "__main__":
    sys.exit(main())
