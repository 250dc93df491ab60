#!/usr/bin/python3
# SPDX-FileCopyrightText: The Carillon authors
# SPDX-License-Identifier: Apache-2.0
"""Values that stay: what a broker retains and what a session keeps are the same."""

import signal
import time
import unittest

from case import BridgeTest
from host import HOST
from programs import wait_until

NAME = "com.example.Battery"
ORIGIN = "carillon/1/home/desk/anna"


class Values(BridgeTest):
    def wait_retained(self, lab, *topics):
        """Waits until these topics of the desk, and no others, hold a notification at the broker."""

        def there():
            return sorted(topic.removeprefix(f"{ORIGIN}/") for topic in lab.broker.retained("sensor", f"{ORIGIN}/#")
                          if not topic.endswith(("/online", "/status")))  # fmt: skip

        wait_until(lambda: there() == sorted(topics), lambda: f"the broker has {topics}; it has {there()}")

    def test_what_was_there_before(self):
        lab, desk, laptop = self.pair()
        desk.post(NAME, {"percent": 80}, "BAT0", options=["--retain"])
        desk.post(NAME, {"percent": 50}, "BAT1", options=["--retain"])
        desk.post(NAME, {"percent": 65}, options=["--retain"])
        self.wait_retained(lab, "v/com/example/Battery/BAT0", "v/com/example/Battery/BAT1", "n/com/example/Battery")
        observer = self.observe(laptop, NAME)
        observer.wait(3)
        found = {each["object"]: each["userInfo"]["percent"] for each in observer.notifications}
        self.assertEqual(found, {"BAT0": 80, "BAT1": 50, "": 65})
        kept = laptop.values(NAME)
        self.assertEqual({each["object"]: each["userInfo"]["percent"] for each in kept}, found)
        for each in kept:
            self.assert_origin(each, "desk", "anna")

    def test_what_comes_after(self):
        _, desk, laptop = self.pair()
        observer = self.observe(laptop, NAME)
        for percent in (80, 79, 78):
            desk.post(NAME, {"percent": percent}, "BAT0", options=["--retain"])
        desk.post(NAME, {"percent": 1}, "BAT1", options=["--retain"])
        desk.post(NAME, {"percent": 0}, "BAT2")
        observer.wait(5)
        self.assertEqual([each["userInfo"]["percent"] for each in observer.notifications if each["object"] == "BAT0"],
                         [80, 79, 78])  # fmt: skip
        laptop.wait_value(NAME, "BAT0", {"percent": 78})
        laptop.wait_value(NAME, "BAT1", {"percent": 1})
        laptop.wait_value(NAME, "BAT2", None)

    def test_with_what_is_kept_here(self):
        _, desk, laptop = self.pair()
        laptop.post(NAME, {"percent": 5}, "BAT0", options=["--retain"])
        observer = self.observe(laptop, NAME)
        desk.post(NAME, {"percent": 80}, "BAT0", options=["--retain"])
        observer.wait(1)
        found = {each["details"].get("host"): each["userInfo"]["percent"] for each in laptop.values(NAME)}
        self.assertEqual(found, {None: 5, "desk": 80})

    def test_more_than_the_broker_has_room_for_in_a_queue(self):
        """What a subscription shows is as much as there is, whatever the queue of a session holds."""
        lab, desk, laptop = self.pair(lab=self.lab(settings="max_queued_messages 50\nmax_inflight_messages 5\n"))
        count = 300
        for number in range(count):
            desk.post(NAME, {"percent": number}, f"BAT{number}", options=["--retain"])
        desk.wait_status(lambda status: status["queued"] + status["in-flight"] == 0, "the broker has all")
        observer = self.observe(laptop, NAME)
        observer.wait(count, seconds=60)
        self.assertEqual({each["object"]: each["userInfo"]["percent"] for each in laptop.values(NAME)},
                         {f"BAT{number}": number for number in range(count)})  # fmt: skip
        self.assertEqual(laptop.status()["lost-in"], 0)

    def test_the_same_with_another_time(self):
        lab, desk, laptop = self.pair()
        observer = self.observe(laptop, NAME)
        desk.post(NAME, {"percent": 80}, "short", options=["--retain", "--expires", "20"])
        desk.post(NAME, {"percent": 80}, "long", options=["--retain"])
        observer.wait(2)
        observer.stop()
        laptop.wait_status(lambda status: status["subscriptions"] == 0, "nothing is wanted")
        desk.post(NAME, {"percent": 80}, "short", options=["--retain"])
        desk.post(NAME, {"percent": 80}, "long", options=["--retain", "--expires", "20"])
        self.observe(laptop, NAME)
        laptop.wait_value(NAME, "long", None)
        # It would be over by now as well.
        laptop.wait_value(NAME, "short", {"percent": 80})
        desk.wait_value(NAME, "long", None)

    def test_of_two_hosts(self):
        lab, desk, laptop = self.pair()
        tablet = lab.host("tablet", export="com.example.*")
        observer = self.observe(laptop, NAME)
        desk.post(NAME, {"percent": 80}, "BAT0", options=["--retain"])
        tablet.post(NAME, {"percent": 30}, "BAT0", options=["--retain"])
        observer.wait(2)
        self.assertEqual({each["details"]["host"]: each["userInfo"]["percent"] for each in laptop.values(NAME)},
                         {"desk": 80, "tablet": 30})  # fmt: skip
        tablet.run("carillon", "forget", NAME)
        wait_until(lambda: [each["details"]["host"] for each in laptop.values(NAME)] == ["desk"],
                   lambda: f"only that of the desk is left: {laptop.values(NAME)}")  # fmt: skip

    def test_expiry(self):
        lab, desk, laptop = self.pair()
        observer = self.observe(laptop, NAME)
        listener = lab.broker.listen("sensor", f"{ORIGIN}/v/#")
        desk.post(NAME, {"percent": 80}, "BAT0", options=["--retain", "--expires", "6"])
        desk.post(NAME, {"percent": 50}, "BAT1", options=["--retain"])
        observer.wait(2)
        laptop.wait_value(NAME, "BAT0", {"percent": 80})
        expiries = {message.topic[-4:]: message.expiry for message in listener.wait(2)}
        self.assertIsNone(expiries["BAT1"])
        # Whole seconds, rounded up: nothing goes before its time.
        self.assertTrue(0 < expiries["BAT0"] <= 7, expiries)
        laptop.wait_value(NAME, "BAT0", None)
        laptop.wait_value(NAME, "BAT1", {"percent": 50})
        self.wait_retained(lab, "v/com/example/Battery/BAT1")

    def test_removed_at_its_origin(self):
        lab, desk, laptop = self.pair()
        observer = self.observe(laptop, NAME)
        for object_ in ("BAT0", "BAT1"):
            desk.post(NAME, {"percent": 80}, object_, options=["--retain"])
        desk.post(NAME, {"percent": 80}, options=["--retain"])
        observer.wait(3)
        desk.run("carillon", "forget", NAME, "--object", "BAT0")
        laptop.wait_value(NAME, "BAT0", None)
        laptop.wait_value(NAME, "BAT1", {"percent": 80})
        self.wait_retained(lab, "v/com/example/Battery/BAT1", "n/com/example/Battery")
        desk.run("carillon", "forget", NAME)
        laptop.wait_value(NAME, "BAT1", None)
        laptop.wait_value(NAME, "", None)
        self.wait_retained(lab)
        # That one has gone is no notification.
        self.assertEqual(len(observer.notifications), 3)

    def test_while_its_poster_is_connected(self):
        lab, desk, laptop = self.pair()
        observer = self.observe(laptop, NAME)
        poster = desk.poster(NAME, "--object", "BAT0", "--while-connected")
        poster.send('{"percent": 80}\n')
        observer.wait(1)
        laptop.wait_value(NAME, "BAT0", {"percent": 80})
        poster.kill()
        laptop.wait_value(NAME, "BAT0", None)
        self.wait_retained(lab)

    def test_gone_while_the_cable_was_out(self):
        lab, desk, laptop = self.pair()
        observer = self.observe(laptop, NAME)
        for object_ in ("BAT0", "BAT1", "BAT2"):
            desk.post(NAME, {"percent": 80}, object_, options=["--retain"])
        observer.wait(3)
        desk.pull_cable()
        desk.run("carillon", "forget", NAME, "--object", "BAT0")
        desk.post(NAME, {"percent": 79}, "BAT1", options=["--retain"])
        desk.put_cable_back()
        laptop.wait_value(NAME, "BAT0", None)
        laptop.wait_value(NAME, "BAT1", {"percent": 79})
        laptop.wait_value(NAME, "BAT2", {"percent": 80})
        self.wait_retained(lab, "v/com/example/Battery/BAT1", "v/com/example/Battery/BAT2")

    def test_a_restart_of_either_bridge_posts_nothing_twice(self):
        lab, desk, laptop = self.pair()
        observer = self.observe(laptop, NAME)
        desk.post(NAME, {"percent": 80}, "BAT0", options=["--retain"])
        desk.post(NAME, {"percent": 65}, options=["--retain"])
        observer.wait(2)
        for host in (laptop, desk):
            for number in (signal.SIGTERM, signal.SIGKILL):
                host.restart_bridge(number)
        observer_of_end = self.observe(laptop, "com.example.End")
        desk.post("com.example.End")
        observer_of_end.wait(1)
        # Values come when the subscription is made, ahead of that or soon behind it.
        time.sleep(1)
        self.assertEqual([each["object"] for each in observer.notifications], ["BAT0", ""])
        laptop.wait_value(NAME, "BAT0", {"percent": 80})
        desk.post(NAME, {"percent": 81}, "BAT0", options=["--retain"])
        observer.wait(3)
        self.assertEqual(observer.notifications[2]["userInfo"], {"percent": 81})

    def test_changed_and_removed_while_the_bridge_was_away(self):
        lab, desk, laptop = self.pair()
        observer = self.observe(laptop, NAME)
        for object_ in ("BAT0", "BAT1", "BAT2"):
            desk.post(NAME, {"percent": 80}, object_, options=["--retain"])
        observer.wait(3)
        desk.bridge.stop()
        desk.run("carillon", "forget", NAME, "--object", "BAT0")
        desk.post(NAME, {"percent": 79}, "BAT1", options=["--retain"])
        desk.start_bridge()
        laptop.wait_value(NAME, "BAT1", {"percent": 79})
        laptop.wait_value(NAME, "BAT0", None)
        self.wait_retained(lab, "v/com/example/Battery/BAT1", "v/com/example/Battery/BAT2")
        self.assertEqual(len(observer.notifications), 4, observer.notifications)

    def test_names_that_are_imported_no_longer(self):
        lab = self.lab()
        desk = lab.host("desk", export="com.example.*")
        laptop = lab.host("laptop", imports="com.example.A;com.example.B")
        for name in ("com.example.A", "com.example.B"):
            desk.post(name, {"n": 1}, "x", options=["--retain"])
            laptop.observe(name)
            laptop.wait_value(name, "x", {"n": 1})
        laptop.post("com.example.A", {"n": 2}, "own", options=["--retain"])
        laptop.settings["Bridge"]["import"] = "com.example.B"
        laptop.write_settings()
        laptop.run("carillon", "bridge", "reload")
        laptop.wait_value("com.example.A", "x", None)
        laptop.wait_value("com.example.A", "own", {"n": 2})
        laptop.wait_value("com.example.B", "x", {"n": 1})
        # And at a start.
        laptop.bridge.stop()
        laptop.settings["Bridge"]["import"] = "com.example.A"
        laptop.write_settings()
        laptop.start_bridge()
        laptop.wait_value("com.example.B", "x", None)
        laptop.wait_value("com.example.A", "x", {"n": 1})


class Bound(BridgeTest):
    """Values that go with their posters, whatever ends the poster, its host or its session."""

    def pair_with_a_value(self):
        lab, desk, laptop = self.pair()
        self.observe(laptop, NAME)
        poster = desk.poster(NAME, "--object", "BAT0", "--while-connected")
        poster.send('{"percent": 80}\n')
        desk.post(NAME, {"percent": 50}, "BAT1", options=["--retain"])
        laptop.wait_value(NAME, "BAT0", {"percent": 80})
        laptop.wait_value(NAME, "BAT1", {"percent": 50})
        return lab, desk, laptop

    def test_what_it_is_bound_to(self):
        lab, desk, _ = self.pair_with_a_value()
        messages = lab.broker.retained("sensor", f"{ORIGIN}/#")
        run = messages[f"{ORIGIN}/online"].json["run"]
        self.assertEqual(messages[f"{ORIGIN}/v/com/example/Battery/BAT0"].user_properties["while"], run)
        self.assertNotIn("while", messages[f"{ORIGIN}/v/com/example/Battery/BAT1"].user_properties)

    def test_it_ends_with_its_host(self):
        for end in (lambda desk: desk.bridge.stop(), lambda desk: desk.bridge.kill()):
            _, desk, laptop = self.pair_with_a_value()
            end(desk)
            laptop.wait_value(NAME, "BAT0", None)
            laptop.wait_value(NAME, "BAT1", {"percent": 50})
            # The poster is there all the time.
            desk.start_bridge()
            laptop.wait_value(NAME, "BAT0", {"percent": 80})

    def test_it_ends_while_the_receiver_is_away(self):
        for end in (lambda laptop: laptop.bridge.stop(), lambda laptop: laptop.bridge.kill()):
            _, desk, laptop = self.pair_with_a_value()
            end(laptop)
            desk.bridge.stop()
            laptop.start_bridge()
            laptop.wait_value(NAME, "BAT0", None)
            laptop.wait_value(NAME, "BAT1", {"percent": 50})
            desk.start_bridge()
            laptop.wait_value(NAME, "BAT0", {"percent": 80})

    def test_who_comes_later_gets_none_of_a_host_that_is_not_there(self):
        lab, desk, _ = self.pair_with_a_value()
        desk.bridge.stop()
        tablet = lab.host("tablet", imports="com.example.*")
        self.observe(tablet, NAME)
        tablet.wait_value(NAME, "BAT1", {"percent": 50})
        self.assertEqual([each["object"] for each in tablet.values(NAME)], ["BAT1"])
        desk.start_bridge()
        tablet.wait_value(NAME, "BAT0", {"percent": 80})

    def test_a_false_word_ends_it_for_a_moment_only(self):
        lab, desk, laptop = self.pair_with_a_value()
        run = lab.broker.retained("sensor", f"{ORIGIN}/online")[f"{ORIGIN}/online"].json["run"]
        for payload in ('{"online": false}', '{"online": true, "run": "another"}'):
            lab.broker.publish("desk", f"{ORIGIN}/online", payload, "-r")
            wait_until(lambda: run in lab.broker.retained("sensor", f"{ORIGIN}/online")[f"{ORIGIN}/online"].payload,
                       "the presence is corrected")  # fmt: skip
            laptop.wait_value(NAME, "BAT0", {"percent": 80})
        self.assertTrue(desk.status()["connected"])

    def test_a_name_that_nobody_wants_any_more(self):
        lab, desk, laptop = self.pair()
        observer = self.observe(laptop, NAME)
        poster = desk.poster(NAME, "--object", "BAT0", "--while-connected")
        poster.send('{"percent": 80}\n')
        laptop.wait_value(NAME, "BAT0", {"percent": 80})
        observer.stop()
        # Nobody would tell the bridge that it ends.
        laptop.wait_value(NAME, "BAT0", None)
        self.observe(laptop, NAME)
        laptop.wait_value(NAME, "BAT0", {"percent": 80})
        poster.kill()
        laptop.wait_value(NAME, "BAT0", None)

    def test_a_reload_of_either_bridge_changes_nothing(self):
        _, desk, laptop = self.pair_with_a_value()
        observer = laptop.observe(NAME)
        for host in (desk, laptop):
            host.settings["Broker"]["keep-alive"] = "31"
            host.write_settings()
            self.assertIsNotNone(host.call("Reload"))
            host.wait_connected()
        desk.post(NAME, {"percent": 1}, "BAT2")
        observer.wait_for(lambda each: each["object"] == "BAT2", "what comes later")
        laptop.wait_value(NAME, "BAT0", {"percent": 80})
        self.assertEqual([each for each in observer.notifications if each["object"] == "BAT0"], [])


class Absent(BridgeTest):
    """Values of a host that is not there for long."""

    def test_end_and_come_again(self):
        lab, desk, laptop = self.pair(receiver={"Bridge": {"absence-expiry": "3"}})
        self.observe(laptop, NAME)
        desk.post(NAME, {"percent": 80}, "BAT0", options=["--retain"])
        wait_until(lambda: len(laptop.values(NAME)) == 1, "it is there")
        time.sleep(4)
        self.assertEqual(len(laptop.values(NAME)), 1, "its host is")
        desk.bridge.stop()
        laptop.wait_value(HOST, "desk/anna", {"host": "desk", "user": "anna", "online": False})
        self.assertEqual(len(laptop.values(NAME)), 1)
        wait_until(lambda: laptop.values(NAME) == [], "it ends")
        # The broker still has it.
        self.observe(laptop, "com.example.Other")
        laptop.restart_bridge()
        self.observe(laptop, "com.example.More")
        self.assertEqual(laptop.values(NAME), [])
        desk.start_bridge()
        wait_until(lambda: len(laptop.values(NAME)) == 1, "it is there again")


class Forgotten(BridgeTest):
    """What the broker keeps of a host that is gone for good."""

    def test_by_command(self):
        lab = self.lab(access="pattern readwrite #\n")
        lab, desk, laptop = self.pair(lab=lab)
        self.observe(laptop, NAME)
        for object_ in ("BAT0", "a b/c", ""):
            desk.post(NAME, {"percent": 80}, *([object_] if object_ else []), options=["--retain"])
        laptop.post(NAME, {"percent": 5}, "BAT0", options=["--retain"])
        wait_until(lambda: len(laptop.values(NAME)) == 4, "all are there")
        status, _, said = laptop.run("carillon", "bridge", "forget", "desk/anna", status=None)
        self.assertEqual(status, 2)
        self.assertIn("online", said)
        status, _, said = laptop.run("carillon", "bridge", "forget", "laptop/bert", status=None)
        self.assertEqual(status, 2)
        self.assertIn("this host", said)
        self.assertEqual(laptop.run("carillon", "bridge", "forget", "desk", status=None)[0], 1)
        desk.bridge.stop()
        laptop.wait_value(HOST, "desk/anna", {"host": "desk", "user": "anna", "online": False})
        self.assertIn("4 retained messages of desk/anna removed", laptop.run("carillon", "bridge", "forget", "desk/anna"))
        self.assertEqual(lab.broker.retained("sensor", f"{ORIGIN}/#"), {})
        wait_until(lambda: [each["object"] for each in laptop.values(NAME)] == ["BAT0"], "its own is left")
        laptop.wait_value(HOST, "desk/anna", None)
        self.assertEqual(laptop.status()["hosts"], [])
        # It was not gone for good.
        desk.start_bridge()
        wait_until(lambda: len(laptop.values(NAME)) == 4, "all are there again")

    def test_where_the_broker_allows_it_to_nobody(self):
        _, desk, laptop = self.pair()
        self.observe(laptop, NAME)
        desk.post(NAME, {"percent": 80}, options=["--retain"])
        wait_until(lambda: len(laptop.values(NAME)) == 1, "the broker has it")
        desk.bridge.stop()
        laptop.wait_value(HOST, "desk/anna", {"host": "desk", "user": "anna", "online": False})
        status, printed, said = laptop.run("carillon", "bridge", "forget", "desk/anna", status=None)
        self.assertEqual((status, printed.strip()), (2, "0 retained messages of desk/anna removed"))
        self.assertRegex(said, "refused to remove 2: not authori[sz]ed")


if __name__ == "__main__":
    unittest.main()
