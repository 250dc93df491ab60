#!/usr/bin/python3
# SPDX-FileCopyrightText: The Carillon authors
# SPDX-License-Identifier: Apache-2.0
"""Nothing goes round: three hosts that all send and take the same names, and messages that have come too far."""

import unittest

from case import BridgeTest

NAME = "com.example.Ding"


class Loops(BridgeTest):
    def test_three_hosts_that_send_and_take_the_same(self):
        lab = self.lab()
        listener = lab.broker.listen("sensor", "carillon/#")
        hosts = [lab.host(name, export="com.example.*", imports="com.example.*") for name in ("desk", "laptop", "tablet")]
        observers = [self.observe(host, NAME) for host in hosts]
        for host in hosts:
            host.post_many(NAME, range(50), object_=host.name)
        hosts[0].post(NAME, {"n": 50}, "value", options=["--retain"])
        for observer in observers:
            observer.wait(151)
        # A round trip of each, behind which whatever goes round would have come.
        for host in hosts:
            host.post(NAME, {"n": 99}, host.name)
        for observer in observers:
            observer.wait(154)
            for host in hosts:
                numbers = [each["userInfo"]["n"] for each in observer.notifications if each["object"] == host.name]
                self.assertEqual(numbers, [*range(50), 99])
        self.assertEqual([len(observer.notifications) for observer in observers], [154] * 3)
        self.assertEqual(len(listener.posts(154)), 154)
        for host in hosts:
            self.assertEqual((host.status()["exported"], host.status()["duplicates"]), (51 + (host is hosts[0]), 0))

    def test_what_others_brought_does_not_go_out(self):
        lab = self.lab()
        listener = lab.broker.listen("sensor", "carillon/#")
        desk = lab.host("desk", export="*")
        post = ("org.carillon.NotificationCenter1.Post", NAME, "")
        where = {"destination": "org.carillon.NotificationCenter1", "path": "/org/carillon/NotificationCenter1"}
        for details in ("{'host': <'elsewhere'>}", "{'user': <'carl'>}", "{'host': <'elsewhere'>, 'user': <'carl'>}"):
            self.assertIsNotNone(desk.call(*post, "{'n': <0>}", details, **where), getattr(desk, "last_error", ""))
        desk.post(NAME, {"n": 1})
        self.assertEqual([message.json for message in listener.posts(1)], [{"n": 1}])

    def test_ones_own_does_not_come_back(self):
        lab = self.lab()
        desk = lab.host("desk", export="com.example.*", imports="com.example.*")
        laptop = lab.host("laptop", imports="com.example.*")
        mine, theirs = self.observe(desk, NAME), self.observe(laptop, NAME)
        # By another client of the same host, so that it is not the broker that keeps it away.
        lab.broker.publish("desk", "carillon/1/home/desk/anna/n/com/example/Ding", '{"n": 1}')
        lab.broker.publish("desk", "carillon/1/home/desk/carl/n/com/example/Ding", '{"n": 2}')
        theirs.wait(2)
        mine.wait(1)
        self.assertEqual(mine.numbers, [2])

    def test_hops(self):
        lab = self.lab()
        laptop = lab.host("laptop", imports="com.example.*")
        observer = self.observe(laptop, NAME)
        topic = "carillon/1/home/sensor/any/n/com/example/Ding"
        for number, hops in enumerate(("5", "1000000000000000000000", "4", "1")):
            lab.broker.publish("sensor", topic, f'{{"n": {number}}}', properties=[("hops", hops)])
        observer.wait(2)
        self.assertEqual(observer.numbers, [2, 3])


if __name__ == "__main__":
    unittest.main()
