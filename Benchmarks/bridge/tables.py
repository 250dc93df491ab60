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
    rows = [[f"`{title}`, MiB: shared out, of its own, resident",
             " / ".join(mib(figures["memory"][what][kind]) for kind in ("pss", "own", "rss"))]
            for what, title in programs.items()]  # fmt: skip
    rows += [
        ["mosquitto, MiB of its own: alone, with all hosts, after the load",
         " / ".join(mib(figures[key]["own"]) for key in ("broker alone", "broker", "broker after load"))],
        ["mosquitto, for a host, and for a filter that no other host has",
         f"{(figures['broker']['own'] - figures['broker alone']['own']) / count:.0f} KiB / {figures['bytes for a filter']:.0f} bytes"],
        ["connections at the broker", f"{figures['connections']}"],
        ["at rest, of one host in a minute: bytes, packets, wake-ups of the bridge",
         f"{rest['bytes']:.0f} / {rest['packets']:.1f} / {rest['wake-ups']:.1f}"],
        ["at rest, of one host in a minute, processor time in ms: bridge, mosquitto",
         f"{rest['bridge processor ms']:.2f} / {rest['broker processor ms']:.2f}"],
        ["from a post here to its arrival there, ms: median, p99",
         f"{figures['latency']['median'] / 1e3:.2f} / {figures['latency']['p99'] / 1e3:.2f}"],
        ["the same within one session, ms",
         f"{figures['latency in one session']['median'] / 1e3:.2f} / {figures['latency in one session']['p99'] / 1e3:.2f}"],
        [f"until the last of {wide['receivers']} hosts has it, ms: median, p99",
         f"{wide['median ms']:.1f} / {wide['p99 ms']:.1f}"],
        ["notifications in a second through one bridge, out and in", f"{through['a second']:,.0f}"],
        ["bytes and packets for each, in and out of the broker, all of TLS and TCP",
         f"{through['bytes']:.0f} / {through['packets']:.1f}"],
        ["processor time for each, microseconds: bridge out, bridge in, mosquitto",
         " / ".join(f"{through['processor us'][what]:.0f}" for what in ("bridge out", "bridge in", "broker"))],
    ]  # fmt: skip
    return table([f"{count} hosts on one mosquitto, {figures['processors']} processors", ""], rows)
