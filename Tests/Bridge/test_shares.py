#!/usr/bin/python3
# SPDX-FileCopyrightText: The Carillon authors
# SPDX-License-Identifier: Apache-2.0
"""What one host may have of what there is for all: many with a little each."""

import json
import unittest

from case import BridgeTest, long
from programs import wait_until

NAME = "com.example.Battery"


def online(host, user):
    text = json.dumps({"online": True, "protocol": 1, "run": f"run-{host}-{user}", "values": "1"})
    return {f"carillon/1/home/{host}/{user}/online": text}


def values(host, user, count, name="com/example/Battery"):
    return {f"carillon/1/home/{host}/{user}/v/{name}/{number}": json.dumps({"n": number}) for number in range(count)}


class Shares(BridgeTest):
    def wait_kept(self, host, count, seconds=240):
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
        hosts = {each["details"]["host"] for each in observer.notifications}
        self.assertEqual(len(hosts), 50)
        before = len(observer.notifications)
        desk.post(NAME, {"percent": 7}, "own", options=["--retain"])
        observer.wait(before + 1)
        self.wait_kept(laptop, 20_001)


if __name__ == "__main__":
    unittest.main()
