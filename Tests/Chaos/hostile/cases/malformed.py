# SPDX-FileCopyrightText: The Carillon authors
# SPDX-License-Identifier: Apache-2.0
"""Messages that are none, and arguments that nobody asked for."""

import os

from gi.repository import GLib

from contract import BUS_NAME, INTERFACE, OBJECT_PATH, PEER
from hostile.callers import damaged
from hostile.cases import states
from wire import ERROR, Closed, add_observer, answer, asked, asking, message, post, signal


def no_messages(scene):
    """Sends damaged messages, on a new connection each time, as the bus ends such ones."""
    good = [
        post(states.NAME, "", {"k": GLib.Variant("as", ["x"] * 50)}), add_observer(states.NAME),
        message("PostMany", GLib.Variant("(a(ssa{sv}a{sv}))", ([(states.NAME, "", {}, {})] * 20,))),
    ]

    def act():
        try:
            with scene.connect() as connection:
                for _ in range(30):
                    connection.send(damaged(scene.random.choice(good), scene.random), 0.5)
        except Closed:
            return

    scene.repeat(act)


def signatures(scene):
    """Calls every method with the arguments of every other."""
    texts = [
        "()", "('',)", "('', '')", "('', '', '')", "('x', '', @a{sv} {}, @a{sv} {})", "('x', '', @a{sv} {})", "(true,)",
        "(uint64 0,)", "(uint32 0,)", "('', uint32 0)", "(uint64 0, uint32 0)", "(@a{sv} {},)",
        "(@a(ssa{sv}a{sv}) [],)",
        "([[[[[[1]]]]]],)", "(<<<<<<1>>>>>>,)", "(-1,)", "('', uint64 0, uint32 0)", "('','','','')",
    ]
    arguments = [GLib.Variant.parse(None, text, None, None) for text in texts]
    methods = [
        "AddObserver", "RemoveObserver", "RemoveObservers", "Post", "PostMany", "PostJSON", "SetSuspended",
        "FollowActivity", "OverrideSuspension", "ListPosters", "ListObservers", "ListObserversFrom",
        "FollowInterest", "FollowValues", "SetClientOptions", "GetClient", "Explain", "RemoveRetained",
        "RemoveRetainedFrom", "WithdrawPosts", "OpenChannel", "ReloadConfiguration",
    ]
    calls = [message(method, each, answer=True) for method in methods for each in arguments]
    connection = scene.connect()
    refused = sum(connection.raw_answer_to(call)[1] == ERROR for call in calls)
    scene.reached("refused", refused, len(calls) * 8 // 10)
    scene.repeat(lambda: scene.ask_all(connection, calls))


def descriptors_on_everything(scene):
    """Attaches sixteen descriptors to every call, also to OpenChannel, and to answers and signals."""
    reading, writing = os.pipe()
    attached = [reading, writing] * 8
    owner = message(
        "GetNameOwner", GLib.Variant("(s)", (BUS_NAME,)), destination="org.freedesktop.DBus",
        path="/org/freedesktop/DBus", interface="org.freedesktop.DBus", answer=True,
    )
    calls = [
        message("OpenChannel", GLib.Variant("(a{sv})", ({},)), descriptors=attached, answer=True),
        message(
            "OpenChannel", GLib.Variant("(a{sv})", ({"h": GLib.Variant("h", 0)},)), descriptors=attached, answer=True
        ),
        message("AddObserver", GLib.Variant("(ssa{sv})", ("x", "", {})), descriptors=attached, answer=True),
        message("Ping", interface=PEER, descriptors=attached, answer=True),
        post(states.NAME, descriptors=attached, answer=True),
    ]
    connection = scene.connect()
    scene.ask(connection, owner)
    connection.send(asking(calls[-1], 1), 5, attached)
    connection.raw_answer(1)
    scene.reached("descriptors", len(attached), 16)
    scene.act()
    while scene.going():
        for call in calls:
            connection.send(asked([call]), 5, attached)
        connection.take_answers(len(calls))
        close_all(connection.descriptors)


def close_all(descriptors):
    """Closes what came with answers."""
    while descriptors:
        os.close(descriptors.pop())


def answers_to_nothing(scene):
    """Sends the service answers to calls that it never made, and its own signals, without end."""
    connection = scene.connect()
    owner = scene.value(connection, message(
        "GetNameOwner", GLib.Variant("(s)", (BUS_NAME,)), destination="org.freedesktop.DBus",
        path="/org/freedesktop/DBus", interface="org.freedesktop.DBus", answer=True,
    ))
    large = GLib.Variant("(s)", ("x" * 10_000,))
    contents = b"".join(answer(owner, number, large) for number in range(1, 200))
    contents += signal(owner, OBJECT_PATH, INTERFACE, "Dropped", GLib.Variant("(tats)", (1, [], "queue-full"))) * 200
    last = message("Ping", interface=PEER, answer=True)
    scene.repeat(lambda: (connection.send(contents + last), connection.raw_answer(1)))


CASES = {
    "no-messages": no_messages,
    "signatures": signatures,
    "descriptors-on-everything": descriptors_on_everything,
    "answers-to-nothing": answers_to_nothing,
}
