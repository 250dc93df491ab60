# SPDX-FileCopyrightText: The Carillon authors
# SPDX-License-Identifier: Apache-2.0
"""Names of the contract, and what the well-behaved clients have agreed on among themselves."""

import itertools
import time

BUS_NAME = "org.carillon.NotificationCenter1"
OBJECT_PATH = "/org/carillon/NotificationCenter1"
INTERFACE = "org.carillon.NotificationCenter1"

DBUS = "org.freedesktop.DBus"
DBUS_PATH = "/org/freedesktop/DBus"
PEER = "org.freedesktop.DBus.Peer"
PROPERTIES = "org.freedesktop.DBus.Properties"
INTROSPECTABLE = "org.freedesktop.DBus.Introspectable"

#: The name of the trivial service beside which the center is measured.
BYSTANDER = "org.example.Chaos.Bystander"

#: What well-behaved posters post, and observers register for. Hostile clients post and observe these names, too.
NAMES = [f"org.example.Chaos.Name{index}" for index in range(6)]
OBJECTS = ["", "door", "window", "Ж"]

#: The name with which each poster says, by each of its styles, that it has posted all that it will.
END = "org.example.Chaos.End"

#: Marks what no observer of the well-behaved gets, other than those of everything.
UNOBSERVED = "org.example.Chaos.Unobserved"

#: Seconds that an event or a condition may take that is no subject of the measurements.
PATIENCE = 60

#: The same for programs that start, as many do at once; some are virtual machines.
START_PATIENCE = 120

#: The same for what a load has left to be done.
LOAD_PATIENCE = 180


def registrations(observer):
    """What the well-behaved observer of that number, from 0 on, registers for: pairs of name and object, "" is any."""
    if observer == 0:
        return [("", "")]
    every = list(itertools.product([*NAMES, ""], OBJECTS))
    own = [pair for index, pair in enumerate(every) if index % 4 == observer % 4 and pair != ("", "")]
    return [*own, (END, "")]


def matches(registered, name, object_):
    """Whether one of these registrations is for a notification of that name and object."""
    return any(wanted in ("", name) and of in ("", object_) for wanted, of in registered)


def now():
    """Seconds on the clock that all processes of a machine share."""
    return time.clock_gettime(time.CLOCK_MONOTONIC)
