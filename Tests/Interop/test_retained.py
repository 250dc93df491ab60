# SPDX-FileCopyrightText: The Carillon authors
# SPDX-License-Identifier: Apache-2.0
"""Values that are kept, and posts that wait for the exit of their poster, from Python (part R)."""

import os
import subprocess
import sys

import carillon_interop
import test_dbus_python
from carillon_interop import INVALID_OPTION, PATIENCE, GLib, bus_address, dbus, wait_until
from test_dbus_python import described

PRESENCE = os.path.join(os.path.dirname(__file__), "..", "..", "Examples", "python", "presence.py")
RETAIN = {"retain": dbus.Boolean(True, variant_level=1)}
AT_EXIT = {"posting-style": dbus.String("at-exit", variant_level=1)}


class TestCase(test_dbus_python.TestCase):
    def tearDown(self):
        self.control.call("RemoveRetained", GLib.Variant("(ss)", ("", "")))
        super().tearDown()

    def values(self, object=""):
        """What is kept of the test's name: object, user_info and details of each."""
        return [each[1:] for each in self.control.call("Get", GLib.Variant("(ss)", (self.name, object))).unpack()[0]]


class Values(TestCase):
    """R1, R2 in dbus-python."""

    def test_an_observer_gets_what_there_is(self):
        poster, late = self.python_client(), self.python_client()
        for percent in (80, 79):
            self.assertEqual(poster.post(self.name, "BAT0", {"percent": dbus.Int32(percent)}, RETAIN), 0)
        ((object_, user_info, details),) = self.values()
        self.assertEqual((object_, user_info, details["poster"]), ("BAT0", {"percent": 79}, poster.unique_name))
        late.add_observer(self.name, "", {"retained": True})
        poster.post(self.name, "BAT0", {"percent": dbus.Int32(78)})
        got = late.settle(poster)
        self.assertEqual([described(each.user_info["percent"]) for each in got], ["Int32+(79)", "Int32+(78)"])
        self.assertEqual(got[0].serial, details["serial"])
        self.assertEqual(poster.call("RemoveRetained", "ss", self.name, "BAT0"), 1)
        self.assertEqual(poster.call("Get", "ss", self.name, "").signature, "(ssa{sv}a{sv})")

    def test_values_of_several_origins(self):
        """G3: what comes from elsewhere is beside what is of this session, and is removed by where it is from."""
        bridge = self.python_client()
        origins = ({}, {"host": "alpha"}, {"host": "alpha", "user": "anna"}, {"user": "anna"})
        for number, origin in enumerate(origins * 2):
            bridge.post(self.name, "x", {"n": dbus.Int32(number)}, {"retain": True, **origin})
        kept = [
            (user_info["n"], {key: details[key] for key in ("host", "user") if key in details})
            for _, user_info, details in self.values("x")
        ]
        self.assertEqual(kept, [(number + 4, origin) for number, origin in enumerate(origins)])
        for arguments, removed in (
            (("beta", "", self.name, ""), 0),
            (("alpha", "", self.name, "y"), 0),
            (("alpha", "", self.name, "x"), 1),
            (("", "", self.name, ""), 0),
            (("", "", self.name, "x"), 1),
            (("alpha", "anna", "", "x"), 0),
            (("alpha", "anna", self.name, "x"), 1),
        ):
            with self.subTest(arguments):
                self.assertEqual(bridge.call("RemoveRetainedFrom", "ssss", *arguments), removed)
        self.assertEqual([details["user"] for _, _, details in self.values()], ["anna"])
        self.assert_refused_by_name(
            INVALID_OPTION, bridge.call, "RemoveRetainedFrom", "ssss", "h" * 256, "", self.name, ""
        )

    def test_options_that_exclude_each_other(self):
        poster = self.python_client()
        for options in (
            {"while-connected": True},
            {"retain": True, "while-connected": True, "posting-style": "at-exit"},
            {"retain": True, "expires-after": dbus.UInt32(0)},
            {"retain": True, "expires-after": dbus.Int32(-1)},
            {"retain": True, "expires-after": 1.0},
        ):
            with self.subTest(options):
                self.assert_refused_by_name(INVALID_OPTION, poster.post, self.name, "", None, options)


class LastWill(TestCase):
    """R1, R4: what becomes of what a program leaves behind."""

    def setUp(self):
        super().setUp()
        self.observer = self.client()
        self.observer.add_observer(self.name + ".Lost")
        environment = os.environ | {"DBUS_SESSION_BUS_ADDRESS": bus_address()}
        self.program = subprocess.Popen(
            [sys.executable, "-B", PRESENCE, self.name, "me"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
        )
        self.addCleanup(self.program.stdout.close)
        self.addCleanup(self.program.stdin.close)
        self.addCleanup(self.program.wait)
        self.addCleanup(self.program.kill)
        self.assertEqual(self.program.stdout.readline(), b"here\n")
        ((_, _, details),) = self.values("me")
        self.poster = details["poster"]

    def test_presence_and_last_will_of_a_killed_program(self):
        self.assertEqual(self.observer.settle(self.control), [])
        self.program.kill()
        (will,) = self.observer.wait_for(2)[1:]
        self.assertEqual((will.name, will.object, will.poster), (self.name + ".Lost", "me", self.poster))
        self.assertEqual(self.values(), [])

    def test_a_program_that_ends_as_it_should(self):
        self.program.stdin.close()
        self.assertEqual(self.program.wait(PATIENCE), 0)
        wait_until(lambda: self.values() == [], "the value goes with its poster")
        self.assertEqual(self.observer.settle(self.control), [])

    def test_withdraw_posts(self):
        """R4 in dbus-python: one's own only, by name and object, and as many as are said."""
        self.observer.add_observer(self.name)
        poster, other = self.python_client(), self.python_client()
        for object_ in ("a", "b"):
            self.assertEqual(poster.post(self.name, object_, None, AT_EXIT), 0)
        self.assertEqual(other.call("WithdrawPosts", "ss", "", ""), 0)
        self.assertEqual(described(poster.call("WithdrawPosts", "ss", self.name, "a")), described(dbus.UInt32(1)))
        poster.close()
        wait_until(lambda: self.observer.notifications, "the one that was not taken back")
        self.assertEqual([each.object for each in self.observer.settle(self.control)], ["b"])


if __name__ == "__main__":
    carillon_interop.main()
