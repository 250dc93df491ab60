#!/usr/bin/python3
# SPDX-FileCopyrightText: The Carillon authors
# SPDX-License-Identifier: Apache-2.0
"""What the bridge says of itself on the bus and by its exit status, and `carillon bridge`."""

import json
import os
import shutil
import signal
import subprocess
import tempfile
import unittest

from case import BridgeTest
from programs import wait_until

KEYS = {
    "version": str, "connected": bool, "state": str, "reason": str, "broker": str, "tls": bool, "realm": str, "host": str,
    "user": str, "export": list, "import": list, "subscriptions": int, "queued": int, "queued-bytes": int, "in-flight": int,
    "exported": int, "imported": int, "lost-out": int, "lost-in": int, "refused": int, "duplicates": int, "stripped": list,
    "acknowledgement": int, "hosts": list,
}  # fmt: skip


class Status(BridgeTest):
    def test_all_of_it(self):
        lab, desk, laptop = self.pair(exports="com.example.*;org.example.A", imports="com.example.B")
        observer = self.observe(laptop, "com.example.B")
        desk.post("com.example.B")
        desk.post("com.example.C")
        observer.wait(1)
        status = desk.wait_status(lambda status: status["in-flight"] == 0, "that all has gone")
        for key, kind in KEYS.items():
            self.assertIsInstance(status.get(key), kind, key)
        address, port = lab.network.reach("desk", "broker")
        self.assertEqual(
            {key: status[key] for key in ("connected", "tls", "realm", "host", "user", "export", "import", "exported", "queued")},
            {"connected": True, "tls": True, "realm": "home", "host": "desk", "user": "anna",
             "export": ["com.example.*", "org.example.A"], "import": [], "exported": 2, "queued": 0})  # fmt: skip
        self.assertIn(address, status["broker"])
        self.assertIn(str(port), status["broker"])
        self.assertGreater(status["acknowledgement"], 0)
        # It counts when the service has answered, and the observer may have it before that.
        laptop.wait_status(lambda status: status["imported"] == 1, "that one came")
        hosts = {(each["host"], each["user"]): each for each in laptop.status()["hosts"]}
        self.assertTrue(hosts["desk", "anna"]["online"])
        self.assertIsInstance(hosts["desk", "anna"]["software"], str)

    def test_without_a_connection(self):
        lab = self.lab()
        desk = lab.host("desk")
        desk.run("carillon", "bridge", "status")
        lab.broker.kill()
        desk.wait_status(lambda status: "refused" in status["reason"].lower(), "that the connection is refused")
        printed = desk.run("carillon", "bridge", "status", status=2)
        self.assertIn("refused", printed.lower())
        self.assertNotIn("certificate", printed)
        json.loads(desk.run("carillon", "bridge", "status", "--json", status=2))

    def test_test(self):
        lab = self.lab()
        desk = lab.host("desk")
        answer, = desk.call("Test")
        self.assertTrue(0 < answer["round-trip"] < 60_000_000, answer)
        for _ in range(3):
            desk.call("Test")
        lab.broker.kill()
        desk.wait_connected(False)
        self.assertIsNone(desk.call("Test"))
        self.assertIn("Error", desk.last_error)

    def test_test_behind_a_reload(self):
        lab = self.lab()
        desk = lab.host("desk", export="*")
        desk.settings["Bridge"]["export"] = "com.example.*"
        desk.write_settings()
        desk.run("carillon", "bridge", "reload")
        self.assertRegex(desk.run("carillon", "bridge", "test"), r"\d")

    def test_test_of_a_broker_that_does_not_answer(self):
        lab = self.lab()
        desk = lab.host("desk")
        lab.broker.freeze()
        self.assertIsNone(desk.call("Test", timeout=50))
        self.assertNotIn("Timeout was reached", desk.last_error, "it is the bridge that shall say so")
        lab.broker.thaw()
        wait_until(lambda: desk.call("Test"), "it works again")

    def test_the_command(self):
        lab = self.lab()
        desk = lab.host("desk", export="com.example.*")
        text = desk.run("carillon", "bridge", "status")
        self.assertIn("desk", text)
        self.assertIn("com.example.*", text)
        status = json.loads(desk.run("carillon", "bridge", "status", "--json"))
        self.assertEqual((status["connected"], status["host"], status["export"]), (True, "desk", ["com.example.*"]))
        self.assertRegex(desk.run("carillon", "bridge", "test"), r"\d")
        lab.broker.kill()
        desk.wait_connected(False)
        code, _, error = desk.run("carillon", "bridge", "test", status=None)
        self.assertNotEqual(code, 0)
        self.assertTrue(error)
        desk.bridge.stop()
        code, _, error = desk.run("carillon", "bridge", "status", status=None)
        self.assertEqual(code, 2, error)


class Ends(BridgeTest):
    def bridge_ends(self, desk, settings, expected, word):
        with open(os.path.join(desk.configuration, "bridge.conf"), "w", encoding="utf-8") as file:
            file.write(settings)
        status, _, said = desk.run("carillon-bridge", status=None, seconds=15)
        self.assertEqual(status, expected, said)
        self.assertRegex(said, word)

    def test_without_a_broker_it_is_off(self):
        desk = self.lab(tls=False).host("desk", bridge=False)
        self.bridge_ends(desk, "", 0, r"(?i)bridge\.conf|off|host")
        self.bridge_ends(desk, "[Bridge]\nexport=*\n", 0, r"(?i)bridge\.conf|off|host")

    def test_mistakes_of_the_configuration(self):
        desk = self.lab(tls=False).host("desk", bridge=False)
        for line, word in (("[Broker]\nhost=a\nport=70000\n", "port"), ("[Broker]\nhost=a\nkeep-alive=2\n", "keep-alive"),
                           ("[Broker]\nhost=a\ntls=perhaps\n", "tls"), ("[Broker]\nhost=a\nhots=b\n", "hots"),
                           ("[Brokr]\nhost=a\n", "Brokr"), ("[Broker]\nhost=a\n[Bridge]\nexport=*.x\n", "export"),
                           ("[Broker]\nhost=a\n[Bridge]\nformat=xml\n", "format"), ("host=a\n", "bridge.conf")):  # fmt: skip
            with self.subTest(line):
                self.bridge_ends(desk, line, 1, word)

    def test_a_file_that_is_not_there_is_named(self):
        lab = self.lab()
        desk = lab.host("desk", bridge=False, settings={"Broker": {"ca-file": "/nowhere/ca.crt"}})
        bridge = desk.start_bridge(wait=False)
        wait_until(lambda: "/nowhere/ca.crt" in bridge.text(), bridge.text)
        self.assertNotIn("u'desk'", lab.broker.text())

    def test_usage(self):
        lab = self.lab(tls=False)
        desk = lab.host("desk", bridge=False)
        self.assertEqual(desk.run("carillon-bridge", "--nonsense", status=None)[0], 1)
        self.assertIn("bridge", desk.run("carillon-bridge", "--help"))
        self.assertRegex(desk.run("carillon-bridge", "--version"), r"\d+\.\d+")

    def test_no_bus_and_one_that_goes(self):
        lab = self.lab()
        desk = lab.host("desk")
        desk.bus.kill()
        self.assertEqual(desk.bridge.wait(), 4, desk.bridge.text())
        self.assertEqual(desk.start("bridge-2", "carillon-bridge").wait(), 2)

    def test_signals_end_it_well(self):
        lab = self.lab()
        for number in (signal.SIGTERM, signal.SIGINT):
            desk = lab.host(f"desk{number}")
            self.assertEqual(desk.bridge.stop(number), 0, desk.bridge.text())

    def test_without_tls(self):
        lab = self.lab(tls=False)
        desk = lab.host("desk", export="*")
        laptop = lab.host("laptop", imports="com.example.*")
        self.assertFalse(desk.status()["tls"])
        observer = self.observe(laptop, "com.example.A")
        desk.post("com.example.A", {"n": 1})
        observer.wait(1)

    def test_passwords(self):
        directory = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, directory)
        path = os.path.join(directory, "passwords")
        subprocess.run(["mosquitto_passwd", "-b", "-c", path, "desk", "secret"], check=True, timeout=30, capture_output=True)
        lab = self.lab(tls=False, access="user desk\ntopic readwrite #\n", settings=f"password_file {path}\n")
        right, wrong = os.path.join(directory, "right"), os.path.join(directory, "wrong")
        for file, text in ((right, "secret\n"), (wrong, "guess\n")):
            with open(file, "w", encoding="utf-8") as stream:
                stream.write(text)
        desk = lab.host("desk", settings={"Broker": {"user-name": "desk", "password-file": right}})
        self.assertIn("desk", lab.broker.text())
        self.assertTrue(desk.status()["connected"])
        other = lab.host("other", bridge=False, settings={"Broker": {"user-name": "desk", "password-file": wrong}})
        other.start_bridge(wait=False)
        status = other.wait_status(lambda status: status["reason"], "why it is not connected")
        self.assertFalse(status["connected"])
        self.assertNotIn("guess", other.bridge.text())


if __name__ == "__main__":
    unittest.main()


class Files(BridgeTest):
    """The files that bridge.conf names, and what the broker does not grant."""

    def check(self, desk, status):
        code, printed, said = desk.run("carillon-bridge", "--check", status=None)
        self.assertEqual(code, status, printed + said)
        return said

    def test_that_can_not_be_used(self):
        lab = self.lab()
        desk = lab.host("desk", bridge=False)
        self.assertEqual(self.check(desk, 0), "")
        desk.settings["Broker"] |= {"ca-file": "/nowhere/ca.crt", "key-file": desk.directory}
        desk.write_settings()
        said = self.check(desk, 1)
        self.assertIn("ca-file: there is no file /nowhere/ca.crt", said)
        self.assertIn(f"key-file: ", said)

    def test_a_key_for_everybody(self):
        lab = self.lab()
        desk = lab.host("desk", bridge=False)
        os.chmod(desk.settings["Broker"]["key-file"], 0o644)
        self.assertRegex(self.check(desk, 0), "warning: key-file: every user")

    def test_a_certificate_that_ends(self):
        lab = self.lab()
        desk = lab.host("desk", certificate=lab.authority.client("desk", days=5))
        self.assertTrue(desk.status()["connected"])
        self.assertRegex(desk.status()["configuration-warnings"][0], "certificate-file: .* ends in [45] days")
        self.assertRegex(desk.bridge.text(), "certificate-file: .* ends in [45] days")
        self.assertRegex(self.check(desk, 0), "ends in [45] days")
        self.assertIn("ends in", desk.run("carillon", "bridge", "status"))

    def test_paths_below_the_home_directory(self):
        lab = self.lab()
        desk = lab.host("desk", bridge=False)
        home = desk.environment["HOME"]
        for key, prefix in (("ca-file", "~/"), ("certificate-file", "%h/"), ("key-file", "~/")):
            shutil.copy(desk.settings["Broker"][key], os.path.join(home, key))
            desk.settings["Broker"][key] = prefix + key
        desk.write_settings()
        self.assertEqual(self.check(desk, 0), "")
        desk.start_bridge()
        self.assertEqual(desk.status()["configuration-errors"], [])

    def test_a_broker_that_grants_less(self):
        # mosquitto refuses the connection then, as the will asks for both.
        for setting, word in (("max_qos 0", "quality of service"), ("retain_available false", "does not retain")):
            desk = self.lab(settings=setting).host("desk", bridge=False)
            desk.start_bridge(wait=False)
            desk.wait_status(lambda status: word in status["reason"], word)
