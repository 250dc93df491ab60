#!/usr/bin/python3
# SPDX-FileCopyrightText: The Carillon authors
# SPDX-License-Identifier: Apache-2.0
"""A post here is observed there, over TLS: with all that it has, in order, and once."""

import json
import unittest

from case import BridgeTest, long, notifications
from programs import wait_until

NAME = "com.example.Saved"

#: Every type of a property list, with what a detour through text or another type would change.
EVERYTHING = {
    "text": "Glöckner 🔔 \u202e \"quoted\" \\ / \x01\t\n", "empty": "",
    "small": -3, "zero": 0, "large": 2**63 - 1, "least": -(2**63),
    "real": 0.1, "whole": 1.0, "tiny": 5e-324, "huge": 1.7976931348623157e308, "minus": -0.0,
    "yes": True, "no": False,
    "data": {"$data": "AAH+/w=="}, "no data": {"$data": ""},
    "date": {"$date": "2026-11-21T09:30:00Z"}, "early": {"$date": "1969-12-31T23:59:59.5Z"},
    "list": [1, 1.0, "one", True, {"$data": "AQ=="}, [], [[2]]], "nothing": [],
    "dictionary": {"a": {"b": {"c": [{"d": 1}]}}, "": 2, "é": 3}, "none": {},
}  # fmt: skip


def exactly(value):
    """The text of JSON, as 1, 1.0 and True are equal for Python."""
    return json.dumps(value, sort_keys=True)


class Posts(BridgeTest):
    def test_there_and_here(self):
        lab, desk, laptop = self.pair()
        observer = self.observe(laptop, NAME)
        desk.post(NAME, {"file": "letter.txt"}, "/home/anna/letter.txt")
        notification, = observer.wait(1)
        self.assertEqual(notification["name"], NAME)
        self.assertEqual(notification["object"], "/home/anna/letter.txt")
        self.assertEqual(notification["userInfo"], {"file": "letter.txt"})
        self.assert_origin(notification, "desk", "anna")
        # It is the bridge that posted it here, and the broker knew both by their certificates.
        self.assertEqual(notification["details"]["process"], "carillon-bridge")
        self.assertEqual(set(lab.broker.clients), {"desk", "laptop"})
        self.assertTrue(desk.status()["tls"])

    def test_people_are_told_where_it_comes_from(self):
        _, desk, laptop = self.pair()
        observer = self.observe(laptop, NAME)
        shown = laptop.start("people", "carillon", "observe", "--long", "--details", NAME)
        shown.wait_for("observing")
        desk.post(NAME, {"n": 1})
        laptop.post(NAME, {"n": 2})
        observer.wait(2)
        shown.wait_for("n  2")
        first, second = shown.text().split(NAME)[-2:]
        self.assertRegex(first, r"\bhost desk\b")
        self.assertRegex(first, r"\buser anna\b")
        self.assertNotIn("host", second)

    def test_all_types(self):
        _, desk, laptop = self.pair()
        observer = self.observe(laptop, NAME)
        here = desk.observe(NAME)
        desk.post(NAME, EVERYTHING)
        expected = exactly(here.wait(1)[0]["userInfo"])
        self.assertEqual(exactly(observer.wait(1)[0]["userInfo"]), expected)
        for key, value in EVERYTHING.items():
            if key != "early":  # Its text may be another one of the same moment.
                self.assertEqual(exactly(observer.notifications[0]["userInfo"][key]), exactly(value), key)

    def test_widths_of_numbers(self):
        _, desk, laptop = self.pair()
        observer = self.observe(laptop, NAME)
        desk.call(
            "org.carillon.NotificationCenter1.Post", NAME, "",
            "{'y': <byte 255>, 'n': <int16 -32768>, 'q': <uint16 65535>, 'i': <-2147483648>, 'u': <uint32 4294967295>, "
            "'x': <int64 -9223372036854775808>, 't': <uint64 9223372036854775807>, 'd': <2.0>, 'as': <['a']>, 'ay': <b'ab'>}",
            "@a{sv} {}", destination="org.carillon.NotificationCenter1", path="/org/carillon/NotificationCenter1",
        )  # fmt: skip
        self.assertEqual(exactly(observer.wait(1)[0]["userInfo"]), exactly({
            "y": 255, "n": -32768, "q": 65535, "i": -(2**31), "u": 2**32 - 1, "x": -(2**63), "t": 2**63 - 1, "d": 2.0,
            "as": ["a"], "ay": {"$data": "YWIA"},
        }))  # fmt: skip

    def test_order_of_a_thousand(self):
        _, desk, laptop = self.pair()
        observer = self.observe(laptop, NAME)
        desk.post_many(NAME, range(1000))
        desk.post(NAME, {"n": 1000})
        observer.wait(1001)
        self.assertEqual(observer.numbers, list(range(1001)))
        # It counts when the service has answered, and the observer may have it before that.
        status = laptop.wait_status(lambda status: status["imported"] >= 1001, "that all came")
        self.assertEqual((status["imported"], status["duplicates"], status["lost-in"], status["refused"]), (1001, 0, 0, 0))
        self.assertEqual((desk.status()["exported"], desk.status()["lost-out"]), (1001, 0))

    def test_both_ways(self):
        lab = self.lab()
        hosts = [lab.host(name, export="com.example.*", imports="com.example.*") for name in ("desk", "laptop")]
        observers = [self.observe(host, NAME) for host in hosts]
        for host in hosts:
            host.post_many(NAME, range(200), object_=host.name)
        for host, observer in zip(hosts, observers):
            observer.wait(400)
            for name in ("desk", "laptop"):
                of_it = [each for each in observer.notifications if each["object"] == name]
                self.assertEqual([each["userInfo"]["n"] for each in of_it], list(range(200)))
                for each in of_it:
                    self.assertEqual(each["details"].get("host"), None if name == host.name else name)

    def test_names_and_objects_that_topics_cannot_hold(self):
        names = ["com.example.a/b", "com.example.+#%", "com.example.%2f", "com.example.Glöckner 🔔", "com.example..x.",
                 "com.example.$SYS", "com.example.\x01\x7f\u0085", "com.example.\ufffe"]  # fmt: skip
        objects = ["", "/", "a/b", "+", "#", "%", "%2F", "é 🔔", "\x01\t\n", "\x7f\u0085", "\ufffe\U0001ffff", "$", " ", "x" * 2000]
        _, desk, laptop = self.pair()
        observer = laptop.observe(*names)
        # Each is two filters. Those of the end are asked for behind them, and the broker takes one after the other.
        wait_until(lambda: laptop.status()["subscriptions"] >= 2 * len(names), "it asks for all")
        end = self.observe(laptop, "com.example.End")
        for name in names:
            desk.post(name, {"kept": False}, "o")
        for object_ in objects:
            desk.post(names[0], {"kept": False}, object_)
            desk.post(names[1], {"kept": True}, object_, options=["--retain"])
        desk.post("com.example.End")
        end.wait(1)
        expected = [(name, "o", False) for name in names]
        for object_ in objects:
            expected += [(names[0], object_, False), (names[1], object_, True)]
        wait_until(lambda: len(observer.notifications) >= len(expected),
                   lambda: f"all arrive, but {expected[len(observer.notifications):][:3]} …\n{laptop.bridge.tail()}")  # fmt: skip
        # Those of one topic come in their order; between topics there may be none.
        self.assertEqual(
            sorted((each["name"], each["object"], each["userInfo"]["kept"]) for each in observer.notifications), sorted(expected))
        self.assertEqual(sorted(value["object"] for value in laptop.values(names[1])), sorted(objects))

    def test_large(self):
        _, desk, laptop = self.pair()
        observer = self.observe(laptop, NAME)
        text = "é🔔" * 100_000
        desk.run("carillon", "post", NAME, "--json", "-", text=json.dumps({"text": text}))
        self.assertEqual(observer.wait(1)[0]["userInfo"], {"text": text})

    def test_users_of_one_machine(self):
        lab = self.lab()
        anna = lab.host("desk", export="com.example.*", imports="com.example.*")
        bert = lab.host("desk", user="bert", machine="desk", export="com.example.*", imports="com.example.*")
        laptop = lab.host("laptop", imports="com.example.*")
        observers = [self.observe(host, NAME) for host in (anna, bert, laptop)]
        anna.post(NAME, {"n": 1})
        bert.post(NAME, {"n": 2})
        for observer in observers:
            observer.wait(2)
        origins = [{each["userInfo"]["n"]: each["details"].get("user") for each in observer.notifications} for observer in observers]
        self.assertEqual(origins, [{1: None, 2: "bert"}, {1: "anna", 2: None}, {1: "anna", 2: "bert"}])

    @long
    def test_realms_are_apart(self):
        lab, desk, laptop = self.pair()
        office = lab.host("office", imports="com.example.*", settings={"Bridge": {"realm": "work"}})
        here, there = self.observe(laptop, NAME), self.observe(office, NAME)
        desk.post(NAME, {"n": 1})
        here.wait(1)
        office.post(NAME, {"n": 2})
        there.wait(1)
        self.assertEqual(there.numbers, [2])


if __name__ == "__main__":
    unittest.main()
