#!/usr/bin/python3
# SPDX-FileCopyrightText: The Carillon authors
# SPDX-License-Identifier: Apache-2.0
"""Topics of devices that are joined with names, with the payloads that the documentation of the devices shows (G2)."""

import unittest

from broker import ACCESS
from case import BridgeTest, lost
from host import LOST

#: Hosts may use topics of devices besides their own.
DEVICES = ACCESS + "".join(f"pattern readwrite {root}/#\n" for root in ("zigbee2mqtt", "shellies", "owntracks", "tasmota"))
LAMP, SET = "com.example.Lamp", "com.example.SetLamp"
MAP = {
    f"Map {LAMP}": {"from": "zigbee2mqtt/+"},
    f"Map {SET}": {"to": "zigbee2mqtt/+/set"},
    "Map com.example.Relay": {"from": "shellies/+/relay/0", "to": "shellies/+/relay/0/command"},
    "Map com.example.Place": {"from": "owntracks/+/+"},
}


class Map(BridgeTest):
    def one(self, **settings):
        lab = self.lab(access=DEVICES)
        desk = lab.host("desk", export="com.example.*", imports="com.example.*", settings=MAP, **settings)
        return lab, desk

    def test_a_lamp_both_ways(self):
        lab, desk = self.one()
        observer = self.observe(desk, LAMP)
        lab.broker.wait_subscribed("desk", "zigbee2mqtt/+")
        listener = lab.broker.listen("zigbee", "zigbee2mqtt/+/set")
        lab.broker.publish("zigbee", "zigbee2mqtt/hall_lamp", '{"brightness":254,"linkquality":120,"state":"ON","update":null}')
        notification, = observer.wait(1)
        self.assertEqual(notification["userInfo"], {"brightness": 254, "linkquality": 120, "state": "ON"})
        self.assertEqual(notification["object"], "hall_lamp")
        self.assert_origin(notification, "zigbee2mqtt", "device")
        desk.post(SET, {"state": "OFF"}, "hall_lamp")
        message, = listener.wait(1)
        self.assertEqual((message.topic, message.json), ("zigbee2mqtt/hall_lamp/set", {"state": "OFF"}))
        # A value is no command that stays.
        desk.post(SET, {"state": "ON"}, "hall_lamp", options=["--retain"])
        self.assertEqual(listener.wait(2)[1].json, {"state": "ON"})
        self.assertEqual(lab.broker.retained("zigbee", "zigbee2mqtt/#"), {})
        self.assertEqual(len(observer.notifications), 1)

    def test_plain_words_both_ways(self):
        lab, desk = self.one()
        observer = self.observe(desk, "com.example.Relay")
        lab.broker.wait_subscribed("desk", "shellies/+/relay/0")
        listener = lab.broker.listen("shelly", "shellies/+/relay/0/command")
        lab.broker.publish("shelly", "shellies/plug-041820/relay/0", "on")
        notification, = observer.wait(1)
        self.assertEqual((notification["object"], notification["userInfo"]), ("plug-041820", {"value": "on"}))
        desk.post("com.example.Relay", {"value": "off"}, "plug-041820")
        message, = listener.wait(1)
        self.assertEqual((message.topic, message.payload), ("shellies/plug-041820/relay/0/command", "off"))

    def test_values_of_a_telephone(self):
        lab, desk = self.one()
        here = '{"_type":"location","tid":"ph","lat":48.2,"lon":16.37,"batt":82,"tst":1764403200}'
        lab.broker.publish("phone", "owntracks/anna/phone", here, "-r")
        observer = self.observe(desk, "com.example.Place")
        observer.wait(1)
        desk.wait_value("com.example.Place", "anna/phone",
                        {"_type": "location", "tid": "ph", "lat": 48.2, "lon": 16.37, "batt": 82, "tst": 1764403200})  # fmt: skip
        # Shown again by the broker, it is no news.
        desk.bridge.kill()
        desk.start_bridge()
        lab.broker.wait_subscribed("desk", "owntracks/+/+")
        lab.broker.publish("phone", "owntracks/anna/phone", "", "-r")
        desk.wait_value("com.example.Place", "anna/phone", None)
        self.assertEqual(len(observer.notifications), 1)
        # One of no quality that changed while nobody was there.
        lab.broker.publish("phone", "owntracks/anna/phone", '{"n":1}', "-r")
        desk.wait_value("com.example.Place", "anna/phone", {"n": 1})
        desk.bridge.stop()
        lab.broker.publish("phone", "owntracks/anna/phone", '{"n":2}', "-r", "-q", "0")
        desk.start_bridge()
        desk.wait_value("com.example.Place", "anna/phone", {"n": 2})
        desk.run("carillon", "bridge", "forget", "owntracks/device")
        desk.wait_value("com.example.Place", "anna/phone", None)

    def test_two_machines_with_the_same_device(self):
        lab, desk = self.one()
        shed = lab.host("shed", export="com.example.*", imports="com.example.*", settings=MAP)
        observer = self.observe(shed, "com.example.Relay")
        lab.broker.wait_subscribed("shed", "shellies/+/relay/0")
        for host in (desk, shed):
            host.settings["Map com.example.Relay"] = {"from": "shellies/+/relay/0", "to": "shellies/+/relay/0"}
            host.write_settings()
            host.run("carillon", "bridge", "reload")
            host.wait_connected()
        for number in range(3):
            desk.post("com.example.Relay", {"n": number}, "plug")
        observer.wait(3)
        lab.broker.publish("shelly", "shellies/plug/relay/0", '{"n":3}')
        observer.wait(4)
        self.assertEqual(observer.numbers, [0, 1, 2, 3])

    def test_lists_and_interest(self):
        lab = self.lab(access=DEVICES)
        desk = lab.host("desk", export="com.example.Other", imports="com.example.Relay", settings=MAP)
        observer = self.observe(desk, "com.example.Relay")
        desk.observe(LAMP)
        lab.broker.wait_subscribed("desk", "shellies/+/relay/0")
        listener = lab.broker.listen("zigbee", "zigbee2mqtt/+/set", "shellies/+/relay/0/command")
        desk.post(SET, {"state": "OFF"}, "hall_lamp")
        desk.post("com.example.Relay", {"value": "off"}, "plug")
        lab.broker.publish("zigbee", "zigbee2mqtt/hall_lamp", "{}")
        lab.broker.publish("shelly", "shellies/plug/relay/0", "on")
        observer.wait(2)
        self.assertEqual(lab.broker.subscriptions("desk") & {"zigbee2mqtt/+", "owntracks/+/+"}, set())
        self.assertEqual(listener.messages, [])
        self.assertEqual(desk.status()["refused"], 0)
        self.assertIn(f"[Map {LAMP}] imports nothing from zigbee2mqtt/+: import= lacks the name", desk.bridge.text())

    def test_an_object_that_is_no_topic(self):
        lab, desk = self.one()
        losses = desk.observe(LOST)
        listener = lab.broker.listen("zigbee", "zigbee2mqtt/#")
        desk.post(SET, {"state": "OFF"}, "hall/lamp")
        desk.post(SET, {"state": "OFF"}, "lamp")
        listener.wait(1)
        self.assertEqual([message.topic for message in listener.messages], ["zigbee2mqtt/lamp/set"])
        losses.wait_until(lambda: lost(losses, SET) == 1, "of the object", lambda: f"{losses.notifications}")

    def test_a_reload_ends_what_is_mapped_no_longer(self):
        lab, desk = self.one()
        observer = self.observe(desk, LAMP)
        lab.broker.wait_subscribed("desk", "zigbee2mqtt/+")
        lab.broker.publish("zigbee", "zigbee2mqtt/old", '{"n":1}', "-r")
        desk.wait_value(LAMP, "old", {"n": 1})
        desk.settings[f"Map {LAMP}"] = {"from": "tasmota/+/state"}
        desk.write_settings()
        desk.run("carillon", "bridge", "reload")
        lab.broker.wait_subscribed("desk", "tasmota/+/state")
        lab.broker.publish("zigbee", "zigbee2mqtt/hall_lamp", "{}")
        lab.broker.publish("zigbee", "tasmota/plug/state", '{"POWER":"ON"}')
        notification = observer.wait(2)[1]
        self.assertEqual((notification["object"], notification["userInfo"]), ("plug", {"POWER": "ON"}))
        desk.wait_value(LAMP, "old", None)
        self.assertNotIn("zigbee2mqtt/+", lab.broker.subscriptions("desk"))


if __name__ == "__main__":
    unittest.main()
