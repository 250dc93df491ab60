#!/usr/bin/python3
# SPDX-FileCopyrightText: The Carillon authors
# SPDX-License-Identifier: Apache-2.0
"""Ends, reloads and power cuts: in whatever order they come, each notification arrives once or is announced as lost."""

import json
import os
import shutil
import signal
import time
import unittest

from broker import SAVED, Broker
from case import BridgeTest, lost
from host import LOST
from programs import wait_until

NAME = "com.example.Ding"
#: A name with more parts than mosquitto has levels for.
DEEP = "com.example." + ".".join(["a"] * 200)


class LifeTest(BridgeTest):
    def set(self, machine, section="Bridge", **entries):
        machine.settings[section].update({key.replace("_", "-"): value for key, value in entries.items()})
        machine.write_settings()

    def end_bridge(self, host):
        """In order, within some seconds, without a crash."""
        began = time.monotonic()
        self.assertEqual(host.bridge.stop(), 0, host.bridge.tail())
        self.assertLess(time.monotonic() - began, 8)

    def restart_bridge(self, host):
        self.end_bridge(host)
        host.start_bridge()

    def reload(self, host):
        self.assertIsNotNone(host.call("Reload"), getattr(host, "last_error", None))

    def assert_all(self, observer, losses, count):
        """All of so many arrived in order, or were announced."""
        observer.wait_for(lambda each: each["userInfo"].get("n") == count - 1, "the last")
        self.assert_ordered(observer.numbers)
        missing = count - len(observer.numbers)
        losses.wait_until(lambda: lost(losses, NAME) >= missing, "of all that is missing",
                          lambda: f"{missing} are missing, {lost(losses, NAME)} announced")  # fmt: skip
        return missing


class Ends(LifeTest):
    def test_a_burst_that_the_service_still_has(self):
        """More than the bridge is sent at once, and less than the export queue holds."""
        lab, desk, laptop = self.pair()
        observer = self.observe(laptop, NAME)
        desk.post_many(NAME, range(6_000))
        self.restart_bridge(desk)
        observer.wait(6_000)
        self.assertEqual(observer.numbers, list(range(6_000)))

    def test_the_service_ends_before_the_bridge(self):
        """As at a log-out."""
        _, desk, laptop = self.pair()
        observer, losses = self.observe(laptop, NAME), laptop.observe(LOST)
        poster = desk.poster(NAME)
        poster.send("".join(f'{{"n": {number}}}\n' for number in range(600)))
        observer.wait(5)
        laptop.service.stop()
        time.sleep(0.5)
        self.end_bridge(laptop)
        desk.wait_status(lambda status: status["exported"] >= 600, "that all has gone")
        laptop.start_service()
        laptop.start_bridge()
        desk.post(NAME, {"n": 600})
        missing = self.assert_all(observer, losses, 601)
        self.assertLessEqual({each["userInfo"]["reason"] for each in losses.notifications}, {"uncertain"})
        self.assertLessEqual(lost(losses, NAME), 64)
        self.assertLessEqual(missing, lost(losses, NAME))

    def test_the_bridge_ends_while_values_come_in(self):
        lab, desk, laptop = self.pair()
        poster = desk.start("values", "bash", "-c",
                            'for n in $(seq 0 199); do "$0" post com.example.Ding --object o$n --retain n=$n; done',
                            lab.program("carillon"))  # fmt: skip
        observer = self.observe(laptop, NAME, retained=True)
        observer.wait(20)
        self.end_bridge(laptop)
        self.assertEqual(poster.wait(), 0)
        laptop.start_bridge()
        wait_until(lambda: len(laptop.values(NAME)) == 200, lambda: f"200 values; there are {len(laptop.values(NAME))}")
        self.assertEqual({each["userInfo"]["n"] for each in laptop.values(NAME)}, set(range(200)))
        self.assertEqual(sorted(observer.numbers), sorted(set(observer.numbers)), "none comes twice")

    def test_what_was_posted_before_the_end_is_exported(self):
        _, desk, laptop = self.pair()
        observer = self.observe(laptop, NAME)
        for turn in range(5):
            desk.post_many(NAME, range(turn * 100, turn * 100 + 100))
            # Some of them are on their way to the bridge.
            self.restart_bridge(desk)
        observer.wait(500)
        self.assertEqual(observer.numbers, list(range(500)))

    def test_a_hole_that_was_noticed_is_announced_after_the_end(self):
        lab, _, laptop = self.pair()
        observer, losses = self.observe(laptop, NAME), laptop.observe(LOST)
        topic = "carillon/1/home/shed/any/n/com/example/Ding"
        for count in (1, 5):
            lab.broker.publish("shed", topic, f'{{"n": {count}}}', properties=[("run", "r"), ("count", str(count))])
        observer.wait(2)
        self.restart_bridge(laptop)
        losses.wait_until(lambda: lost(losses, NAME) == 3, "of the hole", lambda: f"{lost(losses, NAME)} of 3 announced")
        self.assertEqual({each["userInfo"]["reason"] for each in losses.notifications}, {"missing"})

    def test_a_loss_that_could_not_be_announced_is_announced_later(self):
        _, desk, laptop = self.pair(settings={"Limits": {"queue": 10}})
        observer, losses = self.observe(laptop, NAME), desk.observe(LOST)
        desk.pull_cable()
        desk.post_many(NAME, range(100))
        desk.service.stop()
        self.end_bridge(desk)
        desk.put_cable_back()
        desk.start_service()
        desk.start_bridge()
        desk.post(NAME, {"n": 100})
        observer.wait_for(lambda each: each["userInfo"]["n"] == 100, "the last")
        missing = 101 - len(observer.numbers)
        self.assertGreater(missing, 50)
        losses.wait_until(lambda: lost(losses, NAME) == missing, "of all that is missing",
                          lambda: f"{lost(losses, NAME)} of {missing} announced")  # fmt: skip


class Reloads(LifeTest):
    def test_under_load_nothing_is_lost(self):
        _, desk, laptop = self.pair()
        observer, losses = self.observe(laptop, NAME), laptop.observe(LOST)
        poster = desk.poster(NAME)
        number = 0
        for turn in range(8):
            for _ in range(10):
                poster.send("".join(f'{{"n": {number + each}}}\n' for each in range(30)))
                number += 30
                time.sleep(0.02)
            host = (desk, laptop)[turn % 2]
            self.set(host, "Broker", keep_alive=30 + turn)
            self.reload(host)
        poster.close_input()
        poster.wait()
        observer.wait(number)
        self.assertEqual(observer.numbers, list(range(number)))
        self.assertEqual(losses.notifications, [])
        for host in (desk, laptop):
            host.wait_connected()

    def test_while_posts_are_unanswered(self):
        """Their answers come when the importer that waits for them has been replaced."""
        _, desk, laptop = self.pair()
        observer, losses = self.observe(laptop, NAME), laptop.observe(LOST)
        laptop.service.freeze()
        desk.post_many(NAME, range(300))
        desk.wait_status(lambda status: status["exported"] >= 64, "that some have gone")
        time.sleep(0.5)
        for turn in range(2):
            self.set(laptop, "Broker", keep_alive=30 + turn)
            self.reload(laptop)
            time.sleep(0.2)
        laptop.service.thaw()
        observer.wait(300)
        self.assertEqual(observer.numbers, list(range(300)))
        self.assertEqual(losses.notifications, [])
        self.end_bridge(laptop)

    def test_a_new_password_in_the_same_file(self):
        lab = self.lab()
        desk = lab.host("desk", export="com.example.*")
        desk.call("Reload")
        file = os.path.join(desk.directory, "key.pem")
        shutil.copy(desk.settings["Broker"]["key-file"], file)
        self.set(desk, "Broker", **{"key-file": file})
        self.reload(desk)
        desk.wait_connected()
        before = desk.bridge.text().count("connected to")
        self.reload(desk)
        with open(file, "a", encoding="utf-8") as key:
            key.write("\n")
        self.reload(desk)
        wait_until(lambda: desk.bridge.text().count("connected to") == before + 1, "it connects anew")
        self.assertIn("certificate has changed", desk.bridge.text())

    def test_many_within_a_second(self):
        _, desk, laptop = self.pair()
        observer = self.observe(laptop, NAME)
        desk.pull_cable()
        desk.post_many(NAME, range(2000))
        for turn in range(5):
            for host in (desk, laptop):
                self.set(host, "Broker", keep_alive=30 + turn)
                self.reload(host)
        desk.put_cable_back()
        observer.wait(2000)
        desk.post(NAME, {"n": 2000})
        observer.wait(2001)
        self.assertEqual(observer.numbers, list(range(2001)))

    def test_followed_by_an_end(self):
        _, desk, laptop = self.pair()
        observer = self.observe(laptop, NAME)
        desk.pull_cable()
        desk.post_many(NAME, range(500))
        desk.wait_status(lambda status: status["queued"] + status["in-flight"] >= 500, "that all of it waits")
        self.set(desk, "Broker", keep_alive=31)
        self.reload(desk)
        self.end_bridge(desk)
        desk.put_cable_back()
        desk.start_bridge()
        desk.post(NAME, {"n": 500})
        observer.wait(501)
        self.assertEqual(observer.numbers, list(range(501)))

    def test_with_another_user(self):
        """The old one goes offline, and its presence does not stay."""
        _, desk, laptop = self.pair()
        observer = self.observe(laptop, NAME)
        self.set(desk, user="clara")
        self.reload(desk)
        wait_until(lambda: (laptop.value("org.carillon.Bridge.Host", "desk/clara") or {}).get("online"), "clara is there")
        laptop.wait_value("org.carillon.Bridge.Host", "desk/anna", {"host": "desk", "user": "anna", "online": False})
        desk.post(NAME, {"n": 1})
        self.assert_origin(observer.wait(1)[0], "desk", "clara")

    def test_counts_go_on(self):
        _, desk, laptop = self.pair()
        observer = self.observe(laptop, NAME)
        desk.post_many(NAME, range(10))
        observer.wait(10)
        for host, key in ((desk, "exported"), (laptop, "imported")):
            self.set(host, "Broker", keep_alive=31)
            self.reload(host)
            host.wait_connected()
            self.assertEqual(host.wait_status(lambda status, key=key: status[key] == 10, f"{key}=10")[key], 10)


class LockedOut(LifeTest):
    def test_a_name_that_is_no_topic(self):
        _, desk, laptop = self.pair(exports="*", imports="*")
        observer, losses = self.observe(laptop, NAME), desk.observe(LOST)
        desk.post(DEEP, {"n": 0})
        desk.post(DEEP, {"n": 0}, "object", options=["--retain"])
        desk.post(NAME, {"n": 1})
        observer.wait(1)
        losses.wait_for(lambda each: each["userInfo"] == {
            "name": DEEP, "host": "desk", "user": "anna", "count": 2, "reason": "no-topic"}, "both")  # fmt: skip
        # A look at the broker's values announces none of them again.
        time.sleep(5)
        self.assertEqual(lost(losses, DEEP), 2)
        # A name and an object that only together have too many levels.
        edge = "com.example." + ".".join(["a"] * 190)
        desk.post(edge, {"n": 2}, "object", options=["--retain"])
        self.restart_bridge(desk)
        desk.post(NAME, {"n": 3})
        observer.wait(2)
        self.assertTrue(desk.status()["connected"])

    def test_a_message_that_an_earlier_version_could_not_send(self):
        """A state file of an earlier version, which locked the bridge out."""
        _, desk, laptop = self.pair()
        observer, losses = self.observe(laptop, NAME), desk.observe(LOST)
        desk.pull_cable()
        desk.post_many(NAME, range(3))
        desk.wait_status(lambda status: status["queued"] + status["in-flight"] == 3, "that they wait")
        self.end_bridge(desk)
        path = os.path.join(desk.environment["HOME"], ".local/state/carillon/bridge-state.json")
        with open(path, encoding="utf-8") as file:
            state = json.load(file)
        state["queue"][1]["topic"] = "carillon/1/home/desk/anna/n/" + DEEP.replace(".", "/")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(state, file)
        desk.put_cable_back()
        desk.start_bridge()
        observer.wait(2)
        losses.wait_until(lambda: lost(losses, NAME) == 1, "of one", lambda: f"{lost(losses, NAME)} announced")


class Presence(LifeTest):
    TOPIC = "carillon/1/home/desk/anna/online"

    def assert_corrected(self, lab, run):
        def shown():
            return lab.broker.retained("sensor", self.TOPIC)[self.TOPIC].payload

        wait_until(lambda: f'"run": "{run}"' in shown() and '"online": true' in shown(), "the presence is corrected",
                   seconds=10)  # fmt: skip

    def run_of(self, lab):
        return lab.broker.retained("sensor", self.TOPIC)[self.TOPIC].json["run"]

    def test_forged(self):
        lab, desk, laptop = self.pair()
        run = self.run_of(lab)
        observer = self.observe(laptop, NAME)
        for payload in (
            '{"online": true, "protocol": 1, "run": "another", "software": "x"}',
            '{"online": true, "protocol": 1, "run": "another", "ask": "x"}',
            '{"online": true, "protocol": 1, "run": "another", "answer": "x"}', '{"online": false}', "offline", "{",
        ):  # fmt: skip
            lab.broker.publish("desk", self.TOPIC, payload, "-r")
            self.assert_corrected(lab, run)
        self.assertTrue(desk.status()["connected"])
        desk.post(NAME, {"n": 1})
        observer.wait(1)
        laptop.wait_value("org.carillon.Bridge.Host", "desk/anna", {"host": "desk", "user": "anna", "online": True})

    def test_restored_by_the_broker(self):
        lab = self.lab(settings=SAVED)
        desk = lab.host("desk", export="com.example.*")
        lab.broker.wait_saved()
        file = os.path.join(lab.broker.directory, "state", "mosquitto.db")
        shutil.copy(file, file + ".old")
        desk.restart_bridge(signal.SIGKILL)
        run = self.run_of(lab)
        lab.broker.kill()
        desk.wait_connected(False)
        shutil.copy(file + ".old", file)
        lab.broker.start()
        desk.wait_connected()
        self.assert_corrected(lab, run)
        time.sleep(2)
        self.assertTrue(desk.status()["connected"])


class Forgetting(LifeTest):
    """Brokers that lose what they keep."""

    VALUES = "carillon/1/home/desk/anna/v/com/example/Ding/#"

    def wait_retained(self, lab, expected):
        def there():
            return {topic.rsplit("/", 1)[1]: message.json["n"] for topic, message in lab.broker.retained("sensor", self.VALUES).items()}

        wait_until(lambda: there() == expected, lambda: f"the broker has {expected}; it has {there()}")

    def test_everything(self):
        lab, desk, laptop = self.pair(lab=self.lab(settings="persistence false\n"))
        for number in range(5):
            desk.post(NAME, {"n": number}, f"o{number}", options=["--retain"])
        observer = self.observe(laptop, NAME)
        observer.wait(5)
        lab.broker.kill()
        desk.wait_connected(False)
        desk.run("carillon", "forget", NAME, "--object", "o0")
        desk.post(NAME, {"n": 9}, "o1", options=["--retain"])
        lab.broker.start()
        expected = {"o1": 9, "o2": 2, "o3": 3, "o4": 4}
        self.wait_retained(lab, expected)
        late = lab.host("late", imports="com.example.*")
        self.observe(late, NAME)
        wait_until(lambda: {each["object"]: each["userInfo"]["n"] for each in late.values(NAME)} == expected, "the values")
        # mosquitto_sub has a second, which on a busy machine may be too little.
        topic = "carillon/1/home/desk/anna/online"
        wait_until(lambda: [each.json["online"] for each in lab.broker.retained("sensor", topic).values()] == [True],
                   "the presence")
        laptop.wait_value(NAME, "o1", {"n": 9})
        # The removal of o0 came when the broker did not know the laptop any more.
        wait_until(lambda: {each["object"]: each["userInfo"]["n"] for each in laptop.values(NAME)} == expected,
                   "the value that was removed unseen ends", seconds=130)
        # Of the values that are published again none is posted again.
        self.assertEqual(sorted(observer.numbers), [0, 1, 2, 3, 4, 9])

    def test_the_last_changes(self):
        lab, desk, laptop = self.pair(lab=self.lab(settings=SAVED))
        desk.post(NAME, {"n": 1}, "o1", options=["--retain"])
        desk.post(NAME, {"n": 2}, "o2", options=["--retain"])
        self.wait_retained(lab, {"o1": 1, "o2": 2})
        lab.broker.wait_saved()
        file = os.path.join(lab.broker.directory, "state", "mosquitto.db")
        shutil.copy(file, file + ".old")
        desk.post(NAME, {"n": 3}, "o1", options=["--retain"])
        desk.run("carillon", "forget", NAME, "--object", "o2")
        self.wait_retained(lab, {"o1": 3})
        lab.broker.kill()
        shutil.copy(file + ".old", file)
        lab.broker.start()
        desk.wait_connected()
        self.wait_retained(lab, {"o1": 3})
        self.observe(laptop, NAME)
        laptop.wait_value(NAME, "o1", {"n": 3})
        laptop.wait_value(NAME, "o2", None)

    def test_a_reload_to_another_broker(self):
        lab = self.lab()
        desk = lab.host("desk", export="com.example.*")
        desk.post(NAME, {"n": 1}, "o1", options=["--retain"])
        self.wait_retained(lab, {"o1": 1})
        lab.broker = Broker(lab, "another")
        self.addCleanup(lab.broker.program.stop)
        address, port = lab.network.reach("desk", "another")
        self.set(desk, "Broker", host=address, port=port)
        self.reload(desk)
        self.wait_retained(lab, {"o1": 1})

    def test_names_that_a_reload_adds(self):
        lab = self.lab()
        desk = lab.host("desk", export="org.example.*")
        desk.post(NAME, {"n": 1}, "o1", options=["--retain"])
        self.set(desk, export="org.example.*;com.example.*")
        self.reload(desk)
        self.wait_retained(lab, {"o1": 1})


if __name__ == "__main__":
    unittest.main()
