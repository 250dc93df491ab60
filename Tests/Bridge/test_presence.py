#!/usr/bin/python3
# SPDX-FileCopyrightText: The Carillon authors
# SPDX-License-Identifier: Apache-2.0
"""Who is there: values that the bridge keeps in the session, and what the broker says when a host is gone."""

import signal
import unittest

from case import QUICK, BridgeTest, long
from host import CONNECTION, HOST
from programs import wait_until


class Presence(BridgeTest):
    def wait_online(self, host, object_, is_online):
        name, user = object_.split("/")
        host.wait_value(HOST, object_, {"host": name, "user": user, "online": is_online})

    def test_up_and_a_clean_end(self):
        lab, desk, laptop = self.pair()
        observer = laptop.observe(HOST)
        self.wait_online(laptop, "desk/anna", True)
        self.wait_online(desk, "laptop/bert", True)
        message = lab.broker.retained("sensor", "carillon/1/home/desk/anna/online")["carillon/1/home/desk/anna/online"]
        self.assertEqual((message.json["online"], message.json["protocol"]), (True, 1))
        self.assertTrue(message.json["run"])
        self.assertIn("arillon", message.json["software"])
        self.assertEqual(message.user_properties["carillon"], "1")
        desk.bridge.stop()
        self.wait_online(laptop, "desk/anna", False)
        observer.wait_for(lambda each: each["object"] == "desk/anna" and not each["userInfo"]["online"], "that it went")
        desk.start_bridge()
        self.wait_online(laptop, "desk/anna", True)
        hosts = {each["host"]: each["online"] for each in laptop.status()["hosts"]}
        self.assertTrue(hosts["desk"])

    def test_a_kill(self):
        lab, desk, laptop = self.pair()
        self.wait_online(laptop, "desk/anna", True)
        desk.bridge.kill()
        self.wait_online(laptop, "desk/anna", False)
        message, = lab.broker.retained("sensor", "carillon/1/home/desk/anna/online").values()
        self.assertIs(message.json["online"], False)

    @long
    def test_a_cable_that_is_pulled(self):
        _, desk, laptop = self.pair(settings=QUICK)
        self.wait_online(laptop, "desk/anna", True)
        desk.pull_cable()
        self.wait_online(laptop, "desk/anna", False)
        desk.put_cable_back()
        self.wait_online(laptop, "desk/anna", True)

    def test_it_goes_with_the_bridge(self):
        for number in (signal.SIGTERM, signal.SIGKILL):
            lab, _, laptop = self.pair()
            self.wait_online(laptop, "desk/anna", True)
            laptop.bridge.stop(number)
            laptop.wait_value(HOST, "desk/anna", None)
            self.assertEqual(laptop.values(CONNECTION), [])
            lab.close()

    def test_who_does_not_follow_it_is_seen_all_the_same(self):
        lab = self.lab()
        desk = lab.host("desk")
        quiet = lab.host("laptop", imports="com.example.*", settings={"Bridge": {"presence": "false"}})
        lab.host("tablet")
        self.wait_online(desk, "tablet/anna", True)
        self.wait_online(desk, "laptop/anna", True)
        self.assertEqual(quiet.values(HOST), [])
        self.assertFalse([topic for topic in lab.broker.subscriptions("laptop") if topic.endswith("/+/+/online")])

    def test_the_connection(self):
        lab = self.lab()
        desk = lab.host("desk")
        wait_until(lambda: (self.connection(desk) or {}).get("connected") is True, "it says that it is connected")
        self.assertIn(lab.network.reach("desk", "broker")[0], self.connection(desk)["broker"])
        observer = desk.observe(CONNECTION)
        lab.broker.kill()
        gone = observer.wait_for(lambda each: not each["userInfo"]["connected"], "that it is not")
        self.assertTrue(gone["userInfo"]["reason"])
        lab.broker.start()
        observer.wait_for(lambda each: each["userInfo"]["connected"], "that it is again")
        self.assertTrue(self.connection(desk)["connected"])

    @staticmethod
    def connection(host):
        found = host.values(CONNECTION)
        return found[0]["userInfo"] if found else None


if __name__ == "__main__":
    unittest.main()
