#!/usr/bin/python3
# SPDX-FileCopyrightText: The Carillon authors
# SPDX-License-Identifier: Apache-2.0
"""Clients without Carillon: mosquitto_pub reaches observers, mosquitto_sub reads what is posted, and nonsense does no harm."""

import unittest

from case import BridgeTest, lost
from host import LOST

NAME = "com.example.Temperature"
TOPIC = "carillon/1/home/sensor/any/n/com/example/Temperature"


class Publishing(BridgeTest):
    def one(self):
        lab = self.lab()
        laptop = lab.host("laptop", user="bert", imports="com.example.*")
        return lab, laptop, self.observe(laptop, NAME)

    def test_an_object_of_json(self):
        lab, _, observer = self.one()
        lab.broker.publish("sensor", TOPIC, '{"celsius": 21.5, "room": "kitchen", "whole": 1.0, "n": 1, "list": [true, "é"]}')
        notification, = observer.wait(1)
        self.assertEqual(repr(notification["userInfo"]),
                         repr({"celsius": 21.5, "list": [True, "é"], "n": 1, "room": "kitchen", "whole": 1.0}))  # fmt: skip
        self.assertEqual(notification["object"], "")
        self.assert_origin(notification, "sensor", "any")

    def test_what_is_no_object(self):
        lab, _, observer = self.one()
        for text in ("21.5", "21", '"warm"', "true", '[1, "two"]', "{}"):
            lab.broker.publish("sensor", TOPIC, text)
        observer.wait(6)
        self.assertEqual([repr(each["userInfo"]) for each in observer.notifications], [
            "{'value': 21.5}", "{'value': 21}", "{'value': 'warm'}", "{'value': True}", "{'value': [1, 'two']}", "{}"])  # fmt: skip

    def test_an_object_by_topic_and_by_property(self):
        lab, _, observer = self.one()
        lab.broker.publish("sensor", TOPIC, '{"n": 1}', properties=[("object", "kitchen")])
        lab.broker.publish("sensor", TOPIC.replace("/n/", "/v/") + "/cellar%2Fnorth", '{"n": 2}')
        observer.wait(2)
        self.assertEqual({each["object"]: each["userInfo"]["n"] for each in observer.notifications},
                         {"kitchen": 1, "cellar/north": 2})  # fmt: skip

    def test_retained(self):
        lab = self.lab()
        laptop = lab.host("laptop", imports="com.example.*")
        value = TOPIC.replace("/n/", "/v/") + "/kitchen"
        lab.broker.publish("sensor", value, '{"celsius": 21}', "-r")
        lab.broker.publish("sensor", TOPIC, '{"celsius": 5}', "-r")
        observer = self.observe(laptop, NAME)
        observer.wait(2)
        laptop.wait_value(NAME, "kitchen", {"celsius": 21})
        laptop.wait_value(NAME, "", {"celsius": 5})
        lab.broker.publish("sensor", value, '{"celsius": 22}', "-r")
        laptop.wait_value(NAME, "kitchen", {"celsius": 22})
        lab.broker.publish("sensor", value, "", "-r")
        laptop.wait_value(NAME, "kitchen", None)
        laptop.wait_value(NAME, "", {"celsius": 5})
        lab.broker.publish("sensor", TOPIC, "", "-r")
        laptop.wait_value(NAME, "", None)
        self.assertEqual(len(observer.notifications), 3)

    def test_without_properties_nothing_is_a_duplicate(self):
        lab, laptop, observer = self.one()
        lab.broker.publish("sensor", TOPIC, "1\n" * 50, lines=True)
        observer.wait(50)
        self.assertEqual((laptop.status()["duplicates"], laptop.status()["lost-in"]), (0, 0))

    def test_duplicates_and_holes_of_who_counts(self):
        lab, laptop, observer = self.one()
        losses = laptop.observe(LOST)
        for count, run in ((1, "a"), (2, "a"), (2, "a"), (1, "a"), (5, "a"), (4, "a"), (1, "b"), (2, "b")):
            lab.broker.publish("sensor", TOPIC, f'{{"count": {count}, "run": "{run}"}}',
                               properties=[("count", str(count)), ("run", run)])  # fmt: skip
        lab.broker.publish("sensor", TOPIC, '{"count": 0, "run": "end"}')
        observer.wait_for(lambda each: each["userInfo"]["run"] == "end", "the end")
        arrived = [(each["userInfo"]["run"], each["userInfo"]["count"]) for each in observer.notifications]
        # 4 came behind 5, and fills a part of the hole; 3 is missing.
        self.assertEqual(arrived, [("a", 1), ("a", 2), ("a", 5), ("a", 4), ("b", 1), ("b", 2), ("end", 0)])
        losses.wait_until(lambda: lost(losses, NAME) >= 1, "of the hole", lambda: f"{lost(losses, NAME)} announced")
        self.assertEqual(lost(losses, NAME), 1)
        self.assertEqual(laptop.status()["duplicates"], 2)


class Nonsense(BridgeTest):
    def test_payloads_are_counted_and_change_nothing(self):
        lab = self.lab()
        laptop = lab.host("laptop", imports="com.example.*")
        observer, losses = self.observe(laptop, NAME), laptop.observe(LOST)
        lab.broker.publish("sensor", TOPIC, '{"n": 1}')
        bad = [b"not json", b'{"n": 2', b'{"n": 2} {"n": 3}', b'{"n": "\xff\xfe"}', b"\x00\x01\x02", b"[" * 100_000,
               b'{"a":' * 200 + b"1" + b"}" * 200, b'{"n": 1e999}', b'{"n": null}', b'{"n": 99999999999999999999999}',
               b'{"d": {"$data": "no base64!"}}', b'{"d": {"$date": "yesterday"}}', b"NaN", b"'n'", b"\xef\xbb\xbf{}x",
               b"{\"a\": \"" + b"x" * 3_000_000 + b"\"}"]  # fmt: skip
        for payload in bad:
            self.assertEqual(lab.broker.publish("sensor", TOPIC, payload), (0, ""), payload[:40])
        lab.broker.publish("sensor", TOPIC, '{"n": 4}')
        observer.wait_for(lambda each: each["userInfo"].get("n") == 4, "the good one behind them")
        status = laptop.status()
        taken = len(observer.notifications) - 2
        # Words and bytes that do not begin as JSON are taken as they are, and null is left out.
        self.assertEqual(taken, 6, observer.notifications)
        self.assertEqual(status["refused"] + taken, len(bad), observer.notifications)
        losses.wait_for(lambda each: each["userInfo"]["reason"] == "undecodable", "that some can't be decoded")
        self.assertTrue(laptop.bridge.is_running and laptop.service.is_running)
        # Not a line for each of them.
        self.assertLess(len(laptop.bridge.text().splitlines()), 60)

    def test_topics(self):
        lab = self.lab()
        laptop = lab.host("laptop", imports="com.example.*")
        observer = laptop.observe()
        lab.broker.wait_subscribed("laptop", "carillon/1/home/+/+/n/com/example/#")
        base = "carillon/1/home/sensor/any"
        for topic in (f"{base}/n/com/example", f"{base}/n/com/example/", f"{base}/n/com/example/%", f"{base}/n/com/example/%zz",
                      f"{base}/n/com/example/%ff", f"{base}/n/com/example/A.B", f"{base}/v/com/example/", f"{base}/v/com/example",
                      "carillon/1/home/sensor//n/com/example/A", f"{base}/n/com/example/" + "x/" * 150 + "y"):  # fmt: skip
            lab.broker.publish("sensor", topic, '{"n": 0}')
        lab.broker.publish("sensor", f"{base}/n/com/example/End", '{"n": 1}')
        observer.wait_for(lambda each: each["name"] == "com.example.End", "the good one behind them")
        for each in observer.notifications:
            self.assertTrue(each["name"].startswith(("com.example.", "org.carillon.Bridge.")), each)
            if each["name"].startswith("com."):
                self.assertTrue(each["details"].get("host"), each)

    def test_properties(self):
        lab = self.lab()
        laptop = lab.host("laptop", imports="com.example.*")
        observer = self.observe(laptop, NAME)
        for properties in ([("count", "-1"), ("run", "r")], [("count", "x")], [("count", "18446744073709551616"), ("run", "r")],
                           [("count", "1"), ("run", "r")], [("count", "18446744073709551615"), ("run", "r")],
                           [("run", "x" * 60_000)], [("time", "never")], [("serial", "-")], [("object", "")],
                           [("object-percent", "%")], [("object", "a"), ("object", "b")], [("hops", "-3")], [("", "")]):  # fmt: skip
            lab.broker.publish("sensor", TOPIC, '{"n": 0}', properties=properties)
        lab.broker.publish("sensor", TOPIC, '{"n": 1}')
        observer.wait_for(lambda each: each["userInfo"].get("n") == 1, "the good one behind them")
        self.assertTrue(laptop.bridge.is_running)

    def test_presence_of_nobody(self):
        lab = self.lab()
        laptop = lab.host("laptop", imports="com.example.*")
        observer = self.observe(laptop, NAME)
        base = "carillon/1/home/sensor"
        for user, text in (("a", "nonsense"), ("b", "[]"), ("c", '{"online": "perhaps"}'), ("d", '{"online": true}'), ("e", "")):
            lab.broker.publish("sensor", f"{base}/{user}/online", text, "-r")
        lab.broker.publish("sensor", TOPIC, '{"n": 1}')
        observer.wait(1)
        self.assertEqual(laptop.status()["stripped"], [])
        self.assertTrue(laptop.bridge.is_running)

    def test_names_of_the_bridge_are_its_own(self):
        lab = self.lab()
        laptop = lab.host("laptop", imports="*")
        observer = self.observe(laptop, "org.carillon.Bridge.Host", "org.carillon.Bridge.Lost", NAME)
        for name in ("Host", "Lost", "Connection"):
            lab.broker.publish("sensor", f"carillon/1/home/sensor/any/n/org/carillon/Bridge/{name}", '{"forged": true}')
        lab.broker.publish("sensor", TOPIC, '{"n": 1}')
        observer.wait_for(lambda each: each["name"] == NAME, "the good one")
        self.assertEqual([each for each in observer.notifications if each["userInfo"].get("forged")], [])


class Listening(BridgeTest):
    def test_json_and_properties(self):
        lab = self.lab()
        listener = lab.broker.listen("sensor", "carillon/1/home/desk/#")
        desk = lab.host("desk", export="com.example.*")
        desk.post(NAME, {"celsius": 21.5, "whole": 1.0, "n": 1}, "kitchen/north")
        desk.post(NAME, {"data": {"$data": "AAE="}})
        desk.post(NAME, {"n": 3}, "cellar/north", options=["--retain"])
        listener.wait_for(lambda: any("/v/" in message.topic for message in listener.messages), "the value")
        messages = [message for message in listener.messages if "/n/" in message.topic or "/v/" in message.topic]
        first, second, third = messages
        self.assertEqual(first.topic, "carillon/1/home/desk/anna/n/com/example/Temperature")
        self.assertEqual(third.topic, "carillon/1/home/desk/anna/v/com/example/Temperature/cellar%2Fnorth")
        self.assertEqual(repr(sorted(first.json.items())), "[('celsius', 21.5), ('n', 1), ('whole', 1.0)]")
        self.assertEqual(second.json, {"data": {"$data": "AAE="}})
        self.assertEqual([message.quality for message in messages], [1, 1, 1])
        self.assertEqual([message.content_type for message in messages], ["application/json"] * 3)
        properties = [message.user_properties for message in messages]
        self.assertEqual([each.get("object", "") for each in properties[:2]], ["kitchen/north", ""])
        self.assertEqual([int(each["count"]) for each in properties], [1, 2, 1])
        self.assertEqual({each["hops"] for each in properties}, {"1"})
        self.assertEqual(len({each["run"] for each in properties}), 1)
        self.assertLess(int(properties[0]["serial"]), int(properties[1]["serial"]))
        self.assertLess(abs(int(properties[0]["time"]) - int(properties[2]["time"])), 120_000_000)
        self.assertEqual(list(lab.broker.retained("sensor", "carillon/1/home/desk/anna/v/#")), [third.topic])

    def test_a_round_trip_through_a_script(self):
        # What a rule of a home server does: takes a message, and answers with another.
        lab = self.lab()
        desk = lab.host("desk", export="com.example.Ask", imports="com.example.Answer")
        observer = self.observe(desk, "com.example.Answer")
        listener = lab.broker.listen("server", "carillon/1/home/+/+/n/com/example/Ask")
        desk.post("com.example.Ask", {"n": 20})
        asked = listener.wait(1)[0].json["n"]
        lab.broker.publish("server", "carillon/1/home/server/rules/n/com/example/Answer", f'{{"n": {asked + 1}}}')
        self.assertEqual(observer.wait(1)[0]["userInfo"], {"n": 21})


if __name__ == "__main__":
    unittest.main()
