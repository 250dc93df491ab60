#!/usr/bin/python3
# SPDX-FileCopyrightText: The Carillon authors
# SPDX-License-Identifier: Apache-2.0
"""What happens when something on the way stops, is cut or is killed: nothing is lost, or it is announced."""

import signal
import time
import unittest

from broker import SAVED
from case import QUICK, BridgeTest, long, lost, notifications
from host import LOST

NAME = "com.example.Count"


class Brokers(BridgeTest):
    def test_killed_and_restarted(self):
        lab, desk, laptop = self.pair(lab=self.lab(settings=SAVED))
        observer = self.observe(laptop, NAME)
        desk.post_many(NAME, range(10))
        observer.wait(10)
        lab.broker.wait_saved()
        lab.broker.kill()
        desk.wait_connected(False)
        desk.post_many(NAME, range(10, 300))
        lab.broker.start()
        observer.wait(300)
        desk.post(NAME, {"n": 300})
        observer.wait(301)
        self.assertEqual(observer.numbers, list(range(301)))
        self.assertEqual((desk.status()["lost-out"], laptop.status()["lost-in"]), (0, 0))

    @long
    def test_killed_under_load(self):
        lab, desk, laptop = self.pair(lab=self.lab(settings=SAVED))
        observer, losses = self.observe(laptop, NAME), laptop.observe(LOST)
        poster = desk.poster(NAME)
        for turn in range(4):
            poster.send("".join(f'{{"n": {turn * 500 + number}}}\n' for number in range(500)))
            if turn < 3:
                observer.wait(len(observer.numbers) + 20)
                lab.broker.kill()
                time.sleep(0.5)
                lab.broker.start()
                desk.wait_connected()
                laptop.wait_connected()
        poster.close_input()
        poster.wait()
        # What the broker had acknowledged and not yet handed on is gone with it, and no bridge can bring it back.
        observer.wait_for(lambda each: each["userInfo"]["n"] == 1999, "the last")
        losses.wait_until(lambda: lost(losses, NAME) >= 2000 - len(observer.numbers), "of what is missing",
                          lambda: f"{2000 - len(observer.numbers)} are missing, {lost(losses, NAME)} announced")  # fmt: skip
        self.assert_ordered(observer.numbers)
        self.assertEqual(lost(losses, NAME), 2000 - len(observer.numbers))

    def test_stopped_for_a_while(self):
        lab, desk, laptop = self.pair()
        observer = self.observe(laptop, NAME)
        lab.broker.freeze()
        desk.post_many(NAME, range(1000))
        time.sleep(3)
        lab.broker.thaw()
        observer.wait(1000)
        self.assertEqual(observer.numbers, list(range(1000)))

    @long
    def test_stopped_for_longer_than_the_keep_alive(self):
        lab, desk, laptop = self.pair(settings=QUICK)
        observer = self.observe(laptop, NAME)
        lab.broker.freeze()
        desk.post_many(NAME, range(1000))
        desk.wait_connected(False)
        lab.broker.thaw()
        observer.wait(1000)
        self.assertEqual(observer.numbers, list(range(1000)))


class Cables(BridgeTest):
    def cut(self, who, settings, seconds):
        lab, desk, laptop = self.pair(settings=settings)
        observer, losses = self.observe(laptop, NAME), laptop.observe(LOST)
        desk.post(NAME, {"n": 0})
        observer.wait(1)
        host = {"desk": desk, "laptop": laptop}[who]
        host.pull_cable()
        desk.post_many(NAME, range(1, 2001))
        time.sleep(seconds)
        host.put_cable_back()
        observer.wait(2001, seconds=120)
        desk.post(NAME, {"n": 2001})
        observer.wait(2002)
        self.assertEqual(observer.numbers, list(range(2002)))
        self.assertEqual((desk.status()["lost-out"], laptop.status()["lost-in"]), (0, 0))
        self.assertEqual(losses.notifications, [])

    def test_the_posters_for_a_moment(self):
        self.cut("desk", None, 2)

    def test_the_observers_for_a_moment(self):
        self.cut("laptop", None, 2)

    @long
    def test_the_posters_for_longer_than_the_keep_alive(self):
        self.cut("desk", QUICK, 12)

    @long
    def test_the_observers_for_longer_than_the_keep_alive(self):
        self.cut("laptop", QUICK, 12)

    def test_a_queue_that_is_full_is_announced_on_both_sides(self):
        _, desk, laptop = self.pair(settings={"Limits": {"queue": 100}})
        observer = self.observe(laptop, NAME)
        here, there = desk.observe(LOST), laptop.observe(LOST)
        desk.post(NAME, {"n": 0})
        observer.wait(1)
        desk.pull_cable()
        desk.post_many(NAME, range(1, 2001))
        desk.wait_status(lambda status: status["lost-out"] > 0, "that something was lost")
        desk.put_cable_back()
        observer.wait_for(lambda each: each["userInfo"]["n"] == 2000, "the last")
        missing = 2001 - len(observer.numbers)
        self.assertGreater(missing, 1700)
        self.assert_ordered(observer.numbers)
        for losses in (here, there):
            losses.wait_until(lambda: lost(losses, NAME) >= missing, "of all that is missing",
                              lambda: f"{lost(losses, NAME)} of {missing} announced")  # fmt: skip
            self.assertEqual(lost(losses, NAME), missing)
        self.assertEqual({each["userInfo"]["reason"] for each in here.notifications}, {"queue-full"})
        self.assertEqual({each["userInfo"]["reason"] for each in there.notifications}, {"missing"})
        for each in there.notifications:
            self.assertEqual((each["userInfo"]["host"], each["userInfo"]["user"]), ("desk", "anna"))
        self.assertEqual(desk.status()["lost-out"], missing)
        self.assertEqual(laptop.status()["lost-in"], missing)

    def test_the_brokers_own_limit_is_announced(self):
        lab, desk, laptop = self.pair(lab=self.lab(settings="max_queued_messages 100\n"))
        observer, losses = self.observe(laptop, NAME), laptop.observe(LOST)
        desk.post(NAME, {"n": 0})
        observer.wait(1)
        laptop.bridge.freeze()
        desk.post_many(NAME, range(1, 2001))
        desk.wait_status(lambda status: status["exported"] >= 2001, "that all has gone")
        laptop.bridge.thaw()
        desk.post(NAME, {"n": 2001})
        observer.wait_for(lambda each: each["userInfo"]["n"] == 2001, "the last")
        missing = 2002 - len(observer.numbers)
        self.assertGreater(missing, 0, "mosquitto has lost nothing, so this tests nothing")
        self.assert_ordered(observer.numbers)
        losses.wait_until(lambda: lost(losses, NAME) >= missing, "of all that is missing",
                          lambda: f"{lost(losses, NAME)} of {missing} announced")  # fmt: skip
        self.assertEqual(lost(losses, NAME), missing)
        self.assertEqual({each["userInfo"]["reason"] for each in losses.notifications}, {"missing"})
        self.assertEqual(laptop.status()["lost-in"], missing)


class Receivers(BridgeTest):
    #: Posts without an answer that a bridge has at most. The service may die with them, and nobody then knows of them.
    WINDOW = 64

    def assert_all_told(self, observer, losses, count, deaths=1):
        """What has not arrived of so many was announced. More may be announced, within the window of each death: of a post
        without an answer the bridge does not know whether it was made."""
        self.assert_ordered(observer.numbers)
        missing = count - len(observer.numbers)
        losses.wait_until(lambda: lost(losses, NAME) >= missing, "of all that is missing",
                          lambda: f"{missing} are missing, {lost(losses, NAME)} announced")  # fmt: skip
        self.assertLessEqual(lost(losses, NAME), deaths * self.WINDOW)
        self.assertLessEqual({each["userInfo"]["reason"] for each in losses.notifications}, {"uncertain"})

    def test_the_service_is_killed_and_restarted(self):
        _, desk, laptop = self.pair()
        observer, losses = self.observe(laptop, NAME), laptop.observe(LOST)
        desk.post_many(NAME, range(10))
        observer.wait(10)
        laptop.service.kill()
        # The first of them may come to the bridge before the bus has told it that the service is gone.
        desk.post_many(NAME, range(10, 300))
        time.sleep(1)
        laptop.start_service()
        desk.post(NAME, {"n": 300})
        observer.wait_for(lambda each: each["userInfo"]["n"] == 300, "the last")
        self.assert_all_told(observer, losses, 301)

    @long
    def test_the_service_stays_away(self):
        lab, desk, laptop = self.pair()
        observer = self.observe(laptop, NAME)
        desk.post_many(NAME, range(10))
        observer.wait(10)
        laptop.service.kill()
        # Then it is the broker that keeps what comes.
        laptop.wait_connected(False)
        desk.post_many(NAME, range(10, 1000))
        laptop.start_service()
        observer.wait(1000)
        self.assertEqual(observer.numbers, list(range(1000)))

    @long
    def test_the_service_is_killed_under_load(self):
        _, desk, laptop = self.pair()
        observer, losses = self.observe(laptop, NAME), laptop.observe(LOST)
        poster = desk.poster(NAME)
        for turn in range(4):
            poster.send("".join(f'{{"n": {turn * 500 + number}}}\n' for number in range(500)))
            if turn < 3:
                observer.wait(len(observer.numbers) + 20)
                laptop.service.kill()
                laptop.start_service()
        poster.close_input()
        poster.wait()
        observer.wait_for(lambda each: each["userInfo"]["n"] == 1999, "the last")
        # The order of the channel and the bus, and that of the queues on disk, are those of the service's own tests.
        self.assert_all_told(observer, losses, 2000, deaths=3)

    def test_the_bridge_is_away_for_a_while(self):
        for number in (signal.SIGTERM, signal.SIGKILL):
            with self.subTest(number.name):
                lab, desk, laptop = self.pair()
                observer = self.observe(laptop, NAME)
                desk.post_many(NAME, range(10))
                observer.wait(10)
                desk.wait_status(lambda status: status["queued"] + status["in-flight"] == 0, "that all has gone")
                laptop.bridge.stop(number)
                desk.post_many(NAME, range(10, 300))
                desk.wait_status(lambda status: status["exported"] >= 300, "that all has gone")
                laptop.start_bridge()
                observer.wait(300)
                desk.post(NAME, {"n": 300})
                observer.wait(301)
                self.assertEqual(observer.numbers, list(range(301)))
                lab.close()

    def test_an_observer_that_does_not_read(self):
        _, desk, laptop = self.pair()
        observer = self.observe(laptop, NAME)
        stopped = laptop.observe(NAME)
        stopped.program.freeze()
        desk.post_many(NAME, range(2000))
        observer.wait(2000)
        self.assertEqual(observer.numbers, list(range(2000)))
        stopped.program.thaw()
        stopped.wait(2000)
        self.assertEqual(stopped.numbers, list(range(2000)))


class Senders(BridgeTest):
    def test_the_service_is_killed_and_restarted(self):
        _, desk, laptop = self.pair()
        observer = self.observe(laptop, NAME)
        desk.post_many(NAME, range(10))
        observer.wait(10)
        desk.service.kill()
        desk.start_service()
        # The bridge registers again; behind that, everything goes again.
        desk.post(NAME, {"n": 10})
        observer.wait(11)
        desk.post_many(NAME, range(11, 100))
        observer.wait(100)
        self.assertEqual(observer.numbers, list(range(100)))

    def test_the_bridge_is_killed(self):
        _, desk, laptop = self.pair()
        observer, losses = self.observe(laptop, NAME), laptop.observe(LOST)
        desk.post_many(NAME, range(10))
        observer.wait(10)
        desk.restart_bridge(signal.SIGKILL)
        # A new run counts from the beginning, which is no hole.
        desk.post_many(NAME, range(10, 100))
        observer.wait(100)
        self.assertEqual(observer.numbers, list(range(100)))
        self.assertEqual(losses.notifications, [])

    def test_what_waits_goes_after_a_restart(self):
        lab, desk, laptop = self.pair()
        observer = self.observe(laptop, NAME)
        lab.broker.freeze()
        desk.post_many(NAME, range(500))
        desk.wait_status(lambda status: status["queued"] + status["in-flight"] >= 500, "that all of it waits")
        desk.bridge.stop()
        lab.broker.thaw()
        desk.start_bridge()
        desk.post(NAME, {"n": 500})
        observer.wait_for(lambda each: each["userInfo"]["n"] == 500, "the last")
        self.assertEqual(observer.numbers, list(range(501)))

    def test_what_waits_does_not_go_to_another_realm(self):
        lab, desk, laptop = self.pair()
        observer = self.observe(laptop, NAME)
        lab.broker.stop()
        desk.wait_connected(False)
        desk.post_many(NAME, range(100))
        desk.wait_status(lambda status: status["queued"] == 100, "that all of it waits")
        desk.bridge.stop()
        losses = desk.observe(LOST)
        desk.settings["Bridge"]["realm"] = "office"
        desk.write_settings()
        lab.broker.start()
        laptop.wait_connected()
        laptop.wait_subscribed(notifications(NAME))
        desk.start_bridge()
        losses.wait_for(lambda each: each["userInfo"]["reason"] == "reconfigured", "what is lost")
        self.assertEqual(lost(losses, NAME), 100)
        # Behind what would have come.
        desk.post(NAME, {"n": 100})
        desk.wait_status(lambda status: status["exported"] == 1 and status["queued"] + status["in-flight"] == 0, "that it is out")
        lamp = lab.host("lamp", export="com.example.*")
        lamp.post(NAME, {"n": 101})
        observer.wait_for(lambda each: each["userInfo"]["n"] == 101, "another host's")
        self.assertEqual(observer.numbers, [101])
        self.assertEqual(lab.broker.retained("sensor", "carillon/1/office/desk/+/status"), {}, "names of the old realm")


if __name__ == "__main__":
    unittest.main()
