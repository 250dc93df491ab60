#!/usr/bin/python3
# SPDX-FileCopyrightText: The Carillon authors
# SPDX-License-Identifier: Apache-2.0
"""Two sessions of one machine that tell each other, each with a bridge: what one posts comes to the other once."""

import os
import pwd
import unittest

from case import BridgeTest
from programs import Program, wait_until

NAME = "com.example.Ding"
USER = pwd.getpwuid(os.getuid()).pw_name


class Sessions(BridgeTest):
    def sessions(self, imports):
        """The session of this user, and one that says it is bert's, of the same machine; and another machine."""
        lab = self.lab()
        address = f"unix:path={lab.directory}/system-bus"
        bus = Program(
            "system bus", ["dbus-daemon", "--session", "--nofork", "--nopidfile", "--print-address", f"--address={address}"],
            lab.environment(), os.path.join(lab.directory, "system-bus.log"))  # fmt: skip
        lab.programs.append(bus)
        bus.wait_for("unix:path=")
        first = lab.host(
            "desk", user=USER, export="com.example.*", service_settings="[Sessions]\nexport=com.example.*\n", system_bus=address)
        second = lab.host(
            "desk", user="bert", machine="desk", imports="com.example.*", service_settings=f"[Sessions]\n{imports}",
            system_bus=address)  # fmt: skip
        laptop = lab.host("laptop", user="carl", imports="com.example.*")
        second.run("gdbus", "wait", "--session", "--timeout", "20", "org.carillon.NotificationCenter1")
        return first, second, laptop

    def test_each_comes_once(self):
        first, second, laptop = self.sessions(f"import={os.getuid()}:com.example.*\n")
        observers = [self.observe(host, NAME) for host in (second, laptop)]
        self.wait_joined(first, second)
        first.post_many(NAME, range(50), options=["--all-sessions"])
        first.post_many(NAME, range(50, 100))
        for observer in observers:
            observer.wait(100)
        first.post(NAME, {"n": 100})
        for observer in observers:
            observer.wait(101)
            self.assertEqual(sorted(observer.numbers), [*range(101)])
        # The others come by the bridge alone, which says where they are from.
        hosts = {each["userInfo"]["n"]: each["details"].get("host") for each in observers[0].notifications}
        self.assertEqual({hosts[number] for number in range(50, 101)}, {"desk"})

    def test_while_the_session_is_away(self):
        """What was posted meanwhile, and waits at the broker, is not known from the session."""
        first, second, _ = self.sessions(f"import={os.getuid()}:com.example.*\n")
        observer = self.observe(second, NAME)
        self.wait_joined(first, second)
        first.post_many(NAME, range(10), options=["--all-sessions"])
        observer.wait(10)
        second.bridge.stop()
        second.service.stop()
        first.post_many(NAME, range(10, 40), options=["--all-sessions"])
        second.start_service()
        second.start_bridge()
        observer.wait(40)
        self.assertEqual(sorted(observer.numbers), [*range(40)])

    def test_what_the_session_does_not_take_comes_by_the_bridge(self):
        first, second, laptop = self.sessions(f"import={os.getuid()}:com.example.Other\n")
        observers = [self.observe(host, NAME) for host in (second, laptop)]
        self.wait_joined(first, second)
        first.post_many(NAME, range(50), options=["--all-sessions"])
        for observer in observers:
            observer.wait(50)
            self.assertEqual(observer.numbers, [*range(50)])

    def test_a_value_is_told_once_and_ends(self):
        names = f"{os.getuid()}:com.example.*"
        first, second, laptop = self.sessions(f"import={names}\nimport-retained={names}\n")
        observers = [self.observe(host, NAME) for host in (second, laptop)]
        self.wait_joined(first, second)
        first.post(NAME, {"n": 1}, "door", options=["--retain", "--all-sessions"])
        for observer in observers:
            observer.wait(1)
        first.post(NAME, {"n": 2}, "end")
        for observer in observers:
            observer.wait(2)
            self.assertEqual(observer.numbers, [1, 2])
        first.post(NAME, {"n": 3}, "door", options=["--retain", "--all-sessions"])
        for observer in observers:
            observer.wait(3)
        # A bridge that comes again is shown it by the broker again.
        second.restart_bridge()
        first.post(NAME, {"n": 4}, "end")
        for observer in observers:
            observer.wait(4)
            self.assertEqual(observer.numbers, [1, 2, 3, 4])
        # It is there by both ways, and as new by each.
        wait_until(lambda: [each["userInfo"]["n"] for each in second.values(NAME)] == [3, 3], lambda: second.values(NAME))
        first.run("carillon", "forget", NAME, "--object", "door")
        for host in (second, laptop):
            wait_until(lambda host=host: host.values(NAME) == [], lambda host=host: host.values(NAME))

    def wait_joined(self, first, second):
        """Waits until both services know of each other, and what the second takes."""

        def peers(host):
            answer = host.call(
                "org.freedesktop.DBus.Properties.Get", "org.carillon.NotificationCenter1", "Sessions",
                destination="org.carillon.NotificationCenter1", path="/org/carillon/NotificationCenter1")  # fmt: skip
            return answer[0]["peers"] if answer else []

        wait_until(lambda: any(peer["wants"] for peer in peers(first)) and peers(second), lambda: "the sessions know each other")


if __name__ == "__main__":
    unittest.main()
