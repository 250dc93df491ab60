#!/usr/bin/python3
# SPDX-FileCopyrightText: The Carillon authors
# SPDX-License-Identifier: Apache-2.0
"""A bridge asks the broker only for what somebody here wants. The broker's log is the witness."""

import unittest

from case import BridgeTest, notifications, values
from programs import wait_until

NAME = "com.example.Wanted"


class Interest(BridgeTest):
    def wait_gone(self, lab, user, topic):
        wait_until(lambda: topic not in lab.broker.subscriptions(user),
                   lambda: f"{user} is no longer subscribed to {topic}; it is to {sorted(lab.broker.subscriptions(user))}")  # fmt: skip

    @staticmethod
    def wanted(lab, user):
        """The subscriptions to notifications and values, without those that ask for values once."""
        return {topic for topic in lab.broker.subscriptions(user)
                if topic.startswith("carillon/1/") and ("/n/" in topic or "/v/" in topic)}  # fmt: skip

    def test_no_observer_no_subscription(self):
        lab, desk, laptop = self.pair()
        self.assertEqual(self.wanted(lab, "laptop"), set())
        desk.post_many(NAME, range(10))
        desk.wait_status(lambda status: status["exported"] >= 10, "that all has gone")
        observer = self.observe(laptop, NAME)
        self.assertEqual(self.wanted(lab, "laptop"), {notifications(NAME), values(NAME)})
        self.assertEqual(laptop.status()["imported"], 0)
        desk.post(NAME, {"n": 10})
        observer.wait(1)
        self.assertEqual(observer.numbers, [10])
        observer.stop()
        self.wait_gone(lab, "laptop", notifications(NAME))
        self.wait_gone(lab, "laptop", values(NAME))
        self.assertEqual(self.wanted(lab, "laptop"), set())
        desk.post(NAME, {"n": 11})
        desk.wait_status(lambda status: status["exported"] >= 12, "that all has gone")
        # Behind that in the broker: what would have come has come when this has.
        again = self.observe(laptop, NAME)
        desk.post(NAME, {"n": 12})
        again.wait(1)
        self.assertEqual(again.numbers, [12])
        # It counts when the service has answered, and the observer may have it before that.
        laptop.wait_status(lambda status: status["imported"] >= 2, "that both came")
        self.assertEqual(laptop.status()["imported"], 2)

    def test_until_the_last_has_gone(self):
        lab, _, laptop = self.pair()
        first, second = self.observe(laptop, NAME), self.observe(laptop, NAME)
        other = self.observe(laptop, "com.example.Other")
        first.stop()
        other.stop()
        self.wait_gone(lab, "laptop", notifications("com.example.Other"))
        self.assertIn(notifications(NAME), lab.broker.subscriptions("laptop"))
        self.assertEqual(
            [change for change in lab.broker.changes if change[0] == "subscribe" and change[2] == notifications(NAME)],
            [("subscribe", lab.broker.ids["laptop"], notifications(NAME))])
        second.stop()
        self.wait_gone(lab, "laptop", notifications(NAME))

    def test_many_names_and_none_again(self):
        lab, desk, laptop = self.pair()
        names = [f"com.example.N{number}" for number in range(300)]
        observer = laptop.observe(*names)
        lab.broker.wait_subscribed("laptop", *(filter_(name) for name in names for filter_ in (notifications, values)))
        for name in (names[0], names[150], names[299]):
            desk.post(name)
        observer.wait(3)
        observer.stop()
        wait_until(lambda: not self.wanted(lab, "laptop"),
                   lambda: f"laptop is subscribed to nothing; it is to {sorted(self.wanted(lab, 'laptop'))}")  # fmt: skip

    def test_over_the_limit_of_subscriptions(self):
        lab = self.lab()
        settings = {"Limits": {"subscriptions": 20}}
        lab, desk, laptop = self.pair(lab=lab, imports="com.example.*", receiver=settings)
        names = [f"com.example.N{number}" for number in range(50)]
        observer = laptop.observe(*names)
        status = laptop.wait_status(lambda status: status["subscriptions"] > 0, "it is subscribed")
        # Either it takes the prefix for all of them, or it says that it can't have them all.
        for name in names:
            desk.post(name)
        desk.wait_status(lambda status: status["exported"] >= 50, "that all has gone")
        wait_until(lambda: len(observer.notifications) == 50 or "subscription" in laptop.bridge.text().lower(),
                   lambda: f"all arrive, or it is said; {len(observer.notifications)} did")  # fmt: skip
        self.assertLessEqual(status["subscriptions"], 20)
        self.assertLessEqual(len(self.wanted(lab, "laptop")), 20)

    def test_a_monitor_wants_nothing(self):
        lab, desk, laptop = self.pair()
        monitor = laptop.start("monitor", "carillon", "monitor", "--json")
        laptop.observe("com.example.Local")
        lab.broker.wait_subscribed("laptop", notifications("com.example.Local"))
        desk.post(NAME, {"n": 1})
        desk.wait_status(lambda status: status["exported"] >= 1, "that it has gone")
        self.assertEqual(self.wanted(lab, "laptop"), {notifications("com.example.Local"), values("com.example.Local")})
        self.assertNotIn(NAME, monitor.text())

    def test_after_the_broker_has_forgotten(self):
        # Without its file the broker knows of no session any more: the bridge says again what it wants.
        lab, desk, laptop = self.pair(lab=self.lab(settings="persistence false\n"))
        observer = self.observe(laptop, NAME)
        lab.broker.kill()
        lab.broker.filters.clear()
        lab.broker.start()
        lab.broker.wait_subscribed("laptop", notifications(NAME), values(NAME))
        desk.wait_connected()
        desk.post(NAME, {"n": 1})
        observer.wait(1)

    def test_after_the_service_has_been_restarted(self):
        lab, desk, laptop = self.pair()
        self.observe(laptop, NAME)
        laptop.service.kill()
        laptop.start_service()
        later = self.observe(laptop, "com.example.Later")
        desk.post("com.example.Later", {"n": 1})
        later.wait(1)
        self.assertIn(notifications(NAME), lab.broker.subscriptions("laptop"))


if __name__ == "__main__":
    unittest.main()
