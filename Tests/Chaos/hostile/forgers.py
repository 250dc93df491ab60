# SPDX-FileCopyrightText: The Carillon authors
# SPDX-License-Identifier: Apache-2.0
"""Strangers who say what others should say."""

from gi.repository import GLib

from contract import BUS_NAME, DBUS, DBUS_PATH, INTERFACE, NAMES, OBJECT_PATH
from wire import answer, error, message, signal


def forge(scene):
    """Sends the service and its clients answers, departures, losses and notifications that are not its to send."""
    connection = scene.connect()
    while scene.going():
        owner = connection.call(
            message("GetNameOwner", GLib.Variant("(s)", (BUS_NAME,)), destination=DBUS, path=DBUS_PATH, interface=DBUS,
                    answer=True, serial=7), 7
        ).get_body().unpack()[0]
        if not owner.startswith(":"):
            scene.rest()  # an error: nobody has it at this moment
            continue
        # The numbers of the service's calls are small: it makes few.
        first = scene.random.choice([1, 1, 100, 1000, 10_000])
        for _ in range(20):
            contents = b"".join(
                forged(scene, owner, scene.random.randint(first, first * 10 + 300)) for _ in range(20)
            )
            if not scene.send(connection, contents):
                connection = scene.connect()
        connection.discard()
        scene.rest(0, 0.05)


def forged(scene, owner, number):
    """One of all that could be forged, to the service or to one of its clients."""
    victim = scene.random.choice(scene.victims)
    name = scene.random.choice(NAMES)
    kind = scene.random.randrange(9)
    if kind == 0:
        return error(owner, number, f"{DBUS}.Error.NameHasNoOwner", f"no {victim}")
    if kind == 1:
        return answer(owner, number)
    if kind == 2:
        return answer(owner, number, GLib.Variant("(s)", (victim,)))
    if kind == 3:
        return signal(owner, DBUS_PATH, DBUS, "NameOwnerChanged", GLib.Variant("(sss)", (victim, victim, "")))
    if kind == 4:
        return signal(owner, DBUS_PATH, DBUS, "NameLost", GLib.Variant("(s)", (BUS_NAME,)))
    if kind == 5:
        return signal(victim, DBUS_PATH, DBUS, "NameOwnerChanged", GLib.Variant("(sss)", (BUS_NAME, owner, "")))
    if kind == 6:
        return signal(victim, OBJECT_PATH, INTERFACE, "Dropped", GLib.Variant("(tats)", (1000, [], "queue-full")))
    if kind == 7:
        notification = GLib.Variant("(ssa{sv}atstt)", (name, "", {}, [1], victim, 2**40, 2**40))
        return signal(victim, OBJECT_PATH, INTERFACE, "Notification", notification)
    # Only who checks can be asked not to believe it: GDBus takes an answer from anybody who has the number.
    return answer(scene.victims[0], number, GLib.Variant("(u)", (999,)))
