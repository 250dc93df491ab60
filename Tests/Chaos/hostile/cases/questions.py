# SPDX-FileCopyrightText: The Carillon authors
# SPDX-License-Identifier: Apache-2.0
"""Questions whose answers are long, or dear."""

from gi.repository import GLib

from contract import INTERFACE, INTROSPECTABLE, PROPERTIES
from hostile.cases import states
from hostile.scene import CLIENTS, STATISTICS
from hostile.templates import style
from wire import ERROR, Closed, add_observer, asked, message, post

PROPERTY_NAMES = (
    "Version", "ActivitySource", "ActivityState", "ActivityReason", "Policy", "Limits", "Statistics", "Sessions",
    "Configuration",
)


def without_end(scene, calls, unread=False):
    """Sends these calls again and again, and reads the answers or not."""
    if unread:
        scene.act()
        states.pour_calls(scene, calls, 20)
    else:
        connection = scene.connect()
        scene.repeat(lambda: scene.ask_all(connection, calls, 5))


def list_clients(scene):
    """Has 3,000 clients listed again and again."""
    states.clients(scene, 3000)
    without_end(scene, [CLIENTS])


def list_clients_unread(scene):
    """Has 3,000 clients listed again and again, and reads no answer."""
    states.clients(scene, 3000)
    without_end(scene, [CLIENTS], unread=True)


def list_posters(scene):
    """Has all posters listed, as many as there are."""
    ask = message("ListPosters", GLib.Variant("(u)", (2**32 - 1,)), answer=True)
    connections = scene.several(3000)
    for connection in connections:
        connection.send(post(states.NAME))
    scene.ask(connections[-1], post(states.NAME, answer=True))
    scene.reached("posters", len(scene.value(connections[0], ask)), scene.much(1000))
    without_end(scene, [ask, message("ListPosters", GLib.Variant("(u)", (1,)), answer=True)])


def explain(client, name, object_=""):
    """The call that asks why a client gets a notification."""
    return message("Explain", GLib.Variant("(sss)", (client, name, object_)), answer=True)


def explain_at_exit(scene):
    """Asks why a client would get something, which has 130,000 posts waiting for its exit."""
    connection = states.observers(scene)
    states.queued(scene, connection, style("at-exit"))
    scene.reached("queued-posts", scene.statistics()["queued-posts"], scene.much(130_000))
    without_end(scene, [explain(connection.name, name) for name in ("", states.NAME, states.NAMES)])


def explain_matches(scene):
    """Asks why a client would get what all its 16,384 observers match, or nearly match."""
    connection = states.observers(scene, name=states.NAME, object_="object")
    without_end(scene, [explain(connection.name, states.NAME, object_) for object_ in ("object", "", "other")])


def explain_marks(scene):
    """Asks why a client would get something that has an interval for 16,000 names."""
    connection = states.observers(scene, 1, "", options={"minimum-interval": GLib.Variant("u", 3_600_000)})
    poster = scene.connect()
    for _ in range(2):
        scene.fill(poster, post(states.NAMES), scene.much(16_000))
    scene.reach("interval-bytes", scene.much(16_000) * 20)
    crowd = states.Crowd([connection])
    asker = scene.connect()
    calls = [explain(connection.name, name) for name in ("", states.NAME, states.NAMES)]

    def act():
        for call in calls:
            scene.ask(asker, call)
        crowd.read()

    scene.repeat(act)


def explain_held(scene):
    """Asks why a client would get something for which 130,000 are held."""
    connection = states.holder(scene)
    without_end(scene, [explain(connection.name, name) for name in ("", states.NAME)])


def get_client(scene):
    """Asks who thousands of connections were that have left."""
    names = []
    for _ in range(scene.much(3000)):
        with scene.connect() as connection:
            connection.send(post(states.NAME))
            names.append(connection.name)
    calls = [message("GetClient", GLib.Variant("(s)", (name,)), answer=True) for name in names]
    connection = scene.connect()
    scene.ask(connection, post(states.NAME, answer=True))
    states.pause_until(scene, lambda: scene.statistics()["posted"] >= len(names))
    scene.reached("known", sum(connection.raw_answer_to(call)[1] != ERROR for call in calls), scene.much(1000))
    scene.repeat(lambda: scene.ask_all(connection, scene.random.sample(calls, min(100, len(calls)))))


def properties(scene):
    """Reads and sets properties, those that are and those that are not."""
    calls = [message("GetAll", GLib.Variant("(s)", (INTERFACE,)), interface=PROPERTIES, answer=True)]
    for name in (*PROPERTY_NAMES, "Nothing"):
        calls.append(message("Get", GLib.Variant("(ss)", (INTERFACE, name)), interface=PROPERTIES, answer=True))
        value = GLib.Variant("(ssv)", (INTERFACE, name, GLib.Variant("s", "x" * 10_000)))
        calls.append(message("Set", value, interface=PROPERTIES, answer=True))
    states.clients(scene, 100)
    without_end(scene, calls)


def properties_unread(scene):
    """Asks for all properties and for the description of the interface, and reads no answer."""
    calls = [
        message("GetAll", GLib.Variant("(s)", (INTERFACE,)), interface=PROPERTIES, answer=True),
        message("Introspect", interface=INTROSPECTABLE, answer=True), STATISTICS,
    ]
    states.clients(scene, 100)
    without_end(scene, calls, unread=True)


def introspect(scene):
    """Asks for the description of the interface again and again, at every path."""
    calls = [
        message("Introspect", interface=INTROSPECTABLE, path=path, answer=True)
        for path in ("/", "/org", "/org/carillon", "/org/carillon/NotificationCenter1", "/no/such/path")
    ]
    scene.reached("bytes", len(scene.connect().raw_answer_to(calls[3])), 1000)
    without_end(scene, calls)


def unknown(scene):
    """Calls methods, interfaces and paths that are not there, with arguments of a megabyte."""
    text = GLib.Variant("(s)", ("x" * 1_000_000,))
    calls = [
        message("Nothing", text, answer=True), message("Post", text, interface="org.example.Nothing", answer=True),
        message("Post", text, path="/" + "a/" * 1000 + "b", answer=True), message("N" * 255, answer=True),
        message("Ping", text, interface="org.freedesktop.DBus.Peer", answer=True),
        message("GetMachineId", interface="org.freedesktop.DBus.Peer", answer=True),
    ]
    connection = scene.connect()
    scene.reached("errors", sum(connection.raw_answer_to(call)[1] == ERROR for call in calls), 4)
    without_end(scene, calls)


def everything(scene):
    """Asks everything of a service with as much as there may be: clients, observers, posts that wait, values."""
    connections = states.many_observers(scene, 8000, 4)
    states.values(scene, states.value(), (4000,))
    states.queued(scene, connections[0], style("at-exit"), 60_000)
    scene.reach("queued-posts", scene.much(60_000))
    calls = [CLIENTS, STATISTICS, message("ListPosters", GLib.Variant("(u)", (1000,)), answer=True)]
    for connection in connections:
        calls.append(message("ListObservers", GLib.Variant("(s)", (connection.name,)), answer=True))
        calls.append(explain(connection.name, ""))
    calls.append(message("Get", GLib.Variant("(ss)", ("", "")), answer=True))
    without_end(scene, calls)


def ask_and_leave(scene):
    """Asks for long lists and leaves before the answer."""
    connection = states.observers(scene)
    ask = message("ListObservers", GLib.Variant("(s)", (connection.name,)), answer=True)

    def act():
        try:
            with scene.connect() as asker:
                asker.send(add_observer(states.NAME) + asked([ask], 5))
        except Closed:
            scene.rest()

    scene.repeat(act)


CASES = {
    "list-clients": list_clients,
    "list-clients-unread": list_clients_unread,
    "list-posters": list_posters,
    "explain-at-exit": explain_at_exit,
    "explain-matches": explain_matches,
    "explain-marks": explain_marks,
    "explain-held": explain_held,
    "get-client": get_client,
    "properties": properties,
    "properties-unread": properties_unread,
    "introspect": introspect,
    "unknown": unknown,
    "everything": everything,
    "ask-and-leave": ask_and_leave,
}
