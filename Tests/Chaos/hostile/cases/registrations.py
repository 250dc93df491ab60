# SPDX-FileCopyrightText: The Carillon authors
# SPDX-License-Identifier: Apache-2.0
"""As many observers as there may be."""

from gi.repository import GLib

from hostile.cases import states
from hostile.templates import HOLD, NUMBER, name_and_object, numbered
from wire import Closed, add_observer, asking, message, post


def remove_all(scene):
    """Removes 16,384 observers in one call, and registers them again."""
    connection = states.observers(scene)

    def act():
        scene.ask(connection, name_and_object("RemoveObservers"))
        scene.fill(connection, add_observer(states.NAMES), scene.much(states.OBSERVERS_PER_CLIENT))

    scene.repeat(act)


def register_and_leave(scene):
    """Registers 192,000 observers over twelve connections of a process that ends and comes again."""

    def register():
        states.stay(*states.many_observers(scene, 16_000, 12))

    pid = scene.fork(register)
    scene.reach("observers", scene.much(16_000) * 12, 15)
    scene.act()
    while scene.going():
        scene.kill([pid])
        pid = scene.fork(register)
        wanted = scene.much(16_000) * 12
        states.pause_until(scene, lambda: scene.statistics()["observers"] >= wanted)
    scene.kill([pid])


def leave_with_all(scene):
    """Connections with 16,384 observers each that leave the bus one after the other and come again."""
    connections = states.many_observers(scene, 16_000, 4)
    scene.reach("observers", scene.much(16_000) * 4)

    def act():
        connections.pop(0).close()
        connections.extend(states.many_observers(scene, 16_000, 1))

    scene.repeat(act)


def remove_beside_held(scene):
    """Removes one after the other of 16,384 observers for which 130,000 notifications are held."""
    connection = states.observers(scene, options=HOLD)
    calls = states.removals(states.observer_numbers(scene, connection))
    observed = scene.much(states.OBSERVERS_PER_CLIENT)
    scene.ask(connection, message("SetSuspended", GLib.Variant("(b)", (True,)), answer=True))
    poster = scene.connect()
    for _ in range(8):
        scene.fill(poster, post(states.NAMES), observed)
    scene.reached("held", scene.clients()[connection.name]["queued"], observed * 7)
    register = add_observer(states.NAMES, "", HOLD)
    scene.act()
    for index, call in enumerate(calls):
        if not scene.going():
            return
        scene.ask(connection, asking(call, 1))
        connection.send(numbered(register, [index]))


def remove_by_name(scene):
    """Removes observers of one name after the other, of 16,384, and registers them again."""
    connection = states.observers(scene)
    remove = name_and_object("RemoveObservers", states.NAMES, answer=False)
    register = add_observer(states.NAMES)
    scene.repeat(lambda: scene.fill(connection, remove, 2000) or scene.fill(connection, register, 2000))


def remove_by_object(scene):
    """Removes observers by an object that none has, and by one that all have."""
    connection = states.observers(scene, name=states.NAME, object_="")
    nothing = name_and_object("RemoveObservers", "", NUMBER, answer=False)
    scene.repeat(lambda: scene.fill(connection, nothing, 200))


def remove_of_one_name(scene):
    """Removes 16,384 observers of one name one by one, the first first."""
    connection = states.observers(scene, name=states.NAME)
    register = add_observer(states.NAME)

    def act():
        for call in states.removals(states.observer_numbers(scene, connection), answer=True):
            if not scene.going():
                return
            connection.send(register)
            scene.ask(connection, call)

    scene.repeat(act)


def list_unread(scene):
    """Has 16,384 observers listed again and again, and reads no answer."""
    connection = states.observers(scene)
    ask = message("ListObservers", GLib.Variant("(s)", (connection.name,)), answer=True)
    scene.act()
    states.pour_calls(scene, [ask], 20)


def list_read(scene):
    """Has 16,384 observers listed again and again, and reads the answers."""
    connection = states.observers(scene)
    ask = message("ListObservers", GLib.Variant("(s)", (connection.name,)), answer=True)
    scene.repeat(lambda: scene.ask(connection, ask))


def list_pages(scene):
    """Has 16,384 observers listed in pages, from the first on and from the last on."""
    connection = states.observers(scene)
    numbers = states.observer_numbers(scene, connection)
    pages = [
        message("ListObserversFrom", GLib.Variant("(stu)", (connection.name, after, most)), answer=True)
        for after in (0, numbers[len(numbers) // 2], numbers[-1], 2**64 - 1)
        for most in (1, 1000, 2**32 - 1)
    ]
    scene.repeat(lambda: scene.ask_all(connection, pages))


def longest_texts(scene):
    """Registers the longest names and objects up to the limit of bytes, and removes and registers them again."""
    connection = scene.connect()
    register = add_observer(f"{states.NAMES}." + "n" * 990, "o" * 4096)
    count = (16 << 20) // 6000
    scene.fill(connection, register, scene.much(count))
    scene.reached("observers", scene.clients()[connection.name]["observers"], scene.much(count))

    def act():
        scene.ask(connection, name_and_object("RemoveObservers"))
        scene.fill(connection, register, scene.much(count))

    scene.repeat(act)


def refused_registrations(scene):
    """Asks for more observers where no more are allowed, and reads the errors."""
    connection = states.observers(scene)
    more = add_observer(states.NAMES, answer=True)
    scene.repeat(lambda: scene.ask_all(connection, [more], 100))


def monitors(scene):
    """Posts beside 16,384 observers that only look on."""
    connection = states.observers(scene, options={"monitor": GLib.Variant("b", True)}, name="")
    poster = scene.connect()
    call = post(states.NAME, answer=True)

    def act():
        for _ in range(20):
            scene.ask(poster, call)
        connection.serve()

    scene.repeat(act)


def modes(scene):
    """Observers of three run-loop modes, 5461 of each, all of which match each post."""
    connection = scene.connect()
    for mode in ("event-tracking", "modal-panel", "default"):
        scene.fill(connection, add_observer("", "", {"run-loop-mode": GLib.Variant("s", mode)}), scene.much(5461))
    scene.reached("observers", scene.clients()[connection.name]["observers"], scene.much(5461) * 3)
    poster = scene.connect()
    call = post(states.NAME, answer=True)
    scene.repeat(lambda: [scene.ask(poster, call) for _ in range(20)] and connection.serve())


def fill_all_clients(scene):
    """Has 4,000 clients of which each registers and removes all the time."""
    connections = states.clients(scene, 4000)
    change = add_observer(states.NAME) + name_and_object("RemoveObservers", states.NAME, answer=False)

    def act():
        for connection in connections:
            try:
                connection.send(change)
            except Closed:
                continue

    scene.repeat(act)


CASES = {
    "remove-all": remove_all,
    "register-and-leave": register_and_leave,
    "leave-with-all": leave_with_all,
    "remove-beside-held": remove_beside_held,
    "remove-by-name": remove_by_name,
    "remove-by-object": remove_by_object,
    "remove-of-one-name": remove_of_one_name,
    "list-unread": list_unread,
    "list-read": list_read,
    "list-pages": list_pages,
    "longest-texts": longest_texts,
    "refused-registrations": refused_registrations,
    "monitors": monitors,
    "modes": modes,
    "fill-all-clients": fill_all_clients,
}
