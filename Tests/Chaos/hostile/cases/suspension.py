# SPDX-FileCopyrightText: The Carillon authors
# SPDX-License-Identifier: Apache-2.0
"""Suspended and resumed again and again, with as much kept as there may be."""

from gi.repository import GLib

from hostile.cases import states
from hostile.templates import COALESCE, HOLD, NUMBER, suspended
from wire import message, post


def override(name, state):
    """The call that suspends or resumes another client."""
    return message("OverrideSuspension", GLib.Variant("(ss)", (name, state)), answer=True)


def options(batches):
    """The call that asks for batches, or for none."""
    return message("SetClientOptions", GLib.Variant("(a{sv})", ({"batches": GLib.Variant("b", batches)},)), answer=True)


def resume_held(scene):
    """Resumes and suspends a client for which 130,000 are held and which does not read, again and again."""
    connection = states.holder(scene)
    toggle = (suspended(False, answer=False) + suspended(True, answer=False)) * 20

    def act():
        connection.send(toggle, 5)
        scene.rest(0, 0.01)

    scene.repeat(act)


def resume_held_read(scene):
    """Resumes a client for which 130,000 are held, which reads them while as many come."""
    connection = states.holder(scene)
    poster = scene.connect()
    crowd = states.Crowd([connection])

    def act():
        connection.send(suspended(False, answer=False))
        scene.fill(poster, post(states.NAME, NUMBER), 5000)
        crowd.read(0.1)
        connection.send(suspended(True, answer=False))

    scene.repeat(act)


def override_held(scene):
    """Suspends and resumes another client for which 130,000 are held."""
    connection = states.holder(scene)
    other = scene.connect()
    calls = [override(connection.name, state) for state in ("active", "none", "suspended", "none")]
    scene.repeat(lambda: [scene.ask(other, call) for call in calls])


def follow_activity(scene):
    """Takes its own suspension back again and again with 130,000 held."""
    connection = states.holder(scene)
    follow = message("FollowActivity", answer=False)
    toggle = (follow + suspended(True, answer=False)) * 20
    scene.repeat(lambda: (connection.send(toggle, 5), scene.rest(0, 0.01)))


def coalesce_kept(scene):
    """Resumes and suspends a client with 16,384 observers of which each keeps eight objects."""
    connection = states.observers(scene, name=states.NAMES, options=COALESCE)
    scene.ask(connection, suspended(True))
    poster = scene.connect()
    observed = scene.much(states.OBSERVERS_PER_CLIENT)
    for object_ in "abcdefg":
        scene.fill(poster, post(states.NAMES, object_), observed)
    scene.reached("kept", scene.clients()[connection.name]["queued"], observed * 7)

    def act():
        scene.fill(poster, post(states.NAMES, "a"), 4000)
        connection.send((suspended(False, answer=False) + suspended(True, answer=False)) * 5)

    scene.repeat(act)


def coalesce_one_name(scene):
    """Posts what all 16,384 observers of a suspended client keep the last of, with 500 objects."""
    connection = states.observers(scene, name="", options=COALESCE)
    scene.ask(connection, suspended(True))
    poster = scene.connect()
    scene.fill(poster, post(states.NAME, NUMBER), 500)
    scene.reached("kept", scene.clients()[connection.name]["queued"], 100)
    scene.repeat(lambda: scene.fill(poster, post(states.NAME, NUMBER), 50))


def suspend_all(scene):
    """Suspends and resumes 4,000 clients again and again, with posts between."""
    connections = states.clients(scene, 4000, options=HOLD)
    poster = scene.connect()
    toggle = suspended(True, answer=False), suspended(False, answer=False)

    def act():
        for call in toggle:
            for connection in connections:
                connection.send(call)
            scene.fill(poster, post(states.NAME, NUMBER), 3)
        for connection in connections:
            connection.discard()

    scene.repeat(act)


def toggle_batches(scene):
    """Asks for batches and for none again and again, with 130,000 due."""
    connection = states.holder(scene)
    connection.send(suspended(False, answer=False))
    calls = [options(True), options(False)]
    poster = scene.connect()

    def act():
        scene.fill(poster, post(states.NAME, NUMBER), 500)
        for call in calls * 10:
            scene.ask(connection, call)

    scene.repeat(act)


CASES = {
    "resume-held": resume_held,
    "resume-held-read": resume_held_read,
    "override-held": override_held,
    "follow-activity": follow_activity,
    "coalesce-kept": coalesce_kept,
    "coalesce-one-name": coalesce_one_name,
    "suspend-all": suspend_all,
    "toggle-batches": toggle_batches,
}
