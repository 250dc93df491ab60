#!/usr/bin/python3
# SPDX-FileCopyrightText: The Carillon authors
# SPDX-License-Identifier: Apache-2.0
"""What many hosts ask of MQTT brokers: a model whose tables docs/beyond.md shows.

    docs/beyond/model.py                      all tables of the document
    docs/beyond/model.py --hosts N [OPTION …]  what a number of hosts needs
        --realm N      hosts in a realm, which is who can hear each other; 10
        --users N      users on each host, with a bridge each; 1
        --names N      names that a session wants to hear; 20
        --different N  different names that are wanted in a realm; 200
        --values N     values that a session keeps at the broker; 10
        --posts X      posts of a session in a minute, of all that is exported; 1
        --interest X   share of the realm's sessions that want what is posted; 0.1
        --presence yes|no   whether sessions follow who is there; yes
    docs/beyond/model.py --write              rewrites the tables in the document
    docs/beyond/model.py --check              whether they are those of the model and of figures.json

figures.json beside this file is what `tools/bench --bridge 100 --json` measured. What is published of other brokers stands
below, with where: docs/beyond.md has the addresses."""

import argparse
import dataclasses
import json
import math
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
DOCUMENT = os.path.join(ROOT, "docs", "beyond.md")
sys.path.insert(0, os.path.join(ROOT, "Benchmarks", "bridge"))
import tables  # noqa: E402

with open(os.path.join(HERE, "figures.json"), encoding="utf-8") as _file:
    FIGURES = json.load(_file)

GIB = 2**30


class Mosquitto:
    """One process, which uses one processor: what was measured, with TLS and quality of service 1."""

    name = "mosquitto"
    #: Seconds of the processor for a message in and its delivery to one, of which half is taken as the delivery's.
    message = FIGURES["throughput"]["processor us"]["broker"] / 1e6
    delivery = message / 2
    #: Bytes for a connection, and for a filter that no other session has; one that others have costs less.
    connection = (FIGURES["broker"]["own"] - FIGURES["broker alone"]["own"]) * 1024 / FIGURES["hosts"]
    filter = FIGURES["bytes for a filter"]
    #: What one is given of a machine.
    memory = 2 * GIB


class Cluster:
    """A node of a cluster, by what EMQX published of 100 million connections: 20 nodes that took connections, of 64
    processors and 113 GiB that were used, a wildcard filter for each second connection, and a million messages in a second
    in and out with quality of service 1, at which the processors were at 97 %."""

    name = "cluster"
    nodes = 20
    connection = 20 * 113 * GIB / 100e6
    memory = 113 * GIB
    #: Deliveries in a second, and messages in.
    deliveries = 1e6 / nodes
    #: Fewer make no cluster that survives the loss of one.
    fewest = 3


#: How full something may be in ordinary operation.
FULL = 0.5


@dataclasses.dataclass
class Load:
    """What hosts do. The properties are what that is for the brokers that they share."""

    hosts: int
    realm: int = 10
    users: int = 1
    names: int = 20
    different: int = 200
    values: int = 10
    posts: float = 1
    interest: float = 0.1
    presence: bool = True

    @property
    def sessions(self):
        return self.hosts * self.users

    @property
    def realms(self):
        return math.ceil(self.hosts / self.realm)

    @property
    def subscriptions(self):
        """Two filters for each name, for notifications and for values that have an object, that of one's own presence,
        and that of the realm's."""
        return self.sessions * (2 * self.names + 1 + self.presence)

    @property
    def filters(self):
        """Different ones, which is what a routing table has: sessions of a realm that want the same name share theirs."""
        wanted = min(self.different, self.names * self.realm * self.users)
        return self.realms * (2 * wanted + self.presence) + self.sessions

    @property
    def retained(self):
        return self.sessions * (1 + self.values)

    @property
    def posted(self):
        """In a second."""
        return self.sessions * self.posts / 60

    @property
    def receivers(self):
        """Of a post, on average: others of the realm that want it."""
        return (self.realm * self.users - 1) * self.interest

    @property
    def delivered(self):
        return self.posted * self.receivers

    @property
    def processors(self):
        """What one mosquitto would need of its one processor."""
        return self.posted * (Mosquitto.message - Mosquitto.delivery) + self.delivered * Mosquitto.delivery

    @property
    def memory(self):
        """Bytes of mosquittos."""
        return self.sessions * Mosquitto.connection + self.subscriptions * Mosquitto.filter

    @property
    def nodes(self):
        """Of a cluster."""
        memory = self.sessions * Cluster.connection / Cluster.memory
        work = max(self.posted, self.delivered) / Cluster.deliveries
        return max(Cluster.fewest, math.ceil(max(memory, work) / FULL))

    @property
    def carrier(self):
        """What carries it."""
        if self.processors <= FULL and self.memory <= Mosquitto.memory:
            return "one mosquitto"
        if self.realms > 1:
            a_realm = dataclasses.replace(self, hosts=self.realm)
            if a_realm.carrier == "one mosquitto":
                each = min(FULL / a_realm.processors, Mosquitto.memory / a_realm.memory)
                count = math.ceil(self.realms / max(1, math.floor(each)))
                return f"{count:,} mosquittos, or a cluster of {self.nodes} nodes"
        return f"a cluster of {self.nodes} nodes" if self.nodes <= 100 else f"**none** ({self.nodes:,} nodes needed)"


# Tables


def number(value):
    for factor, unit in ((1e12, " T"), (1e9, " G"), (1e6, " M")):
        if value >= factor:
            return f"{value / factor:,.3g}{unit}"
    if value >= 1e4:
        return f"{value / 1e3:,.0f} k"
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.2g}"


def size(count):
    for factor, unit in ((GIB, "GiB"), (2**20, "MiB"), (1024, "KiB")):
        if count >= factor:
            return f"{count / factor:,.1f} {unit}"
    return f"{count:,.0f} bytes"


def span(seconds):
    for factor, unit in ((86_400, "days"), (3_600, "h"), (60, "min"), (1, "s")):
        if seconds >= 2 * factor or unit == "s" and seconds >= 1:
            return f"{seconds / factor:,.0f} {unit}" if seconds >= 100 * factor else f"{seconds / factor:,.3g} {unit}"
    return f"{seconds * 1e3:,.3g} ms"


SCENARIOS = [
    ("a home: half of the hosts want each post", Load(10, 10, interest=0.5)),
    ("a team: a tenth of the hosts want each post", Load(100, 100, interest=0.1)),
    ("a company, one realm per site: a tenth of the realm's hosts want each post", Load(10_000, 100)),
    ("a company in one realm: one host in a hundred wants each post", Load(10_000, 10_000, interest=0.01, presence=False)),
    ("a million hosts, one realm per person or team: half of the realm's hosts want each post", Load(1_000_000, 10, interest=0.5)),
    ("a million hosts in one realm: a hundred hosts want each post", Load(1_000_000, 1_000_000, interest=1e-4, presence=False)),
    ("a million hosts in one realm: one host in a hundred wants each post", Load(1_000_000, 1_000_000, interest=0.01, presence=False)),
]


def sizes():
    """What hosts ask of brokers, and what carries it."""
    rows = []
    for title, load in SCENARIOS:
        rows.append([title, number(load.hosts), number(load.realm), number(load.subscriptions), number(load.filters),
                     number(load.retained), number(load.posted), number(load.delivered), load.carrier])  # fmt: skip
    return tables.table(
        ["group of hosts", "hosts in total", "hosts in one realm", "subscriptions", "different filters", "retained messages",
         "posts per second", "deliveries per second", "brokers that can carry the load"], rows)  # fmt: skip


def everybody():
    """One post that all of a realm want."""
    rows = []
    for hosts in (10, 100, 1_000, 10_000, 100_000, 1_000_000):
        cluster = hosts / (Cluster.deliveries * Cluster.nodes)
        often = 60 * FULL / (hosts * Mosquitto.delivery), 60 * FULL / cluster
        rows.append([number(hosts), span(hosts * Mosquitto.delivery), span(cluster), *map(number, often)])
    return tables.table(
        ["hosts that want the post", "busy time of one mosquitto for one post",
         f"busy time of a cluster of {Cluster.nodes} nodes for one post",
         "posts per minute that keep one mosquitto half loaded", "posts per minute that keep the cluster half loaded"], rows)  # fmt: skip


def presence():
    """What it costs to know who is there."""
    rows = []
    for hosts in (10, 100, 1_000, 10_000, 1_000_000):
        # Each says that it is there, and later that the broker has all its values.
        start = 2 * hosts * hosts
        rows.append([number(hosts), number(hosts), number(6 * hosts * hosts), number(start),
                     span(start * Mosquitto.delivery), span(start / (Cluster.deliveries * Cluster.nodes))])  # fmt: skip
    return tables.table(
        ["hosts in the realm", "presence messages to one host that connects",
         "presence messages per day to all hosts, if each host connects and leaves twice",
         "presence messages to all hosts when all reconnect at once", "busy time of one mosquitto when all reconnect",
         f"busy time of a cluster of {Cluster.nodes} nodes when all reconnect"], rows)  # fmt: skip


def traffic():
    """What a host's network carries."""
    rest = FIGURES["at rest"]["bytes"]
    each = FIGURES["throughput"]["bytes"] / 2
    rows = []
    for posts, heard in ((0, 0), (1, 10), (10, 100), (60, 600)):
        minute = rest + each * (posts + heard)
        rows.append([number(posts), number(heard), size(minute), size(minute * 60 * 24 * 30)])
    return tables.table(["exported notifications per minute", "imported notifications per minute", "traffic of the host per minute",
                         "traffic of the host per month"], rows)


def measured():
    """What was measured."""
    return tables.measured(FIGURES)


TABLES = {"measured": measured, "sizes": sizes, "everybody": everybody, "presence": presence, "traffic": traffic}


def one(load):
    """What one load needs, in lines."""
    lines = [
        ("sessions", number(load.sessions)), ("realms", number(load.realms)), ("subscriptions", number(load.subscriptions)),
        ("different filters", number(load.filters)), ("retained messages", number(load.retained)),
        ("posts in a second", number(load.posted)), ("deliveries in a second", number(load.delivered)),
        ("receivers of a post", number(load.receivers)),
        ("memory, mosquitto", size(load.memory)),
        ("memory, cluster", size(load.sessions * Cluster.connection)),
        ("processors, mosquitto", f"{load.processors:.2g}"),
        ("carried by", load.carrier),
    ]  # fmt: skip
    if load.presence and load.realm > 1000:
        lines.append(("forbidden", f"presence: {number(load.realm)} messages to each host that comes"))
    return "\n".join(f"{key:<24}{value}" for key, value in lines)


# The document


def with_tables(text):
    """The document with the tables as they are now."""
    for name, table in TABLES.items():
        pattern = re.compile(rf"(<!-- model: {name} -->\n\n).*?(\n\n<!-- end -->)", re.DOTALL)
        if len(pattern.findall(text)) != 1:
            raise SystemExit(f"docs/beyond.md has not one place for the table {name}")
        text = pattern.sub(lambda match, made=table(): match.group(1) + made + match.group(2), text)
    return text


def main():
    parser = argparse.ArgumentParser(usage="see the beginning of this file", add_help=False)
    parser.add_argument("--help", "-h", action="store_true")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--check", action="store_true")
    for field in dataclasses.fields(Load):
        if field.name == "presence":
            parser.add_argument("--presence", choices=["yes", "no"], default="yes")
        else:
            parser.add_argument(f"--{field.name}", type=field.type, default=None)
    options = parser.parse_args()
    if options.help:
        print(__doc__)
        return 0
    if options.write or options.check:
        with open(DOCUMENT, encoding="utf-8") as file:
            text = file.read()
        now = with_tables(text)
        if options.check and now != text:
            print("docs/beyond.md does not show the tables of docs/beyond/model.py; --write rewrites them", file=sys.stderr)
            return 1
        if options.write and now != text:
            with open(DOCUMENT, "w", encoding="utf-8") as file:
                file.write(now)
        return 0
    given = {field.name: getattr(options, field.name) for field in dataclasses.fields(Load) if field.name != "presence"}
    given = {key: value for key, value in given.items() if value is not None}
    if given:
        if "hosts" not in given:
            parser.error("--hosts is needed with the other options")
        print(one(Load(**given, presence=options.presence == "yes")))
        return 0
    print("\n\n".join(f"{table.__doc__}\n\n{table()}" for table in TABLES.values()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
