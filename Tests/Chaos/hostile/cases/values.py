# SPDX-FileCopyrightText: The Carillon authors
# SPDX-License-Identifier: Apache-2.0
"""Values that are kept, and who asks for them or follows them; what is wanted, and who follows that."""

from gi.repository import GLib

from hostile.cases import states
from hostile.templates import (
    HOLD, NUMBER, RETAIN, RETAINED, expiring, from_place, name_and_object, padding, suspended
)
from wire import add_observer, message, post

CONNECTED = {"while-connected": GLib.Variant("b", True)}

#: A name whose objects have the values, half of them; the other half have names that differ.
OBSERVERS = 16_000


def both_kinds(scene):
    """14,000 values: half with one name and different objects, half with different names."""
    states.values(scene, states.value(), (4096, 2904))
    states.values(scene, states.value(states.NAMES, ""), (4096, 2904))


def retained_observers(scene, name, object_=""):
    """Registers 16,000 observers beside 14,000 values that want those, removes and registers them again."""
    both_kinds(scene)
    connection = states.observers(scene, OBSERVERS, name, object_, RETAINED)
    register = add_observer(name, object_, RETAINED)

    def act():
        scene.ask(connection, name_and_object("RemoveObservers"))
        scene.fill(connection, register, scene.much(OBSERVERS))

    scene.repeat(act)


def retained_of_name(scene):
    """Registers 16,000 observers of one name that want its 7,000 values, and again."""
    retained_observers(scene, states.NAME)


def retained_of_names(scene):
    """Registers observers of 16,000 names that want their values, and again."""
    retained_observers(scene, states.NAMES)


def retained_of_objects(scene):
    """Registers observers of 16,000 objects that want their values, and again."""
    retained_observers(scene, "", NUMBER)


def retained_of_all(scene):
    """Registers 16,000 observers of everything that want 14,000 values, and again."""
    retained_observers(scene, "")


def retained_resumed(scene):
    """Suspends and resumes a client whose 16,000 observers want 14,000 values, again and again."""
    both_kinds(scene)
    connection = scene.connect()
    scene.ask(connection, suspended(True))
    scene.fill(connection, add_observer(states.NAME, "", RETAINED), scene.much(OBSERVERS))
    scene.reached("observers", scene.clients()[connection.name]["observers"], scene.much(OBSERVERS))
    scene.repeat(lambda: (scene.ask(connection, suspended(False)), scene.ask(connection, suspended(True))))


def values_unread(scene):
    """Has 14,000 values sent to a hundred clients that do not read."""
    both_kinds(scene)
    connections = scene.several(100)
    register = add_observer("", "", RETAINED)

    def act():
        for connection in connections:
            connection.send(register)
        scene.rest()

    scene.repeat(act)


def intervals(scene):
    """2,000 observers with a minimum interval beside posts of 2,000 names."""
    connection = scene.connect()
    options = {"minimum-interval": GLib.Variant("u", 100)}
    scene.fill(connection, add_observer("", "", options), scene.much(2000))
    scene.reached("observers", scene.clients()[connection.name]["observers"], scene.much(2000))
    poster = scene.connect()
    crowd = states.Crowd([connection])
    scene.repeat(lambda: (scene.fill(poster, post(states.NAMES), 2000), crowd.read()))


def intervals_of_clients(scene):
    """2,000 clients with a minimum interval, to which the same names are posted again and again."""
    connections = states.clients(scene, 2000, "", {"minimum-interval": GLib.Variant("u", 500)})
    poster = scene.connect()
    crowd = states.Crowd(connections)
    scene.repeat(lambda: (scene.fill(poster, post(states.NAMES), 20), crowd.read()))


def interest(scene):
    """Asks for pages of 200,000 names that are wanted, of any size and from anywhere."""
    states.many_observers(scene, 16_000, 13)
    scene.reach("observers", scene.much(16_000) * 13)
    connection = scene.connect()
    pages = [
        from_place("FollowInterest", after, most, "s")
        for after in ("", states.NAMES.replace(NUMBER, "00100000"), "z")
        for most in (1, 1000, 2**32 - 1)
    ]
    scene.repeat(lambda: [scene.ask(connection, page) for page in pages])


def interest_churn(scene):
    """Registers and removes names all the time among 200,000, and asks what is wanted from the beginning."""
    connections = states.many_observers(scene, 16_000, 13)
    scene.reach("observers", scene.much(16_000) * 13)
    follower = scene.connect()
    ask = from_place("FollowInterest", "", 10, "s")

    def act():
        connection = scene.random.choice(connections)
        name = f"org.example.Churn.{NUMBER}"
        scene.fill(connection, add_observer(name), 300)
        scene.ask(follower, ask)
        scene.fill(connection, name_and_object("RemoveObservers", name, answer=False), 300)
        scene.ask(follower, ask)

    scene.repeat(act)


def interest_followers(scene):
    """100 clients follow what is wanted while names come and go."""
    followers(scene, from_place("FollowInterest", "", 1000, "s"), lambda connection: (
        scene.fill(connection, add_observer(states.NAMES), 500),
        scene.ask(connection, name_and_object("RemoveObservers")),
    ))


def values_followers(scene):
    """100 clients follow the values while values come and go."""
    template = states.value()
    followers(scene, from_place("FollowValues", 0, 1000), lambda connection: (
        scene.fill(connection, template, 500), scene.ask(connection, name_and_object("RemoveRetained")),
    ))


def followers(scene, ask, change):
    """100 clients ask from the beginning after each change."""
    connections = scene.several(100)
    for connection in connections:
        scene.ask(connection, ask)
    scene.reach("clients", len(connections))
    changing = scene.connect()

    def act():
        change(changing)
        for connection in connections:
            connection.send(ask)
        for connection in connections:
            connection.raw_answer(1)

    scene.repeat(act)


def values_pages(scene):
    """Asks for pages of 14,000 values."""
    both_kinds(scene)
    connection = scene.connect()
    serial = scene.statistics()["posted"]
    pages = [
        from_place("FollowValues", after, most)
        for after in (0, serial // 2, serial, 2**64 - 1) for most in (1, 1000, 2**32 - 1)
    ]
    scene.repeat(lambda: [scene.ask(connection, page) for page in pages])


def expire_at_once(scene):
    """4,096 values that expire at the same time, and again."""
    connection = scene.connect()
    count = scene.much(states.VALUES_PER_CLIENT)
    template = states.value(options=expiring(2))
    scene.fill(connection, template, count)
    scene.reach("retained", count, 0)

    def act():
        states.pause_until(scene, lambda: scene.statistics()["retained"] == 0)
        scene.fill(connection, template, count)

    scene.repeat(act)


def expire_in_queue(scene):
    """130,000 notifications that are held and expire at the same time, and again."""
    connection = states.observers(scene, 1, states.NAME, options=HOLD)
    template = post(states.NAME, NUMBER, {}, {"expires-after": GLib.Variant("u", 5)})
    poster = states.held(scene, connection, template)
    scene.repeat(lambda: scene.fill(poster, template, 5000))


def while_connected(scene):
    """Leaves with 4,096 values that are kept while their poster is there, again and again."""
    count = scene.much(states.VALUES_PER_CLIENT)
    template = states.value(options=CONNECTED)
    connection = scene.connect()
    scene.fill(connection, template, count)
    scene.reach("retained", count, 0)

    def act():
        nonlocal connection
        connection.close()
        connection = scene.connect()
        scene.fill(connection, template, count)

    scene.repeat(act)


def leave_values(scene, template, count, first=0):
    """A connection that posts so many values and leaves the bus."""
    with scene.connect() as connection:
        scene.fill(connection, template, count, first)


def displaced(scene):
    """Values of 1 MiB for which thousands of small ones give way, whose posters have left."""
    small = states.value(user_info=padding(500))
    for index in range(4):
        pid = scene.fork(leave_values, scene, small, scene.much(4000), index * 4000)
        states.pause_until(scene, lambda pid=pid: has_ended(pid))
    scene.reach("retained", scene.much(4000) * 4, 1)
    large = post(states.NAMES, "", padding((1 << 20) - 1000), RETAIN)

    def act():
        for index in range(4):
            leave_values(scene, large, 3, index * 3)
        for index in range(4):
            leave_values(scene, small, scene.much(4000), index * 4000)

    scene.repeat(act)


def has_ended(pid):
    """Whether a process that this one began has ended."""
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
        return file.read().rpartition(")")[2].split()[0] == "Z"


def remove_retained(scene):
    """Removes 4,096 values in a call, with 100 followers, and posts them again."""
    count = scene.much(states.VALUES_PER_CLIENT)
    connection = scene.connect()
    followers_ = scene.several(100)
    ask = from_place("FollowValues", 0, 1)
    template = states.value()
    scene.fill(connection, template, count)
    scene.reach("retained", count, 0)
    for follower in followers_:
        scene.ask(follower, ask)
    remove = name_and_object("RemoveRetained")
    scene.repeat(lambda: (scene.ask(connection, remove), scene.fill(connection, template, count)))


def remove_retained_one(scene):
    """Removes values one by one by their objects, and posts them again."""
    both_kinds(scene)
    connection = scene.connect()
    remove = name_and_object("RemoveRetained", "", NUMBER, answer=False)
    again = states.value()
    scene.repeat(lambda: (scene.fill(connection, remove, 500), scene.fill(connection, again, 500)))


def large_values(scene):
    """Values of nearly 4 MiB of each of three processes."""
    for index in range(3):
        large = post(f"{states.NAME}.{index}", NUMBER, padding(900), RETAIN)
        scene.fork(states.keep_values, scene, large, scene.much(2900), 0)
    scene.reach("retained", scene.much(2900) * 3)
    return [name_and_object("Get", f"{states.NAME}.{index}") for index in range(3)] + [name_and_object("Get")]


def get_unread(scene):
    """Reads all values, by name and all at once, and reads no answer."""
    asks = large_values(scene)
    scene.act()
    states.pour_calls(scene, asks, 5)


def get_read(scene):
    """Reads all values, by name and all at once, again and again."""
    asks = large_values(scene)
    connection = scene.connect()
    scene.repeat(lambda: [connection.raw_answer_to(ask) for ask in asks])


def get_nothing(scene):
    """Reads values by objects that none has, beside 14,000."""
    both_kinds(scene)
    connection = scene.connect()
    ask = name_and_object("Get", "", "nothing")
    scene.repeat(lambda: scene.ask_all(connection, [ask], 50))


def replaced(scene):
    """Replaces 4,096 values again and again while clients that are suspended keep them."""
    clients = states.clients(scene, 100, options=RETAINED, then=suspended(True, answer=False))
    connection = scene.connect()
    template = states.value()
    count = scene.much(states.VALUES_PER_CLIENT)
    scene.fill(connection, template, count)
    scene.reach("retained", count, 0)
    crowd = states.Crowd(clients)
    scene.repeat(lambda: (scene.fill(connection, template, count), crowd.read()))


def from_elsewhere(scene):
    """4,000 values of one name from as many machines, which are removed one by one."""
    connection = scene.connect()
    options = {"host": GLib.Variant("s", f"host{NUMBER}"), "user": GLib.Variant("s", "anna")}
    template = states.value(object_="", options=options)
    scene.fill(connection, template, scene.much(4000))
    scene.reach("retained", scene.much(4000), 0)
    remove = message("RemoveRetainedFrom", GLib.Variant("(ssss)", (f"host{NUMBER}", "anna", states.NAME, "")))
    scene.repeat(lambda: (scene.fill(connection, remove, 1000), scene.fill(connection, template, 1000)))


CASES = {
    "retained-of-name": retained_of_name,
    "retained-of-names": retained_of_names,
    "retained-of-objects": retained_of_objects,
    "retained-of-all": retained_of_all,
    "retained-resumed": retained_resumed,
    "values-unread": values_unread,
    "intervals": intervals,
    "intervals-of-clients": intervals_of_clients,
    "interest": interest,
    "interest-churn": interest_churn,
    "interest-followers": interest_followers,
    "values-followers": values_followers,
    "values-pages": values_pages,
    "expire-at-once": expire_at_once,
    "expire-in-queue": expire_in_queue,
    "while-connected": while_connected,
    "displaced": displaced,
    "remove-retained": remove_retained,
    "remove-retained-one": remove_retained_one,
    "get-unread": get_unread,
    "get-read": get_read,
    "get-nothing": get_nothing,
    "replaced": replaced,
    "from-elsewhere": from_elsewhere,
}
