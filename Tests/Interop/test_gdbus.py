# SPDX-FileCopyrightText: The Carillon authors
# SPDX-License-Identifier: Apache-2.0
"""The service as GDBus programs use it: matching, order, removal, and values of every type."""

import itertools
import json
import os
import sys

import carillon_interop
from carillon_interop import (
    BUS_NAME,
    DOUBLES,
    INTEGER_RANGES,
    INTERFACE,
    LIMIT_EXCEEDED,
    OBJECT_PATH,
    PEER,
    PROPERTIES,
    PROPERTY_READ_ONLY,
    TEXTS,
    UNKNOWN_INTERFACE,
    UNKNOWN_OBSERVER,
    UNKNOWN_PROPERTY,
    Gio,
    GLib,
    Refused,
    dictionary_of_variants,
    fresh_name,
    pairs,
    post_arguments,
    second_process,
    wait_until,
)


class PostAndObserve(carillon_interop.TestCase):
    def test_one_process_posts_another_observes(self):
        observer = second_process("observe", self.name, "", 2)
        self.addCleanup(observer.stdout.close)
        self.addCleanup(observer.stdin.close)
        self.addCleanup(observer.wait)
        self.addCleanup(observer.kill)
        self.assertEqual(observer.stdout.readline(), "ready\n")
        self.assertEqual(self.control.post(self.name, "bell", {"weight": GLib.Variant("x", 4711)}), 1)
        self.assertEqual(self.control.post(self.name), 1)
        first, second = (json.loads(observer.stdout.readline()) for _ in range(2))
        self.assertEqual((first["name"], first["object"]), (self.name, "bell"))
        self.assertEqual(first["user_info"], "{'weight': <int64 4711>}")
        self.assertEqual(first["poster"], self.control.unique_name)
        self.assertEqual((second["name"], second["object"], second["user_info"]), (self.name, "", "@a{sv} {}"))
        self.assertEqual([first["sequence"], second["sequence"]], [1, 2])

    def test_another_process_posts(self):
        observer = self.client()
        observer.add_observer(self.name)
        poster = second_process("post", self.name, "tower", 10)
        output, _ = poster.communicate(timeout=carillon_interop.PATIENCE)
        notifications = observer.wait_for(10)
        self.assertEqual([each.user_info.unpack()["index"] for each in notifications], list(range(10)))
        self.assertEqual({each.poster for each in notifications}, {output.strip()})

    def test_own_posts_are_received(self):
        """D5"""
        client = self.client()
        observer = client.add_observer(self.name)
        self.assertEqual(client.post(self.name), 1)
        (notification,) = client.wait_for(1)
        self.assertEqual(notification.poster, client.unique_name)
        self.assertEqual(notification.observers, [observer])

    def test_the_signal_comes_from_the_service(self):
        self.control.add_observer(self.name)
        self.control.post(self.name)
        (notification,) = self.control.wait_for(1)
        self.assertEqual(notification.sender, self.control.call_bus("GetNameOwner", BUS_NAME))
        self.assertEqual(notification.path, OBJECT_PATH)

    def test_the_signal_goes_to_nobody_else(self):
        """D7: also not to a client that asks the bus for all signals of the interface."""
        stranger = self.client()
        stranger.call_bus("GetId")
        stranger.connection.signal_subscribe(
            None, INTERFACE, None, None, None, Gio.DBusSignalFlags.NONE, stranger._received
        )
        observer = self.client()
        observer.add_observer(self.name)
        self.control.post(self.name)
        self.assertEqual(len(observer.settle(self.control)), 1)
        self.assertEqual(stranger.settle(self.control), [])

    def test_post_without_observers(self):
        self.assertEqual(self.control.post(self.name), 0)
        self.assertEqual(self.control.post(self.name, "object", {"key": GLib.Variant("i", 1)}), 0)

    def test_posts_without_reply(self):
        observer = self.client()
        observer.add_observer(self.name)
        for index in range(3):
            self.control.post_without_reply(self.name, str(index))
        self.assertEqual([each.object for each in observer.settle(self.control)], ["0", "1", "2"])

    def test_calls_without_reply_other_than_post(self):
        observer = self.client()
        observer.send("AddObserver", GLib.Variant("(ssa{sv})", (self.name, "", {})))
        observer.ping()
        self.assertEqual(self.control.post(self.name), 1)
        observer.send("RemoveObservers", GLib.Variant("(ss)", ("", "")))
        observer.ping()
        self.assertEqual(self.control.post(self.name), 0)


class Matching(carillon_interop.TestCase):
    """C1"""

    def setUp(self):
        super().setUp()
        self.other_name = fresh_name()
        #: The four kinds of registration.
        self.registrations = {
            "name and object": (self.name, "bell"),
            "name": (self.name, ""),
            "object": ("", "bell"),
            "everything": ("", ""),
        }
        #: Posts, and the kinds that receive them.
        self.table = [
            ((self.name, "bell"), {"name and object", "name", "object", "everything"}),
            ((self.name, "clapper"), {"name", "everything"}),
            ((self.name, ""), {"name", "everything"}),
            ((self.other_name, "bell"), {"object", "everything"}),
            ((self.other_name, "clapper"), {"everything"}),
            ((self.other_name, ""), {"everything"}),
        ]

    def test_one_client_for_each_kind(self):
        clients = {kind: self.client() for kind in self.registrations}
        for kind, registration in self.registrations.items():
            clients[kind].add_observer(*registration)
        for post, receivers in self.table:
            with self.subTest(post=post):
                self.assertEqual(self.control.post(*post), len(receivers), "the number of receivers")
        for kind, client in clients.items():
            with self.subTest(kind=kind):
                expected = [post for post, receivers in self.table if kind in receivers]
                self.assertEqual(pairs(client.settle(self.control), "name", "object"), expected)

    def test_one_client_with_all_kinds_in_every_order(self):
        """C3, D6: once per client, with its matching observers in registration order."""
        for order in itertools.permutations(self.registrations):
            with self.subTest(order=order):
                client = self.client()
                observers = {kind: client.add_observer(*self.registrations[kind]) for kind in order}
                expected = []
                for post, receivers in self.table:
                    self.assertEqual(self.control.post(*post), 1)
                    expected.append((*post, [observers[kind] for kind in order if kind in receivers]))
                self.assertEqual(pairs(client.settle(self.control), "name", "object", "observers"), expected)
                client.close()

    def test_no_prefixes_patterns_or_case(self):
        client = self.client()
        for name in (self.name + ".Sub", self.name[:-1], self.name.upper(), self.name + "*", " " + self.name):
            client.add_observer(name)
        client.add_observer(self.name, "*")
        self.assertEqual(self.control.post(self.name, "bell"), 0)

    def test_texts_are_compared_byte_for_byte(self):
        """Not as Unicode defines equivalence: what looks the same is not the same."""
        for one, other in (
            ("é", "e\u0301"),
            ("\u00c5", "\u212b"),
            ("한", "\u1112\u1161\u11ab"),
            ("a\u0323\u0307", "a\u0307\u0323"),
        ):
            for left, right in ((one, other), (other, one)):
                with self.subTest(observed=ascii(left), posted=ascii(right)):
                    client = self.client()
                    client.add_observer(left)
                    client.add_observer(self.name, left)
                    client.add_observer("", left)
                    self.assertEqual(self.control.post(right), 0, "by name")
                    self.assertEqual(self.control.post(self.name, right), 0, "by object")
                    self.assertEqual(client.remove_observers(right, ""), 0, "removal by name")
                    self.assertEqual(client.remove_observers("", right), 0, "removal by object")
                    client.close()

    def test_any_text_is_a_name_and_an_object(self):
        for text in TEXTS:
            if not text or len(text) > 1000:
                continue
            with self.subTest(text=text):
                client = self.client()
                client.add_observer(text, text)
                self.assertEqual(self.control.post(text, text), 1)
                self.assertEqual(pairs(client.settle(self.control), "name", "object"), [(text, text)])
                client.close()


class Observers(carillon_interop.TestCase):
    def test_numbers_are_different_and_not_zero(self):
        clients = [self.client() for _ in range(3)]
        numbers = [client.add_observer(self.name) for client in clients for _ in range(10)]
        self.assertEqual(len(set(numbers)), 30)
        self.assertNotIn(0, numbers)

    def test_registered_twice_delivers_once_with_both(self):
        """C10, D6"""
        client = self.client()
        first, second = client.add_observer(self.name), client.add_observer(self.name)
        self.assertNotEqual(first, second)
        self.assertEqual(self.control.post(self.name), 1)
        self.assertEqual(pairs(client.settle(self.control), "observers"), [([first, second],)])

    def test_remove_by_number(self):
        """D8"""
        client = self.client()
        first, second = client.add_observer(self.name), client.add_observer(self.name)
        client.remove_observer(first)
        self.control.post(self.name)
        self.assertEqual(pairs(client.settle(self.control), "observers"), [([second],)])
        client.remove_observer(second)
        self.assertEqual(self.control.post(self.name), 0)

    def test_remove_twice(self):
        client = self.client()
        observer = client.add_observer(self.name)
        other = client.add_observer(self.name)
        client.remove_observer(observer)
        self.assert_refused(UNKNOWN_OBSERVER, client.remove_observer, observer, mentions=[observer])
        self.control.post(self.name)
        self.assertEqual(pairs(client.settle(self.control), "observers"), [([other],)])

    def test_remove_a_strangers_observer(self):
        """D8: it is unknown to the caller, and stays."""
        client, stranger = self.client(), self.client()
        observer = client.add_observer(self.name)
        self.assert_refused(UNKNOWN_OBSERVER, stranger.remove_observer, observer, mentions=[observer])
        stranger.add_observer(self.name)
        self.assert_refused(UNKNOWN_OBSERVER, stranger.remove_observer, observer, mentions=[observer])
        self.assertEqual(self.control.post(self.name), 2)
        self.assertEqual(pairs(client.settle(self.control), "observers"), [([observer],)])

    def test_remove_numbers_that_nobody_has(self):
        for number in (0, 2**32, 2**63, 2**64 - 1):
            with self.subTest(number=number):
                self.assert_refused(UNKNOWN_OBSERVER, self.control.remove_observer, number, mentions=[number])

    def test_remove_by_name_and_object_only_ones_own(self):
        """D8"""
        other = fresh_name()
        registrations = [(self.name, "a"), (self.name, "b"), (self.name, ""), (other, "a"), ("", "a"), ("", "")]
        cases = [
            ((self.name, "a"), [(self.name, "a")]),
            ((self.name, ""), [(self.name, "a"), (self.name, "b"), (self.name, "")]),
            (("", "a"), [(self.name, "a"), (other, "a"), ("", "a")]),
            (("", ""), registrations),
            ((fresh_name(), ""), []),
            ((self.name, "nothing"), []),
        ]
        for removal, removed in cases:
            with self.subTest(removal=removal):
                client, stranger = self.client(), self.client()
                for registration in registrations:
                    client.add_observer(*registration)
                    stranger.add_observer(*registration)
                self.assertEqual(client.remove_observers(*removal), len(removed))
                remaining = [each for each in registrations if each not in removed]
                observed = self.control.list_observers(client.unique_name)
                self.assertEqual([(name, object_) for _, name, object_, _ in observed], remaining)
                self.assertEqual(len(self.control.list_observers(stranger.unique_name)), len(registrations))
                self.assertEqual(client.remove_observers(*removal), 0)
                client.close()
                stranger.close()

    def test_remove_without_any(self):
        self.assertEqual(self.client().remove_observers("", ""), 0)

    def test_options_that_are_known(self):
        client = self.client()
        behaviors = ("drop", "coalesce", "hold", "deliver-immediately")
        for behavior in behaviors:
            client.add_observer(self.name, "", {"suspension-behavior": GLib.Variant("s", behavior)})
        client.add_observer(self.name)
        listed = [behavior for *_, behavior in client.list_observers(client.unique_name)]
        self.assertEqual(listed, [*behaviors, "coalesce"])
        for mode in ("default", "modal-panel", "event-tracking"):
            client.add_observer(self.name, "", {"run-loop-mode": GLib.Variant("s", mode)})
        for automatic in (True, False):
            client.add_observer(self.name, "", {"automatic-suspension": GLib.Variant("b", automatic)})
        self.assertEqual(self.control.post(self.name), 1)

    def test_options_of_post_that_are_known(self):
        client = self.client()
        client.add_observer(self.name)
        for options in (
            {"deliver-immediately": GLib.Variant("b", True)},
            {"deliver-immediately": GLib.Variant("b", False)},
            {"posting-style": GLib.Variant("s", "now")},
            {"coalesce-on": GLib.Variant("as", [])},
        ):
            with self.subTest(options=options):
                self.assertEqual(self.control.post(self.name, "", {}, options), 1)
        self.assertEqual(len(client.settle(self.control)), 4)


class Order(carillon_interop.TestCase):
    def test_a_thousand_posts(self):
        """D4, D6"""
        observers = [self.client(), self.client()]
        for observer in observers:
            observer.add_observer(self.name)
        for index in range(1000):
            self.control.post_without_reply(self.name, "", {"index": GLib.Variant("i", index)})
        for observer in observers:
            received = observer.wait_for(1000)
            self.assertEqual([each.user_info.unpack()["index"] for each in received], list(range(1000)))
            self.assertEqual([each.sequence for each in received], list(range(1, 1001)))

    def test_all_observers_see_one_order(self):
        """D4: also of the posts of several clients."""
        observers = [self.client() for _ in range(3)]
        posters = [self.client() for _ in range(3)]
        for observer in observers:
            observer.add_observer(self.name)
        for index in range(100):
            for poster in posters:
                poster.post_without_reply(self.name, str(index))
        serials = [[each.serial for each in observer.wait_for(300)] for observer in observers]
        self.assertEqual(serials[0], sorted(set(serials[0])), "serials grow")
        self.assertEqual(serials[1], serials[0])
        self.assertEqual(serials[2], serials[0])
        for poster in posters:
            posts = [each.object for each in observers[0].notifications if each.poster == poster.unique_name]
            self.assertEqual(posts, [str(index) for index in range(100)])

    def test_serial_is_global_and_sequence_is_the_clients_own(self):
        first, second = self.client(), self.client()
        other = fresh_name()
        first.add_observer(self.name)
        second.add_observer(self.name)
        second.add_observer(other)
        for name in (self.name, other, other, self.name):
            self.control.post(name)
        received = {client: client.settle(self.control) for client in (first, second)}
        self.assertEqual([each.sequence for each in received[first]], [1, 2])
        self.assertEqual([each.sequence for each in received[second]], [1, 2, 3, 4])
        serials = [each.serial for each in received[second]]
        self.assertEqual(serials, list(range(serials[0], serials[0] + 4)), "nobody else posted")
        self.assertEqual([each.serial for each in received[first]], [serials[0], serials[3]])

    def test_posts_that_nobody_observes_have_serials(self):
        self.control.add_observer(self.name)
        self.control.post(self.name)
        self.control.post(fresh_name())
        self.control.post(self.name)
        first, second = (each.serial for each in self.control.wait_for(2))
        self.assertEqual(second - first, 2)


class Listing(carillon_interop.TestCase):
    def test_list_clients(self):
        client = self.client()
        self.assertNotIn(client.unique_name, self.control.list_clients())
        client.add_observer(self.name)
        client.add_observer(self.name, "bell")
        self.control.post(self.name)
        listed = self.control.list_clients()[client.unique_name]
        types = {key: value.get_type_string() for key, value in listed.items()}
        self.assertEqual(
            types,
            {
                "name": "s",
                "pid": "u",
                "process": "s",
                "suspended": "b",
                "cause": "s",
                "observers": "u",
                "queued": "u",
                "delivered": "t",
                "dropped": "t",
                "flow": "s",
                "unconfirmed": "u",
                "posted": "t",
                "app": "s",
                "uid": "u",
                "channel": "b",
            },
        )
        values = {key: value.unpack() for key, value in listed.items()}
        self.assertEqual(values["pid"], os.getpid())
        with open("/proc/self/comm", encoding="utf-8") as comm:
            self.assertEqual(values["process"], comm.read().strip())
        self.assertEqual((values["suspended"], values["cause"]), (False, "none"))
        self.assertEqual((values["observers"], values["delivered"]), (2, 1))
        self.assertEqual((values["queued"], values["dropped"]), (0, 0))

    def list_posters(self, most=2**32 - 1):
        """The posters by unique name, in their order, each a dictionary."""
        reply = self.control.call("ListPosters", GLib.Variant("(u)", (most,)))
        self.assertEqual(reply.get_type_string(), "(aa{sv})")
        return {poster["name"]: poster for poster in reply.unpack()[0]}

    def test_list_posters(self):
        """B3: who posts is listed, in the order of connection, for as long as it is on the bus."""
        quiet, busy, silent = (self.client() for _ in range(3))
        silent.ping()
        quiet.post(self.name)
        for _ in range(500):
            busy.post_without_reply(self.name)
        busy.post_without_reply("")
        with self.assertRaises(Refused):
            busy.post("")
        posters = self.list_posters()
        self.assertNotIn(silent.unique_name, posters)
        with open(f"/proc/{os.getpid()}/comm") as file:
            process = file.read().strip()
        expected = {"pid": os.getpid(), "process": process, "uid": os.getuid()}
        for client, counts in ((quiet, (1, 0)), (busy, (500, 2))):
            poster = posters[client.unique_name]
            self.assertEqual((poster["posted"], poster["refused"]), counts)
            self.assertEqual(poster | expected, poster)
            self.assertEqual(set(poster), {"name", "pid", "process", "app", "uid", "posted", "refused"})
        order = list(posters)
        self.assertLess(order.index(quiet.unique_name), order.index(busy.unique_name))
        self.assertEqual(list(self.list_posters(most=1)), [busy.unique_name], "the busiest")
        self.assertEqual(self.list_posters(most=0), {})
        busy.close()
        wait_until(lambda: busy.unique_name not in self.list_posters(), "it has left")

    def test_list_observers(self):
        client = self.client()
        first = client.add_observer(self.name, "bell", {"suspension-behavior": GLib.Variant("s", "hold")})
        second = client.add_observer()
        reply = self.control.call("ListObservers", GLib.Variant("(s)", (client.unique_name,)))
        self.assertEqual(reply.get_type_string(), "(a(tsss))")
        self.assertEqual(reply.unpack()[0], [(first, self.name, "bell", "hold"), (second, "", "", "coalesce")])

    def test_list_observers_of_unknown_clients(self):
        for name in (":1.999999", "org.example.Nobody", BUS_NAME, "", "no name at all"):
            with self.subTest(name=name):
                self.assertEqual(self.control.list_observers(name), [])

    def list_observers_from(self, client, after, most):
        arguments = GLib.Variant("(stu)", (client, after, most))
        return self.control.call("ListObserversFrom", arguments)

    def test_list_observers_in_pieces(self):
        client = self.client()
        options = {"suspension-behavior": "hold", "run-loop-mode": "event-tracking"}
        first = client.add_observer(self.name, "bell", {key: GLib.Variant("s", value) for key, value in options.items()})
        second = client.add_observer("", "", {"automatic-suspension": GLib.Variant("b", False)})
        third = client.add_observer()
        reply = self.list_observers_from(client.unique_name, 0, 2)
        self.assertEqual(reply.get_type_string(), "(a(tsssa{sv}))")
        self.assertEqual(
            reply.unpack()[0],
            [
                (first, self.name, "bell", "hold", {"automatic-suspension": True, "run-loop-mode": "event-tracking"}),
                (second, "", "", "coalesce", {"automatic-suspension": False, "run-loop-mode": "default"}),
            ],
        )
        for after, expected in ((second, [third]), (first, [second, third]), (third, []), (2**64 - 1, [])):
            with self.subTest(after=after):
                rows = self.list_observers_from(client.unique_name, after, 2**32 - 1).unpack()[0]
                self.assertEqual([row[0] for row in rows], expected)
        self.assertEqual(self.list_observers_from(client.unique_name, 0, 0).unpack()[0], [])
        for name in (":1.999999", "no name at all"):
            self.assertEqual(self.list_observers_from(name, 0, 10).unpack()[0], [])

    def test_no_answer_has_more_than_four_mebibytes(self):
        """E1, E4"""
        client = self.client()
        for number in range(5000):
            client.send("AddObserver", GLib.Variant("(ssa{sv})", (f"{number:0>1000}", "", {})))
        client.ping()
        with self.assertRaises(Refused) as refusal:
            self.control.list_observers(client.unique_name)
        self.assertEqual(refusal.exception.name, LIMIT_EXCEEDED)
        self.assertIn("ListObserversFrom", refusal.exception.message)
        names, after = [], 0
        while True:
            reply = self.list_observers_from(client.unique_name, after, 2**32 - 1)
            self.assertLessEqual(reply.get_size(), 4 << 20)
            rows = reply.unpack()[0]
            if not rows:
                break
            after = rows[-1][0]
            names += [row[1] for row in rows]
        self.assertEqual(names, [f"{number:0>1000}" for number in range(5000)])

    def test_a_client_that_leaves_the_bus_is_forgotten(self):
        """D8"""
        client = self.client()
        client.add_observer(self.name)
        client.add_observer()
        before = self.control.statistics()
        self.assertEqual(self.control.post(self.name), 1)

        gone = []
        self.control.connection.signal_subscribe(
            "org.freedesktop.DBus",
            "org.freedesktop.DBus",
            "NameOwnerChanged",
            "/org/freedesktop/DBus",
            client.unique_name,
            Gio.DBusSignalFlags.NONE,
            lambda *arguments: gone.append(arguments),
        )
        self.control.call_bus("GetId")  # the match rule is in force
        client.close()
        wait_until(lambda: gone, "the bus says that the client left")
        # The bus told the service before it told this client.
        self.assertNotIn(client.unique_name, self.control.list_clients())
        self.assertEqual(self.control.list_observers(client.unique_name), [])
        self.assertEqual(self.control.post(self.name), 0)
        after = self.control.statistics()
        self.assertEqual(before["observers"] - after["observers"], 2)
        self.assertEqual(before["clients"] - after["clients"], 1)


class Properties(carillon_interop.TestCase):
    def test_version(self):
        value = self.control.property("Version")
        self.assertEqual(value.get_type_string(), "s")
        self.assertRegex(value.unpack(), r"^\d+\.\d+\.\d+")

    def test_limits(self):
        value = self.control.property("Limits")
        self.assertEqual(value.get_type_string(), "a{sv}")
        limits = dictionary_of_variants(value)
        keys = {"clients", "observers", "observers-per-client", "name-length", "object-length"}
        keys |= {"user-info-bytes", "user-info-depth"}
        self.assertLessEqual(keys, set(limits))
        self.assertEqual({limit.get_type_string() for limit in limits.values()}, {"t"})
        self.assertNotIn(0, [limit.unpack() for limit in limits.values()])

    def test_statistics(self):
        client = self.client()
        value = self.control.property("Statistics")
        self.assertEqual(value.get_type_string(), "a{st}")
        before = value.unpack()
        self.assertLessEqual({"posted", "delivered", "queued", "dropped", "clients", "observers"}, set(before))
        client.add_observer(self.name)
        client.add_observer(self.name)
        self.control.post(self.name)
        self.control.post(fresh_name())
        after = self.control.statistics()
        grown = {key: after[key] - before[key] for key in ("posted", "delivered", "clients", "observers")}
        self.assertEqual(grown, {"posted": 2, "delivered": 1, "clients": 1, "observers": 2})

    def test_get_all(self):
        for interface in (INTERFACE, ""):
            with self.subTest(interface=interface):
                reply = self.control.call("GetAll", GLib.Variant("(s)", (interface,)), interface=PROPERTIES)
                self.assertEqual(reply.get_type_string(), "(a{sv})")
                values = dictionary_of_variants(reply.get_child_value(0))
                types = {key: value.get_type_string() for key, value in values.items()}
                self.assertEqual(
                    types,
                    {
                        "Version": "s",
                        "ActivitySource": "s",
                        "ActivityState": "s",
                        "ActivityReason": "s",
                        "Policy": "a{sv}",
                        "Sessions": "a{sv}",
                        "Configuration": "a{sv}",
                        "Limits": "a{sv}",
                        "Statistics": "a{st}",
                    },
                )

    def test_get_what_is_not_there(self):
        for name in ("Nothing", "", "version"):
            with self.subTest(name=name):
                arguments = GLib.Variant("(ss)", (INTERFACE, name))
                self.assert_refused(UNKNOWN_PROPERTY, self.control.call, "Get", arguments, interface=PROPERTIES)
        errors = (UNKNOWN_INTERFACE, UNKNOWN_PROPERTY)
        arguments = GLib.Variant("(ss)", ("org.example.Other", "Version"))
        self.assert_refused(errors, self.control.call, "Get", arguments, interface=PROPERTIES)

    def test_set_is_refused(self):
        for name, value in (
            ("Version", GLib.Variant("s", "9.9.9")),
            ("Limits", GLib.Variant("a{sv}", {"name-length": GLib.Variant("t", 1)})),
            ("Statistics", GLib.Variant("a{st}", {})),
            ("Version", GLib.Variant("i", 9)),
        ):
            with self.subTest(name=name):
                before = self.control.property(name)
                arguments = GLib.Variant("(ssv)", (INTERFACE, name, value))
                self.assert_refused(PROPERTY_READ_ONLY, self.control.call, "Set", arguments, interface=PROPERTIES)
                self.assertTrue(self.control.property(name).equal(before) or name == "Statistics")
        arguments = GLib.Variant("(ssv)", (INTERFACE, "Nothing", GLib.Variant("i", 1)))
        self.assert_refused(UNKNOWN_PROPERTY, self.control.call, "Set", arguments, interface=PROPERTIES)


class StandardInterfaces(carillon_interop.TestCase):
    def test_ping(self):
        for path in (OBJECT_PATH, "/", "/anything"):
            with self.subTest(path=path):
                self.control.call("Ping", None, interface=PEER, path=path)

    def test_machine_id(self):
        reply = self.control.call("GetMachineId", None, interface=PEER)
        self.assertRegex(reply.unpack()[0], "^[0-9a-f]{32}$")

    def test_introspection_of_parents(self):
        self.assert_introspectable_children(self.control.introspect)

    def test_without_an_interface(self):
        """D-Bus allows to leave out the interface of a call."""
        reply = self.control.call("RemoveObservers", GLib.Variant("(ss)", ("", "")), interface=None)
        self.assertEqual(reply.unpack(), (0,))


def variants_of_every_type():
    """Values that must arrive as what they were, with a text that says what they are."""
    for text in TEXTS:
        yield f"text {text[:20]!r}", GLib.Variant("s", text)
    for truth in (True, False):
        yield f"boolean {truth}", GLib.Variant("b", truth)
    for type_, values in INTEGER_RANGES.items():
        for value in {*values, 0, 1}:
            yield f"integer {type_} {value}", GLib.Variant(type_, value)
    for value in DOUBLES:
        yield f"double {value}", GLib.Variant("d", value)
    for octets in (b"", b"\0", bytes(range(256)), b"\xff" * 10_000):
        yield f"data of {len(octets)} bytes", GLib.Variant("ay", octets)
    for microseconds in (0, -1, 1_700_000_000_123_456, *INTEGER_RANGES["x"]):
        yield f"date {microseconds}", GLib.Variant("(x)", (microseconds,))

    types = ("s", "b", *INTEGER_RANGES, "d", "v", "(x)", "as", "ay", "av", "a{sv}")
    for text in (
        # Arrays of everything, empty ones too: the type of an empty array is kept.
        *(f"@a{type_} []" for type_ in (*types, "a{ss}")),
        "['one', '']",
        "[true, false]",
        "[int16 -1, 2]",
        "[byte 0x01, 0x02]",
        "[1.5, -0.0]",
        "[(int64 1,), (2,)]",
        "[['a'], [], ['b', 'c']]",
        "[b'one', b'']",
        "[<1>, <'two'>, <3.0>, <@as []>, <(int64 4,)>, <<<5>>>]",
        # Dictionaries.
        *(f"@a{{s{type_}}} {{}}" for type_ in types),
        "{'': 'empty key', 'Schlüssel 🔑': 'é'}",
        "{'z': 1, 'a': 2, 'm': 3}",
        "{'when': (int64 0,)}",
        "{'deeper': {'still': <{'deeper': [<@a{sv} {}>]}>}}",
        # Variants in variants.
        "<1>",
        "<<'two'>>",
        "<<<<<<@ay []>>>>>>",
    ):
        yield text, GLib.Variant.parse(None, text, None, None)


class Types(carillon_interop.TestCase):
    """N3: values arrive as what they were."""

    def assert_arrives(self, observer, user_info):
        count = len(observer.notifications) + 1
        self.assertEqual(self.control.post(self.name, "", user_info), 1)
        received = observer.wait_for(count)[-1].user_info
        self.assertEqual(received.get_type_string(), "a{sv}")
        self.assertEqual(received.print_(True), user_info.print_(True))
        # Text says nothing about the bits of a NaN.
        bits = [value.get_normal_form().get_data_as_bytes().get_data() for value in (received, user_info)]
        self.assertEqual(*bits)

    def test_every_type(self):
        observer = self.client()
        observer.add_observer(self.name)
        for what, value in variants_of_every_type():
            with self.subTest(what):
                self.assert_arrives(observer, GLib.Variant("a{sv}", {"value": value}))

    def test_all_at_once(self):
        observer = self.client()
        observer.add_observer(self.name)
        everything = {what: value for what, value in variants_of_every_type()}
        self.assert_arrives(observer, GLib.Variant("a{sv}", everything))

    def test_order_of_keys(self):
        observer = self.client()
        observer.add_observer(self.name)
        for keys in ("zyx", "abc", "bca"):
            self.assert_arrives(observer, GLib.Variant("a{sv}", {key: GLib.Variant("s", key) for key in keys}))

    def test_a_poster_with_another_byte_order(self):
        observer = self.client()
        observer.add_observer(self.name)
        for order in (Gio.DBusMessageByteOrder.BIG_ENDIAN, Gio.DBusMessageByteOrder.LITTLE_ENDIAN):
            user_info = {what: value for what, value in variants_of_every_type()}
            message = Gio.DBusMessage.new_method_call(BUS_NAME, OBJECT_PATH, INTERFACE, "Post")
            message.set_byte_order(order)
            message.set_body(post_arguments(self.name, "", user_info))
            message.set_flags(Gio.DBusMessageFlags.NO_REPLY_EXPECTED)
            self.control.connection.send_message(message, Gio.DBusSendMessageFlags.NONE)
            received = observer.settle(self.control)[-1].user_info
            self.assertEqual(received.print_(True), GLib.Variant("a{sv}", user_info).print_(True))

    def test_other_bits_of_nan(self):
        observer = self.client()
        observer.add_observer(self.name)
        for bits in (0x7FF0000000000001, 0xFFF8000000000123):
            octets = GLib.Bytes.new(bits.to_bytes(8, sys.byteorder))
            nan = GLib.Variant.new_from_bytes(GLib.VariantType("d"), octets, True)
            self.assert_arrives(observer, GLib.Variant("a{sv}", {"nan": nan}))


if __name__ == "__main__":
    carillon_interop.main()
