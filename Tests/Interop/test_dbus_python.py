# SPDX-FileCopyrightText: The Carillon authors
# SPDX-License-Identifier: Apache-2.0
"""The service as programs use it that are written with dbus-python, the binding of libdbus."""

import collections
import itertools
import json
import os
import struct
import subprocess
import sys

import carillon_interop
from carillon_interop import (
    BUS_NAME,
    DOUBLES,
    INTEGER_RANGES,
    INTERFACE,
    OBJECT_PATH,
    PATIENCE,
    PEER,
    PROPERTIES,
    PROPERTY_READ_ONLY,
    TEXTS,
    UNKNOWN_OBSERVER,
    bus_address,
    dbus,
    fresh_name,
    pairs,
    second_process,
    wait_until,
)

Notification = collections.namedtuple("Notification", "name object user_info observers poster serial sequence sender")


class Client:
    """A connection of its own through dbus-python, and the notifications that it received, with their D-Bus types."""

    def __init__(self):
        self.connection = dbus.bus.BusConnection(bus_address())
        self.unique_name = self.connection.get_unique_name()
        self.notifications = []
        self.signatures = []
        self.connection.add_message_filter(self._received)

    def _received(self, _connection, message):
        if not message.is_signal(INTERFACE, "Notification"):
            return dbus.lowlevel.HANDLER_RESULT_NOT_YET_HANDLED
        self.signatures.append(str(message.get_signature()))
        self.notifications.append(Notification(*message.get_args_list(), message.get_sender()))
        return dbus.lowlevel.HANDLER_RESULT_HANDLED

    def call(self, method, signature, *arguments, interface=INTERFACE, path=OBJECT_PATH):
        return self.connection.call_blocking(
            BUS_NAME, path, interface, method, signature, arguments, timeout=PATIENCE
        )

    def call_bus(self, method, *names):
        """Calls a method of the bus itself that takes strings."""
        return self.connection.call_blocking(
            "org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus", method, "s" * len(names), names,
            timeout=PATIENCE,
        )  # fmt: skip

    def add_observer(self, name="", object="", options=None):
        return self.call("AddObserver", "ssa{sv}", name, object, options or {})

    def remove_observer(self, observer):
        self.call("RemoveObserver", "t", observer)

    def remove_observers(self, name="", object=""):
        return self.call("RemoveObservers", "ss", name, object)

    def post(self, name, object="", user_info=None, options=None):
        return self.call("Post", "ssa{sv}a{sv}", name, object, user_info or {}, options or {})

    def post_without_reply(self, name, object="", user_info=None, options=None):
        message = dbus.lowlevel.MethodCallMessage(BUS_NAME, OBJECT_PATH, INTERFACE, "Post")
        message.append(name, object, user_info or {}, options or {}, signature="ssa{sv}a{sv}")
        message.set_no_reply(True)
        self.connection.send_message(message)

    def property(self, name):
        return self.call("Get", "ss", INTERFACE, name, interface=PROPERTIES)

    def wait_for(self, count):
        wait_until(
            lambda: len(self.notifications) >= count,
            lambda: f"{count} notifications for {self.unique_name}; it got {self.notifications}",
        )
        return self.notifications

    def settle(self, poster):
        """As carillon_interop.Client.settle."""
        barrier = fresh_name("org.example.Barrier")
        observer = self.add_observer(barrier)
        poster.post_without_reply(barrier)
        wait_until(
            lambda: self.notifications and self.notifications[-1].name == barrier,
            lambda: f"the barrier for {self.unique_name}; it got {self.notifications}",
        )
        self.remove_observer(observer)
        return [each for each in self.notifications if not each.name.startswith("org.example.Barrier.")]

    def close(self):
        self.connection.close()


def described(value):
    """A D-Bus value as text with all types: two values are the same if, and only if, these are."""
    kind = type(value).__name__ + "+" * getattr(value, "variant_level", 0)
    if isinstance(value, dbus.Dictionary):
        entries = ", ".join(f"{described(key)}: {described(each)}" for key, each in value.items())
        return f"{kind}<{value.signature}>{{{entries}}}"
    if isinstance(value, dbus.Array):
        return f"{kind}<{value.signature}>[{', '.join(map(described, value))}]"
    if isinstance(value, (dbus.Struct, tuple)):
        return f"{kind}({', '.join(map(described, value))})"
    if isinstance(value, dbus.Double):
        return f"{kind}({struct.pack('>d', value).hex()})"
    if isinstance(value, str):
        return f"{kind}({str(value)!r})"
    return f"{kind}({int(value)})"


class TestCase(carillon_interop.TestCase):
    def python_client(self):
        client = Client()
        self.addCleanup(client.close)
        return client

    def assert_refused_by_name(self, error_name, call, *arguments, **keywords):
        with self.assertRaises(dbus.DBusException) as caught:
            call(*arguments, **keywords)
        self.assertEqual(caught.exception.get_dbus_name(), error_name)
        return caught.exception


class PostAndObserve(TestCase):
    def test_a_process_with_gdbus_observes(self):
        observer = second_process("observe", self.name, "", 2)
        self.addCleanup(observer.stdout.close)
        self.addCleanup(observer.stdin.close)
        self.addCleanup(observer.wait)
        self.addCleanup(observer.kill)
        self.assertEqual(observer.stdout.readline(), "ready\n")
        poster = self.python_client()
        self.assertEqual(poster.post(self.name, "bell", {"weight": dbus.Int64(4711)}), 1)
        self.assertEqual(poster.post(self.name), 1)
        first, second = (json.loads(observer.stdout.readline()) for _ in range(2))
        self.assertEqual((first["name"], first["object"]), (self.name, "bell"))
        self.assertEqual(first["user_info"], "{'weight': <int64 4711>}")
        self.assertEqual(first["poster"], poster.unique_name)
        self.assertEqual((second["object"], second["user_info"]), ("", "@a{sv} {}"))

    def test_a_process_with_gdbus_posts(self):
        observer = self.python_client()
        observer.add_observer(self.name)
        poster = second_process("post", self.name, "tower", 10)
        output, _ = poster.communicate(timeout=PATIENCE)
        notifications = observer.wait_for(10)
        self.assertEqual([each.user_info["index"] for each in notifications], list(range(10)))
        self.assertEqual({str(each.poster) for each in notifications}, {output.strip()})
        self.assertEqual({each.object for each in notifications}, {"tower"})

    def test_types_of_the_signal(self):
        client = self.python_client()
        observer = client.add_observer(self.name)
        self.assertIs(type(observer), dbus.UInt64)
        receivers = client.post(self.name, "bell")
        self.assertEqual(described(receivers), described(dbus.UInt32(1)))
        (notification,) = client.wait_for(1)
        self.assertEqual(client.signatures, ["ssa{sv}atstt"])
        self.assertEqual(notification.sender, client.connection.get_name_owner(BUS_NAME))
        self.assertEqual(notification.poster, client.unique_name)
        self.assertEqual(notification.observers, [observer])
        self.assertEqual(notification.sequence, 1)

    def test_as_programs_do_it(self):
        """A proxy, an interface, a signal receiver with a match rule."""
        connection = dbus.bus.BusConnection(bus_address())
        self.addCleanup(connection.close)
        center = dbus.Interface(connection.get_object(BUS_NAME, OBJECT_PATH), INTERFACE)
        received = []
        connection.add_signal_receiver(
            lambda *arguments: received.append(arguments),
            signal_name="Notification",
            dbus_interface=INTERFACE,
            bus_name=BUS_NAME,
            path=OBJECT_PATH,
        )
        observer = center.AddObserver(self.name, "", {})
        self.assertEqual(center.Post(self.name, "bell", {"number": 1, "text": "ding", "list": [1.5]}, {}), 1)
        wait_until(lambda: received, "a notification")
        name, object_, user_info, observers, *_ = received[0]
        self.assertEqual((name, object_, observers), (self.name, "bell", [observer]))
        self.assertEqual(user_info, {"number": 1, "text": "ding", "list": [1.5]})
        center.RemoveObserver(observer)
        self.assertEqual(len(received), 1)

    def test_posts_without_reply(self):
        observer, poster = self.python_client(), self.python_client()
        observer.add_observer(self.name)
        for index in range(3):
            poster.post_without_reply(self.name, str(index))
        self.assertEqual([each.object for each in observer.settle(poster)], ["0", "1", "2"])

    def test_a_thousand_posts_in_order(self):
        """D4, D6"""
        observer, poster = self.python_client(), self.python_client()
        observer.add_observer(self.name)
        for index in range(1000):
            poster.post_without_reply(self.name, "", {"index": dbus.UInt16(index)})
        received = observer.wait_for(1000)
        self.assertEqual([each.user_info["index"] for each in received], list(range(1000)))
        self.assertEqual([each.sequence for each in received], list(range(1, 1001)))
        serials = [each.serial for each in received]
        self.assertEqual(serials, list(range(serials[0], serials[0] + 1000)))


class Matching(TestCase):
    """C1"""

    def test_all_kinds_of_registration(self):
        other = fresh_name()
        registrations = [(self.name, "bell"), (self.name, ""), ("", "bell"), ("", "")]
        clients = [self.python_client() for _ in registrations]
        everything = self.python_client()
        observers = []
        for client, registration in zip(clients, registrations):
            client.add_observer(*registration)
            observers.append(everything.add_observer(*registration))
        poster = self.python_client()
        for name, object_ in itertools.product((self.name, other), ("bell", "clapper", "")):
            with self.subTest(name=name, object=object_):
                matching = [
                    (wanted_name in ("", name)) and (wanted_object in ("", object_))
                    for wanted_name, wanted_object in registrations
                ]
                for client in (*clients, everything):
                    client.notifications.clear()
                self.assertEqual(poster.post(name, object_), sum(matching) + 1)
                for client, matches in zip(clients, matching):
                    expected = [(name, object_)] if matches else []
                    self.assertEqual(pairs(client.settle(poster), "name", "object"), expected)
                expected = [observer for observer, matches in zip(observers, matching) if matches]
                self.assertEqual(pairs(everything.settle(poster), "observers"), [(expected,)])


class Observers(TestCase):
    def test_twice_registered_and_removed_by_number(self):
        client, poster = self.python_client(), self.python_client()
        first, second = client.add_observer(self.name), client.add_observer(self.name)
        self.assertEqual(poster.post(self.name), 1)
        client.remove_observer(first)
        self.assertEqual(poster.post(self.name), 1)
        client.remove_observer(second)
        self.assertEqual(poster.post(self.name), 0)
        self.assertEqual(pairs(client.settle(poster), "observers"), [([first, second],), ([second],)])

    def test_only_ones_own_are_removed(self):
        """D8"""
        client, stranger = self.python_client(), self.python_client()
        observer = client.add_observer(self.name, "bell")
        stranger.add_observer(self.name, "bell")
        error = self.assert_refused_by_name(UNKNOWN_OBSERVER, stranger.remove_observer, observer)
        self.assertIn(str(int(observer)), error.get_dbus_message())
        self.assertEqual(described(stranger.remove_observers(self.name, "bell")), described(dbus.UInt32(1)))
        self.assertEqual(stranger.remove_observers("", ""), 0)
        self.assertEqual(stranger.post(self.name, "bell"), 1)
        self.assertEqual(pairs(client.settle(stranger), "observers"), [([observer],)])

    def test_a_client_that_leaves_the_bus_is_forgotten(self):
        """D8"""
        client, poster = self.python_client(), self.python_client()
        client.add_observer(self.name)
        self.assertEqual(poster.post(self.name), 1)
        name = client.unique_name
        owners = []
        poster.connection.watch_name_owner(name, owners.append)
        wait_until(lambda: owners == [name], "the watch is set")
        client.close()
        wait_until(lambda: owners == [name, ""], "the bus says that the client left")
        self.assertEqual(poster.post(self.name), 0)
        self.assertNotIn(name, [entry["name"] for entry in poster.call("ListClients", "")])
        self.assertEqual(poster.call("ListObservers", "s", name), [])


class Looking(TestCase):
    def test_get_client(self):
        """P1: who is behind a connection, also when that has left."""
        client = self.python_client()
        code = (
            "import dbus, sys; bus = dbus.SessionBus(); "
            "bus.get_object(*sys.argv[1:3]).Post('Ding', '', {}, {}, signature='ssa{sv}a{sv}', "
            "dbus_interface=sys.argv[3]); print(bus.get_unique_name())"
        )
        command = [sys.executable, "-c", code, BUS_NAME, OBJECT_PATH, INTERFACE]
        poster = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        name = poster.communicate()[0].strip()
        known = client.call("GetClient", "s", name)
        self.assertEqual(known.signature, "sv")
        types = {str(key): type(value) for key, value in known.items()}
        may_be = {"app": dbus.String, "unit": dbus.String, "sandbox": dbus.String}
        self.assertEqual(
            {key: kind for key, kind in types.items() if key not in may_be},
            {"name": dbus.String, "uid": dbus.UInt32, "pid": dbus.UInt32, "process": dbus.String},
        )
        self.assertEqual({key: kind for key, kind in types.items() if key in may_be and kind != dbus.String}, {})
        self.assertEqual((known["name"], known["uid"], known["pid"]), (name, os.getuid(), poster.pid))
        with open(f"/proc/{os.getpid()}/comm") as file:
            self.assertEqual(known["process"], file.read().strip())

    def test_list_clients(self):
        client = self.python_client()
        client.add_observer(self.name)
        client.post(self.name)
        clients = client.call("ListClients", "")
        self.assertEqual(clients.signature, "a{sv}")
        (entry,) = (each for each in clients if each["name"] == client.unique_name)
        types = {str(key): type(value) for key, value in entry.items()}
        self.assertEqual(
            types,
            {
                "name": dbus.String,
                "pid": dbus.UInt32,
                "process": dbus.String,
                "suspended": dbus.Boolean,
                "cause": dbus.String,
                "observers": dbus.UInt32,
                "queued": dbus.UInt32,
                "delivered": dbus.UInt64,
                "dropped": dbus.UInt64,
                "flow": dbus.String,
                "unconfirmed": dbus.UInt32,
                "posted": dbus.UInt64,
                "app": dbus.String,
                "uid": dbus.UInt32,
                "channel": dbus.Boolean,
            },
        )
        self.assertEqual(entry["pid"], os.getpid())
        self.assertEqual((entry["observers"], entry["delivered"]), (1, 1))

    def test_list_observers(self):
        client = self.python_client()
        first = client.add_observer(self.name, "bell", {"suspension-behavior": "drop"})
        second = client.add_observer()
        observers = client.call("ListObservers", "s", client.unique_name)
        self.assertEqual(observers.signature, "(tsss)")
        self.assertEqual(observers, [(first, self.name, "bell", "drop"), (second, "", "", "coalesce")])

    def test_properties(self):
        client = self.python_client()
        self.assertIs(type(client.property("Version")), dbus.String)
        limits = client.property("Limits")
        self.assertEqual({type(value) for value in limits.values()}, {dbus.UInt64})
        statistics = client.property("Statistics")
        self.assertEqual(statistics.signature, "st")
        everything = client.call("GetAll", "s", INTERFACE, interface=PROPERTIES)
        self.assertEqual(
            set(everything),
            {
                "Version", "ActivitySource", "ActivityState", "ActivityReason", "Policy", "Sessions", "Configuration",
                "Limits", "Statistics",
            },
        )
        self.assert_refused_by_name(
            PROPERTY_READ_ONLY, client.call, "Set", "ssv", INTERFACE, "Version", "9", interface=PROPERTIES
        )

    def test_ping_and_introspection(self):
        client = self.python_client()
        client.call("Ping", "", interface=PEER)

        def introspect(path):
            return client.call("Introspect", "", interface=carillon_interop.INTROSPECTABLE, path=path)

        self.assertIn(f'interface name="{INTERFACE}"', introspect(OBJECT_PATH))
        self.assert_introspectable_children(introspect)


def values_of_every_type():
    """Values that must arrive as what they were. In a variant each, as values of an a{sv} are."""
    integers = {
        "y": dbus.Byte,
        "n": dbus.Int16,
        "q": dbus.UInt16,
        "i": dbus.Int32,
        "u": dbus.UInt32,
        "x": dbus.Int64,
        "t": dbus.UInt64,
    }
    for text in TEXTS:
        yield dbus.String(text, variant_level=1)
    for truth in (True, False):
        yield dbus.Boolean(truth, variant_level=1)
    for type_, values in INTEGER_RANGES.items():
        for value in {*values, 0, 1}:
            yield integers[type_](value, variant_level=1)
    for value in DOUBLES:
        yield dbus.Double(value, variant_level=1)
    for data in (b"", b"\0", bytes(range(256))):
        yield dbus.Array(map(dbus.Byte, data), signature="y", variant_level=1)
    for microseconds in INTEGER_RANGES["x"]:
        yield dbus.Struct((dbus.Int64(microseconds),), signature="x", variant_level=1)
    for signature in ("s", "b", *integers, "d", "v", "(x)", "as", "ay", "av", "a{sv}", "a{ss}"):
        yield dbus.Array([], signature=signature, variant_level=1)
        yield dbus.Dictionary({}, signature="s" + signature, variant_level=1)
    yield dbus.Array([dbus.String("one"), dbus.String("")], signature="s", variant_level=1)
    yield dbus.Array([dbus.Int16(-1), dbus.Int16(1)], signature="n", variant_level=1)
    yield dbus.Array([dbus.Struct((dbus.Int64(1),), signature="x")], signature="(x)", variant_level=1)
    yield dbus.Array(
        [dbus.Byte(1, variant_level=1), dbus.String("two", variant_level=2)], signature="v", variant_level=1
    )
    yield dbus.Dictionary({dbus.String("Schlüssel 🔑"): dbus.Boolean(True)}, signature="sb", variant_level=1)
    yield dbus.Dictionary(
        {dbus.String("deeper"): dbus.Dictionary({dbus.String(""): dbus.UInt64(1, variant_level=1)}, signature="sv")},
        signature="sa{sv}",
        variant_level=1,
    )
    yield dbus.Int32(1, variant_level=5)


class Types(TestCase):
    """N3: values arrive as what they were."""

    def test_every_type(self):
        client = self.python_client()
        client.add_observer(self.name)
        for count, value in enumerate(values_of_every_type(), start=1):
            user_info = dbus.Dictionary({dbus.String("value"): value}, signature="sv")
            with self.subTest(described(value)[:80]):
                self.assertEqual(client.post(self.name, "", user_info), 1)
                received = client.wait_for(count)[-1].user_info
                self.assertEqual(described(received), described(user_info))

    def test_all_at_once(self):
        client = self.python_client()
        client.add_observer(self.name)
        everything = {dbus.String(f"key {index}"): value for index, value in enumerate(values_of_every_type())}
        user_info = dbus.Dictionary(everything, signature="sv")
        self.assertEqual(client.post(self.name, "", user_info), 1)
        self.assertEqual(described(client.wait_for(1)[0].user_info), described(user_info))


if __name__ == "__main__":
    carillon_interop.main()
