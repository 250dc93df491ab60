# SPDX-FileCopyrightText: The Carillon authors
# SPDX-License-Identifier: Apache-2.0
"""The table of what hosts.py measured, in Markdown; docs/beyond/model.py shows it, too."""


def mib(kib):
    return f"{kib / 1024:.1f}"


def table(head, rows):
    """A table."""
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def measured(figures):
    """All of it."""
    count = figures["hosts"]
    rest, through, wide = figures["at rest"], figures["throughput"], figures["fan-out"]
    programs = {"bridge": "carillon-bridge", "service": "carillond", "bus": "dbus-daemon"}
    rows = [[f"memory of one `{title}`, MiB: PSS / written / resident",
             " / ".join(mib(figures["memory"][what][kind]) for kind in ("pss", "own", "rss"))]
            for what, title in programs.items()]  # fmt: skip
    rows += [
        [f"written memory of mosquitto, MiB: without hosts / with {count} hosts / after all loads",
         " / ".join(mib(figures[key]["own"]) for key in ("broker alone", "broker", "broker after load"))],
        ["written memory of mosquitto: for one host / for one filter that no other host has",
         f"{(figures['broker']['own'] - figures['broker alone']['own']) / count:.0f} KiB / {figures['bytes for a filter']:.0f} bytes"],
        ["connections at the broker", f"{figures['connections']}"],
        ["one host at rest, in a minute: bytes / packets / wake-ups of the bridge",
         f"{rest['bytes']:.0f} / {rest['packets']:.1f} / {rest['wake-ups']:.1f}"],
        ["one host at rest, processor time in a minute, ms: bridge / mosquitto",
         f"{rest['bridge processor ms']:.2f} / {rest['broker processor ms']:.2f}"],
        ["time from a post on one host to its arrival on another, ms: median / p99",
         f"{figures['latency']['median'] / 1e3:.2f} / {figures['latency']['p99'] / 1e3:.2f}"],
        ["time from a post to its arrival in the same session, ms: median / p99",
         f"{figures['latency in one session']['median'] / 1e3:.2f} / {figures['latency in one session']['p99'] / 1e3:.2f}"],
        [f"time from a post to its arrival on the last of {wide['receivers']} hosts, ms: median / p99",
         f"{wide['median ms']:.1f} / {wide['p99 ms']:.1f}"],
        ["notifications per second from one host to another", f"{through['a second']:,.0f}"],
        ["traffic of the broker per notification, in and out, with TLS and TCP: bytes / packets",
         f"{through['bytes']:.0f} / {through['packets']:.1f}"],
        ["processor time per notification, µs: exporting bridge / importing bridge / mosquitto",
         " / ".join(f"{through['processor us'][what]:.0f}" for what in ("bridge out", "bridge in", "broker"))],
    ]  # fmt: skip
    return table([f"measured quantity, with {count} hosts on one mosquitto and {figures['processors']} processors", "value"], rows)
