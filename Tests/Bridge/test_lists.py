#!/usr/bin/python3
# SPDX-FileCopyrightText: The Carillon authors
# SPDX-License-Identifier: Apache-2.0
"""What goes out and what comes in: the lists, certificates, and what the broker lets a host write."""

import re
import unittest

from case import BridgeTest, notifications
from certificates import Authority
from programs import wait_until


class Lists(BridgeTest):
    # What a bridge tells of itself, and what it sends to itself to try the broker.
    OF_ITSELF = ("/online", "/status", "/test")

    def test_only_what_export_has_goes_out(self):
        lab = self.lab()
        listener = lab.broker.listen("sensor", "#")
        desk = lab.host("desk", export="com.example.Saved;org.example.*")
        for name in ("com.example.Other", "com.example.SavedToo", "com.example.Saved.More", "com.example", "org.example",
                     "org.exampleX", "org.carillon.Bridge.Lost"):  # fmt: skip
            desk.post(name, {"n": 0})
            desk.post(name, {"n": 0}, "object", options=["--retain"])
        desk.post("org.example.A.B", {"n": 1})
        desk.post("com.example.Saved", {"n": 2})
        wait_until(lambda: any(message.topic.endswith("com/example/Saved") for message in listener.messages), "the last arrives")
        topics = {message.topic for message in listener.messages if not message.topic.endswith(self.OF_ITSELF)}
        self.assertEqual(topics, {
            "carillon/1/home/desk/anna/n/org/example/A/B", "carillon/1/home/desk/anna/n/com/example/Saved"})  # fmt: skip

    def test_only_what_import_has_comes_in(self):
        lab, desk, laptop = self.pair(exports="*", imports="com.example.Saved")
        observer = laptop.observe("com.example.Saved", "com.example.Other", "com.example.SavedToo", "org.carillon.Bridge.Lost")
        laptop.wait_subscribed(notifications("com.example.Saved"))
        for name in ("com.example.Other", "com.example.SavedToo", "org.carillon.Bridge.Lost"):
            desk.post(name, {"n": 0})
        desk.post("com.example.Saved", {"n": 1})
        observer.wait(1)
        self.assertEqual(observer.numbers, [1])
        for topic in lab.broker.subscriptions("laptop"):
            self.assertNotIn("Other", topic)
            self.assertNotIn("SavedToo", topic)

    def test_empty_at_first(self):
        lab = self.lab()
        listener = lab.broker.listen("sensor", "#")
        desk, laptop = lab.host("desk"), lab.host("laptop", imports="com.example.*")
        self.assertEqual((desk.status()["export"], desk.status()["import"]), ([], []))
        mine = desk.observe("com.example.Saved")
        theirs = self.observe(laptop, "com.example.Saved")
        desk.post("com.example.Saved", {"n": 1})
        lab.broker.publish("sensor", "carillon/1/home/sensor/any/n/com/example/Saved", '{"n": 2}')
        theirs.wait(1)
        self.assertEqual((mine.numbers, theirs.numbers), ([1], [2]))
        self.assertEqual([message.topic for message in listener.posts(1)], ["carillon/1/home/sensor/any/n/com/example/Saved"])
        self.assertFalse([topic for topic in lab.broker.subscriptions("desk") if not topic.endswith(self.OF_ITSELF)])

    def test_everything_widens_to_prefixes_and_not_to_all(self):
        lab, desk, laptop = self.pair(exports="*", imports="org.example.*;com.example.Saved")
        observer = laptop.observe()
        lab.broker.wait_subscribed(
            "laptop", "carillon/1/home/+/+/n/org/example/#", notifications("com.example.Saved"))
        desk.post("com.example.Other", {"n": 0})
        desk.post("org.example.A.B.C", {"n": 1})
        desk.post("com.example.Saved", {"n": 2})
        observer.wait_for(lambda each: each["userInfo"].get("n") == 2, "the last")
        self.assertEqual(sorted(observer.numbers), [1, 2])
        for topic in lab.broker.subscriptions("laptop"):
            self.assertNotIn(topic.split("/")[5:7], ([], ["#"], ["n", "#"], ["v", "#"]))

    def test_reload(self):
        lab, desk, laptop = self.pair(exports="com.example.A", imports="com.example.*")
        observer = self.observe(laptop, "com.example.A", "com.example.B")
        desk.post("com.example.B", {"n": 0})
        desk.post("com.example.A", {"n": 1})
        observer.wait(1)
        desk.settings["Bridge"]["export"] = "com.example.*"
        desk.write_settings()
        self.assertIsNotNone(desk.call("Reload"), desk.bridge.tail())
        desk.wait_status(lambda status: status["export"] == ["com.example.*"], "the new list")
        desk.post("com.example.B", {"n": 2})
        observer.wait(2)
        laptop.settings["Bridge"]["import"] = "com.example.B"
        laptop.write_settings()
        self.assertIsNotNone(laptop.call("Reload"), laptop.bridge.tail())
        laptop.wait_status(lambda status: status["connected"] and status["import"] == ["com.example.B"], "the new list")
        desk.post("com.example.A", {"n": 3})
        desk.post("com.example.B", {"n": 4})
        observer.wait(3)
        self.assertEqual(observer.numbers, [1, 2, 4])
        # The broker's session has it still; the first that comes and nobody wants ends that.
        wait_until(lambda: notifications("com.example.A") not in lab.broker.subscriptions("laptop"), "the subscription ends")

    def test_a_mistake_in_the_lists_changes_nothing(self):
        _, desk, laptop = self.pair()
        observer = self.observe(laptop, "com.example.A")
        desk.settings["Bridge"]["export"] = "com.*.example"
        desk.write_settings()
        self.assertIsNone(desk.call("Reload"))
        self.assertIn("bridge.conf", desk.last_error)
        desk.post("com.example.A", {"n": 1})
        observer.wait(1)


class Identity(BridgeTest):
    def test_a_certificate_of_others_is_refused(self):
        lab = self.lab()
        certificate = Authority(f"{lab.directory}/others", "Others").client("desk")
        desk = lab.host("desk", export="*", certificate=certificate, bridge=False)
        desk.start_bridge(wait=False)
        desk.wait_status(lambda status: status["state"] == "waiting", "why it is not connected")
        self.assertNotIn("desk", lab.broker.clients)
        self.assertRegex(desk.bridge.text(), r"(?i)certificate|tls|ssl|handshake")

    def test_a_broker_that_proves_nothing_is_told_nothing(self):
        lab = self.lab()
        others = Authority(f"{lab.directory}/others", "Others")
        desk = lab.host("desk", export="*", bridge=False, settings={"Broker": {"ca-file": others.file}})
        desk.start_bridge(wait=False)
        desk.wait_status(lambda status: status["state"] == "waiting", "why it is not connected")
        self.assertRegex(desk.bridge.text(), r"(?i)certificate|verif")
        self.assertNotIn("desk", lab.broker.clients)
        self.assertNotIn("u'desk'", lab.broker.text())

    def test_a_certificate_of_another_server_is_refused(self):
        lab = self.lab()
        # Good, and of the same authority, and for another address: the server has the certificate of another one.
        certificate, key = lab.authority.server("elsewhere", ["192.0.2.1"])
        lab.broker.stop()
        lab.broker.server_certificate = (certificate, key)
        lab.broker.start()
        desk = lab.host("desk", export="*", bridge=False)
        desk.start_bridge(wait=False)
        desk.wait_status(lambda status: status["state"] == "waiting", "why it is not connected")
        self.assertNotIn("u'desk'", lab.broker.text())

    def test_nobody_writes_as_another_host(self):
        lab = self.lab()
        listener = lab.broker.listen("sensor", "carillon/#")
        laptop = lab.host("laptop", imports="com.example.*")
        observer = self.observe(laptop, "com.example.A")
        # What its configuration says is one thing; the broker goes by the certificate.
        liar = lab.host("mallory", export="*", bridge=False, settings={"Bridge": {"host": "desk"}})
        liar.start_bridge(wait=False)
        liar.wait_status(lambda status: status["reason"] or status["connected"], "how it stands")
        liar.post("com.example.A", {"n": 0})
        liar.wait_status(
            lambda status: not status["connected"] or status["refused"] + status["lost-out"] > 0, "that it was refused")
        wait_until(lambda: re.search(r"(?i)not authori[sz]ed|refused", liar.bridge.text()), liar.bridge.text)
        # Nor by its last will.
        liar.bridge.kill()
        _, error = lab.broker.publish("sensor", "carillon/1/home/desk/anna/n/com/example/A", '{"n": 0}')
        self.assertIn("Not authorized", error)
        lab.broker.publish("sensor", "carillon/1/home/sensor/any/n/com/example/A", '{"n": 1}')
        observer.wait(1)
        self.assertEqual(observer.numbers, [1])
        self.assertEqual([message for message in listener.messages if "/desk/" in message.topic], [])

    def test_nobody_takes_the_place_of_another(self):
        lab, desk, laptop = self.pair()
        observer = self.observe(laptop, "com.example.A")
        liar = lab.host("mallory", export="*", imports="*", bridge=False, settings={"Bridge": {"host": "desk", "user": "anna"}})
        liar.observe("com.example.A")
        liar.start_bridge(wait=False)
        lab.broker.wait_connected("mallory")
        for number in range(10):
            desk.post("com.example.A", {"n": number})
        observer.wait(10)
        self.assertEqual(observer.numbers, list(range(10)))
        self.assertTrue(desk.status()["connected"])
        self.assertEqual(lab.broker.text().count("u'desk'"), 1, "it had to connect again")


if __name__ == "__main__":
    unittest.main()
