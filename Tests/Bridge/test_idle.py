#!/usr/bin/python3
# SPDX-FileCopyrightText: The Carillon authors
# SPDX-License-Identifier: Apache-2.0
"""A bridge with nothing to do does nothing, but to say from time to time that it is there."""

import os
import time
import unittest

from case import BridgeTest
from programs import wake_ups

SECONDS = 10 if os.environ.get("CARILLON_BRIDGE_SHORT") == "1" else 30


class Idle(BridgeTest):
    def settle(self, *pids):
        """Waits until four seconds have gone by without a wake-up: three after it has connected a bridge has heard what
        is its own at the broker."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            before = [wake_ups(pid) for pid in pids]
            time.sleep(4)
            if [wake_ups(pid) for pid in pids] == before:
                return
        self.fail("there is no rest")

    def test_no_wake_ups(self):
        _, desk, laptop = self.pair(settings={"Broker": {"keep-alive": 60}})
        observer = self.observe(laptop, "com.example.A")
        desk.post_many("com.example.A", range(100), options=["--retain"])
        observer.wait(100)
        pids = [host.bridge.pid for host in (desk, laptop)]
        self.settle(*pids)
        before = [wake_ups(pid) for pid in pids]
        time.sleep(SECONDS)
        counts = [wake_ups(pid) - start for pid, start in zip(pids, before)]
        # Four in the time of the keep-alive are those of libmosquitto's own clock, and one message and its answer.
        for count in counts:
            self.assertLessEqual(count, 2 + SECONDS * 8 // 60, counts)

    def test_no_wake_ups_without_a_broker(self):
        lab = self.lab()
        desk = lab.host("desk", export="*")
        lab.broker.kill()
        desk.wait_connected(False)
        before, began = wake_ups(desk.bridge.pid), time.monotonic()
        time.sleep(SECONDS)
        # It tries again, less and less often; each trial is some turns of the loop.
        self.assertLess(wake_ups(desk.bridge.pid) - before, 10 * (time.monotonic() - began))
        with open(f"/proc/{desk.bridge.pid}/schedstat", encoding="ascii") as file:
            self.assertLess(int(file.read().split()[0]) / 1e9, 5)

    def test_stopped_readers_cost_nothing(self):
        # Where the service is away the socket to the broker is not read, and must not turn the loop.
        _, desk, laptop = self.pair()
        self.observe(laptop, "com.example.A")
        laptop.service.freeze()
        desk.post_many("com.example.A", range(3000))
        time.sleep(2)
        before = wake_ups(laptop.bridge.pid), self.processor_time(laptop.bridge.pid)
        time.sleep(5)
        self.assertLess(self.processor_time(laptop.bridge.pid) - before[1], 0.5)
        laptop.service.thaw()

    @staticmethod
    def processor_time(pid):
        total = 0
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/schedstat", encoding="ascii") as file:
                total += int(file.read().split()[0])
        return total / 1e9


if __name__ == "__main__":
    unittest.main()
