#!/usr/bin/python3
# SPDX-FileCopyrightText: The Carillon authors
# SPDX-License-Identifier: Apache-2.0
"""What stands between or beside: two bridges of one name, and brokers that pass messages on to each other."""

import time
import unittest

from broker import Broker
from case import BridgeTest, notifications
from host import LOST
from programs import wait_until

NAME = "com.example.Ding"


class SameName(BridgeTest):
    def test_one_stays_away_and_says_so(self):
        lab = self.lab()
        first = lab.host("desk", export="*")
        lab.network.add("elsewhere")
        second = lab.host("desk", machine="elsewhere", export="*", bridge=False)
        second.start_bridge()
        status = first.wait_status(lambda status: not status["connected"], "that it is not connected")
        self.assertRegex(status["reason"].lower(), r"another|taken|same|session")
        self.assertRegex(first.bridge.text().lower(), r"another|taken over|same")
        # Neither of them comes and goes from now on.
        lab.broker.read_log()
        before = lab.broker.text().count("u'desk'")
        time.sleep(5)
        self.assertEqual(lab.broker.text().count("u'desk'"), before)
        self.assertTrue(second.status()["connected"])
        self.assertFalse(first.status()["connected"])

    def test_one_bridge_in_a_session(self):
        lab = self.lab()
        desk = lab.host("desk")
        second = desk.start("second-bridge", "carillon-bridge")
        self.assertEqual(second.wait(), 3, second.text())
        self.assertIn("org.carillon.Bridge1", second.text())
        self.assertTrue(desk.status()["connected"])


class Between(BridgeTest):
    """A mosquitto at home and one on a site, which passes everything on both ways."""

    def site(self, lab, version):
        lab.network.add("site-gateway")
        address, port = lab.network.reach("site-gateway", "broker")
        certificate, key = lab.authority.client("site")
        settings = (
            f"connection home\naddress {address}:{port}\ntopic carillon/# both 1\nremote_clientid site\n"
            f"cleansession false\ntry_private true\nrestart_timeout 1\nnotifications false\n"
            f"bridge_cafile {lab.authority.file}\nbridge_certfile {certificate}\nbridge_keyfile {key}\n"
        )
        if version:
            settings += f"bridge_protocol_version {version}\n"
        return settings

    def two_brokers(self, version):
        # Who passes on for others writes as others: that is what a site is trusted with.
        access = "user site\ntopic readwrite carillon/#\n"
        lab = self.lab(access="pattern write carillon/1/+/%u/#\npattern read carillon/1/#\n" + access)
        broker = Broker(lab, "site-broker", settings=self.site(lab, version))
        self.addCleanup(broker.program.stop)
        lab.broker.wait_connected("site")
        desk = lab.host("desk", export="com.example.*", imports="com.example.*")
        laptop = lab.host("laptop", export="com.example.*", imports="com.example.*", broker=broker)
        return lab, broker, desk, laptop

    def test_of_version_5(self):
        _, broker, desk, laptop = self.two_brokers("mqttv50")
        here, there = self.observe(desk, NAME), self.observe(laptop, NAME)
        desk.post_many(NAME, range(100), object_="from the desk")
        laptop.post_many(NAME, range(100), object_="from the laptop")
        for host, observer in ((desk, here), (laptop, there)):
            observer.wait(200)
            for object_ in ("from the desk", "from the laptop"):
                self.assertEqual(
                    [each["userInfo"]["n"] for each in observer.notifications if each["object"] == object_], list(range(100)))
            self.assertEqual(host.status()["stripped"], [])
        self.assert_origin(next(each for each in there.notifications if each["object"] == "from the desk"), "desk", "anna")
        self.assertEqual(broker.subscriptions("laptop") & {notifications(NAME)}, {notifications(NAME)})

    def test_of_an_older_version_is_refused_with_a_word(self):
        _, _, desk, laptop = self.two_brokers(None)
        there, losses = self.observe(laptop, NAME), laptop.observe(LOST)
        status = laptop.wait_status(lambda status: status["stripped"], "whose properties were stripped")
        self.assertTrue(any("desk" in each for each in status["stripped"]), status["stripped"])
        desk.post_many(NAME, range(3), object_="object")
        status = laptop.wait_status(lambda status: status["refused"] >= 3, "that they are refused")
        self.assertEqual(there.notifications, [])
        log = laptop.bridge.text()
        self.assertRegex(log, r"3\.1\.1")
        self.assertEqual(len([line for line in log.splitlines() if "3.1.1" in line]), 1, log)
        self.assertIn("desk", log)
        wait_until(lambda: any(each["userInfo"]["reason"] == "stripped" for each in losses.notifications),
                   lambda: f"it is announced: {losses.notifications}")  # fmt: skip


if __name__ == "__main__":
    unittest.main()
