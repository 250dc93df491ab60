#!/usr/bin/python3
# SPDX-FileCopyrightText: The Carillon authors
# SPDX-License-Identifier: Apache-2.0
"""Payloads in CBOR: read from everybody, and written for names that shall keep the widths of integers."""

import subprocess
import unittest

from case import BridgeTest, lost
from host import LOST, SERVICE, SERVICE_PATH
from programs import wait_until

NAME = "com.example.Saved"
TOPIC = "carillon/1/home/sensor/any/n/com/example/Saved"
CBOR = ("-D", "publish", "content-type", "application/cbor")

#: A value of every type that D-Bus tells apart, as gdbus writes and prints it.
TYPES = {
    "y": "byte 0x07", "n": "int16 7", "q": "uint16 7", "i": "7", "u": "uint32 7", "x": "int64 7", "t": "uint64 7",
    "least": "int64 -9223372036854775808", "most": "uint64 18446744073709551615", "d": "7.0", "b": "true", "s": "'seven'",
    "ay": "[byte 0x07, 0xff]", "nn": "int16 -7",
}  # fmt: skip


class CBORTest(BridgeTest):
    def post(self, host, name, object_, options="{}"):
        user_info = ", ".join(f"'{key}': <{value}>" for key, value in TYPES.items())
        self.assertIsNotNone(
            host.call("Post", name, object_, "{" + user_info + "}", options, destination=SERVICE, path=SERVICE_PATH),
            getattr(host, "last_error", None))  # fmt: skip

    def printed(self, host, name, object_):
        return host.run(
            "gdbus", "call", "--session", "--dest", SERVICE, "--object-path", SERVICE_PATH,
            "--method", f"{SERVICE}.Get", name, object_)  # fmt: skip

    def assert_types(self, host, name, object_):
        wait_until(lambda: "'seven'" in self.printed(host, name, object_), lambda: f"{name} on {host.name}")
        printed = self.printed(host, name, object_)
        for key, value in TYPES.items():
            self.assertIn(f"'{key}': <{value}>", printed)

    def test_widths_survive(self):
        lab, desk, laptop = self.pair(settings={"Bridge": {"cbor": "com.example.*"}})
        self.observe(laptop, NAME)
        hexadecimal = lab.file("hexadecimal")
        words = [*lab.broker.client_words("mosquitto_sub", "sensor"), "-q", "1", "-t", "carillon/1/home/desk/+/v/#"]
        words += ["-C", "1", "-W", "60", "-F", "%C %P %x"]
        with open(hexadecimal, "w", encoding="ascii") as output:
            process = subprocess.Popen(
                lab.network.command(lab.broker.name, words), stdout=output, env=lab.environment(), stdin=subprocess.DEVNULL)
        self.post(desk, NAME, "o", "{'retain': <true>}")
        self.assert_types(laptop, NAME, "o")
        self.assertEqual(process.wait(60), 0)
        with open(hexadecimal, encoding="ascii") as file:
            content_type, *properties, payload = file.read().split()
        self.assertEqual(content_type, "application/cbor")
        self.assertIn("widths:1", properties)
        # A map of fourteen, and in it the seven of 64 bits.
        self.assertTrue(payload.startswith("ae"), payload)
        self.assertIn("6178" + "1b0000000000000007", payload)

    def test_widths_survive_a_new_bridge(self):
        lab, desk, laptop = self.pair(settings={"Bridge": {"cbor": NAME}})
        self.observe(laptop, NAME)
        lab.broker.stop()
        desk.wait_connected(False)
        self.post(desk, NAME, "o", "{'retain': <true>}")
        desk.wait_status(lambda status: status["queued"] > 0, "that one waits")
        desk.bridge.stop()
        desk.start_bridge(wait=False)
        lab.broker.start()
        self.assert_types(laptop, NAME, "o")

    def test_what_others_write(self):
        lab = self.lab()
        laptop = lab.host("laptop", imports="com.example.*")
        observer = self.observe(laptop, NAME, LOST)
        # {"n": 5, "f": 1.5, "l": [h'01', "a"], "at": 1(1363896240)}, as any library writes it.
        lab.broker.publish("sensor", TOPIC, bytes.fromhex("a4616e056166f93e00616c82410161616261" "74c11a514b67b0"), *CBOR)
        lab.broker.publish("sensor", TOPIC, bytes.fromhex("1903e8"), *CBOR)
        observer.wait(2)
        self.assertEqual([each["userInfo"] for each in observer.notifications], [
            {"n": 5, "f": 1.5, "l": [{"$data": "AQ=="}, "a"], "at": {"$date": "2013-03-21T20:04:00Z"}}, {"value": 1000}])  # fmt: skip
        # What is none is told as lost, and what comes behind it arrives.
        for text in ("a4616e", "ff", "9bffffffffffffffff", "81" * 5000, "f6", "a10101"):
            lab.broker.publish("sensor", TOPIC, bytes.fromhex(text), *CBOR)
        lab.broker.publish("sensor", TOPIC, bytes.fromhex("a0"), *CBOR)
        observer.wait_for(lambda each: each["name"] == NAME and each["userInfo"] == {}, "the good one")
        wait_until(lambda: lost(observer, NAME) == 6, lambda: f"six lost: {observer.notifications}")
        self.assertTrue(laptop.bridge.is_running)

    def test_json_where_cbor_is_not_asked_for(self):
        lab, desk, laptop = self.pair(settings={"Bridge": {"cbor": "com.example.Other"}})
        observer = self.observe(laptop, NAME, "com.example.Other")
        listener = lab.broker.listen("sensor", "carillon/1/home/desk/+/n/com/example/Saved")
        desk.post(NAME, {"n": 1})
        desk.post("com.example.Other", {"n": 2})
        observer.wait(2)
        self.assertEqual(sorted(each["userInfo"]["n"] for each in observer.notifications), [1, 2])
        message, = listener.wait(1)
        self.assertEqual((message.content_type, message.json), ("application/json", {"n": 1}))
        self.assertNotIn("widths", message.user_properties)


if __name__ == "__main__":
    unittest.main()
