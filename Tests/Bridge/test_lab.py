#!/usr/bin/python3
# SPDX-FileCopyrightText: The Carillon authors
# SPDX-License-Identifier: Apache-2.0
"""The lab itself: what goes wrong in it would let a test of the bridge pass, or fail, that should not."""

import os
import unittest

import gvariant
from broker import SAVED
from case import BridgeTest
from programs import wait_until


class Machines(BridgeTest):
    def test_certificates_and_access(self):
        lab = self.lab()
        listener = lab.broker.listen("sensor", "carillon/#")
        self.assertEqual(lab.broker.publish("desk", "carillon/1/home/desk/a", "1")[0], 0)
        _, error = lab.broker.publish("desk", "carillon/1/home/laptop/a", "2")
        self.assertIn("Not authorized", error)
        lab.broker.publish("desk", "carillon/1/home/desk/a", "3", properties=[("count", "7")])
        messages = listener.wait(2)
        self.assertEqual([message.payload for message in messages], ["1", "3"])
        self.assertEqual(messages[1].user_properties, {"count": "7"})

    def test_broker_is_killed_and_keeps(self):
        lab = self.lab(settings=SAVED)
        lab.broker.publish("desk", "carillon/1/home/desk/a", "1", "-r")
        # It acknowledges first, and writes then.
        lab.broker.wait_saved()
        lab.broker.kill()
        lab.broker.start()
        self.assertEqual(list(lab.broker.retained("sensor", "carillon/#")), ["carillon/1/home/desk/a"])

    def test_cable(self):
        lab = self.lab()
        host = lab.host("desk", bridge=False)
        address, port = lab.network.reach("desk", "broker")
        certificate, key = lab.authority.client("desk")
        words = ["mosquitto_sub", "-V", "mqttv5", "-h", address, "-p", port, "--cafile", lab.authority.file, "--cert",
                 certificate, "--key", key, "-t", "carillon/#"]  # fmt: skip
        subscriber = host.start("subscriber", *words)
        lab.broker.wait_subscribed("desk", "carillon/#")
        host.pull_cable()
        lab.broker.publish("sensor", "carillon/1/home/sensor/a", "first")
        status, _, _ = host.run(*words, "-W", "1", status=None)
        self.assertNotEqual(status, 0)
        self.assertNotIn("first", subscriber.text())
        host.put_cable_back()
        subscriber.wait_for("first")

    def test_interest_is_read_from_the_log(self):
        lab = self.lab()
        listener = lab.broker.listen("sensor", "carillon/1/+/n/a", options=["-U", "carillon/1/+/n/b"])
        wait_until(lambda: "carillon/1/+/n/a" in lab.broker.subscriptions("sensor"), "it is subscribed")
        self.assertIn(("unsubscribe", lab.broker.ids["sensor"], "carillon/1/+/n/b"), lab.broker.changes)
        listener.program.stop()
        wait_until(lambda: lab.broker.read_log() or "sensor" not in lab.broker.clients, "it has gone")

    def test_session(self):
        lab = self.lab()
        desk, laptop = lab.host("desk", bridge=False), lab.host("laptop", bridge=False)
        here, there = desk.observe("com.example.A"), laptop.observe("com.example.A")
        desk.post_many("com.example.A", range(3), object_="o")
        self.assertEqual([each["object"] for each in here.wait(3)], ["o"] * 3)
        self.assertEqual(here.numbers, [0, 1, 2])
        laptop.post("com.example.A", {"n": 9})
        there.wait(1)
        self.assertEqual(there.numbers, [9])
        self.assertEqual(desk.statistics()["posted"], 3)
        self.assertIsNone(desk.status())

    def test_nothing_is_left(self):
        lab = self.lab()
        lab.host("desk", bridge=False)
        pids = [program.pid for program in lab.programs]
        lab.close()
        self.assertFalse(os.path.exists(lab.directory))
        self.assertEqual([pid for pid in pids if os.path.exists(f"/proc/{pid}")], [])


class Variants(unittest.TestCase):
    def test_text(self):
        for text, value in [
            ("({'a': <'x\\'y\\u263a'>, 'b': <true>, 'c': <uint32 5>, 'd': <@as []>},)",
             ({"a": "x'y☺", "b": True, "c": 5, "d": []},)),
            ("({'e': <[{'host': <'h'>, \"it's\": <int64 -3>}]>, 'f': <@aa{sv} []>, 'g': <1.5>},)",
             ({"e": [{"host": "h", "it's": -3}], "f": [], "g": 1.5},)),
            ("(@a{sv} {},)", ({},)),
            ("(<{'n': <uint64 18446744073709551615>}>,)", ({"n": 2**64 - 1},)),
            ("()", ()),
        ]:  # fmt: skip
            self.assertEqual(gvariant.parse(text), value)
        for text in ("(", "('a'", "{'a' <1>}", "(1) (2)", "&"):
            self.assertRaises((ValueError, IndexError), gvariant.parse, text)


if __name__ == "__main__":
    unittest.main()
