#!/usr/bin/python3
# SPDX-FileCopyrightText: The Carillon authors
# SPDX-License-Identifier: Apache-2.0
"""What one host may have of what there is for all: many with a little each, and one that takes what it can."""

import json
import os
import signal
import threading
import time
import unittest

from case import BridgeTest, long
from host import HOST, LOST
from programs import wait_until

NAME = "com.example.Battery"


def online(host, user):
    text = json.dumps({"online": True, "protocol": 1, "run": f"run-{host}-{user}", "values": "1"})
    return {f"carillon/1/home/{host}/{user}/online": text}


def values(host, user, count, name="com/example/Battery"):
    return {f"carillon/1/home/{host}/{user}/v/{name}/{number}": json.dumps({"n": number}) for number in range(count)}


class Shares(BridgeTest):
    def wait_kept(self, host, count, seconds=90):
        wait_until(
            lambda: host.statistics()["retained"] >= count,
            lambda: f"{count} values are kept on {host.name}; it has {host.statistics()['retained']}, and its bridge says "
                    f"{host.status()}", seconds)  # fmt: skip

    @long
    def test_fifty_desktops(self):
        lab, desk, laptop = self.pair()
        for number in range(50):
            host = f"desk{number}"
            lab.broker.retain(host, online(host, "ann") | values(host, "ann", 400))
        observer = self.observe(laptop, NAME)
        self.wait_kept(laptop, 20_000)
        self.assertEqual(laptop.status()["refused"], 0)
        observer.wait(20_000)
        hosts = {each["details"]["host"] for each in observer.notifications}
        self.assertEqual(len(hosts), 50)
        before = len(observer.notifications)
        desk.post(NAME, {"percent": 7}, "own", options=["--retain"])
        observer.wait(before + 1)
        self.wait_kept(laptop, 20_001)

    @long
    def test_a_slow_receiver_beside_a_flood(self):
        """A broker that drops messages that it waits for an answer to sends nothing more until the next connection."""
        lab = self.lab(settings="max_queued_messages 1000\n")
        desk = lab.host("desk", export="com.example.*")
        laptop = lab.host("laptop", user="bert", imports="com.example.*")
        observer = laptop.observe("com.example.P", NAME, "com.example.F", LOST)
        lab.broker.retain("greedy", online("greedy", "eve"))
        time.sleep(2)
        over = threading.Event()

        def flood():
            posts = "".join(f'{{"f": {number}, "pad": "{200 * "y"}"}}\n' for number in range(3000))
            while not over.is_set():
                lab.broker.retain("greedy", values("greedy", "eve", 3000))
                lab.broker.publish("greedy", "carillon/1/home/greedy/eve/n/com/example/F", posts, lines=True)

        def freeze():
            while not over.is_set():
                for number, seconds in ((signal.SIGSTOP, 1.5), (signal.SIGCONT, 0.3)):
                    os.kill(laptop.bridge.pid, number)
                    time.sleep(seconds)

        threads = [threading.Thread(target=each) for each in (flood, freeze)]
        for thread in threads:
            thread.start()
        poster = desk.poster("com.example.P")
        for number in range(300):
            poster.send(f'{{"n": {number}}}\n')
            time.sleep(0.025)
        over.set()
        for thread in threads:
            thread.join()

        def accounted():
            arrived = [n for n in observer.numbers_of("desk") if n is not None]
            losses = [each["userInfo"] for each in observer.notifications if each["name"] == LOST]
            return arrived, sum(each["count"] for each in losses if each["host"] == "desk" and each["name"] == "com.example.P")

        # The last of a burst may be missing without a word until there is another one.
        number = 300
        deadline = time.monotonic() + 150
        while sum(map(lambda each: each if isinstance(each, int) else len(each), accounted())) < number:
            self.assertLess(time.monotonic(), deadline, f"{accounted()} of {number}; {laptop.status()}")
            poster.send(f'{{"n": {number}}}\n')
            number += 1
            time.sleep(5)
        arrived, _ = accounted()
        self.assertEqual(arrived, sorted(set(arrived)))
        self.assertGreaterEqual(laptop.bridge.text().count("connected to"), 2)

    @long
    def test_one_greedy_host(self):
        lab, desk, laptop = self.pair()
        desk.post(NAME, {"percent": 1}, "before", options=["--retain"])
        # Names and objects, users that are online, and what is no value.
        lab.broker.retain("greedy", values("greedy", "eve", 60_000) | values("greedy", "eve", 5_000, "com/example/Other"))
        users = {}
        for number in range(5_000):
            users |= online("greedy", f"user{number}")
        lab.broker.retain("greedy", users)
        lab.broker.retain("greedy", {f"carillon/1/home/greedy/eve/n/com/example/N{number}": "{}" for number in range(5_000)})
        observer = self.observe(laptop, NAME, "com.example.Other", HOST)
        observer.wait_for(lambda each: each["object"] == "before", "what the honest host has")
        desk.post(NAME, {"percent": 2}, "behind", options=["--retain"])
        desk.post_many(NAME, range(100))
        for name in ("before", "behind"):
            wait_until(lambda name=name: any(each["object"] == name for each in laptop.values(NAME)), lambda name=name: name)
        wait_until(
            lambda: len([n for n in observer.numbers_of("desk") if n is not None]) >= 100,
            lambda: f"100 of the desk; {len(observer.numbers_of('desk'))}; {laptop.status()}", 60)  # fmt: skip
        self.assertEqual([n for n in observer.numbers_of("desk") if n is not None], [*range(100)])
        self.assertTrue(any(each["host"] == "desk" and each["online"] for each in laptop.status()["hosts"]))
        # A third that comes later has its share as well.
        lab.broker.retain("late", online("late", "ann") | values("late", "ann", 400))
        wait_until(
            lambda: len([each for each in laptop.values(NAME) if each["details"].get("host") == "late"]) == 400,
            lambda: f"400 values of the host that came last; {laptop.status()}", 60)  # fmt: skip


if __name__ == "__main__":
    unittest.main()
