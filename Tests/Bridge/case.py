# SPDX-FileCopyrightText: The Carillon authors
# SPDX-License-Identifier: Apache-2.0
"""What the tests of the bridge share."""

import os
import unittest

from host import LOST
from lab import Lab

#: A test that takes longer than some seconds, and is left out of the short form.
long = unittest.skipIf(os.environ.get("CARILLON_BRIDGE_SHORT") == "1", "left out of the short form")

#: A bridge that notices soon that nobody is there.
QUICK = {"Broker": {"keep-alive": 5}}


def notifications(name, realm="home"):
    """The topic filter by which a bridge asks for a name."""
    return f"carillon/1/{realm}/+/+/n/{name.replace('.', '/')}"


def values(name, realm="home"):
    """The one for those that are kept and have an object."""
    return f"carillon/1/{realm}/+/+/v/{name.replace('.', '/')}/+"


def lost(observer, name):
    """How many of a name an observer of LOST was told of."""
    return sum(each["userInfo"]["count"] for each in observer.notifications
               if each["name"] == LOST and each["userInfo"]["name"] == name)  # fmt: skip


class BridgeTest(unittest.TestCase):
    """Each test has a lab of its own. Of one that fails the logs are printed."""

    maxDiff = 4000

    def setUp(self):
        self._failed_before = self._failures()

    def _failures(self):
        result = self._outcome.result
        return len(result.failures) + len(result.errors)

    def lab(self, **options):
        lab = Lab(**options)
        self.addCleanup(lab.close)
        self.addCleanup(self._report, lab)
        return lab

    def _report(self, lab):
        if self._failures() > self._failed_before:
            print(f"\n=== {self.id()} failed. What was logged:\n{lab.logs()}", flush=True)

    def pair(self, exports="com.example.*", imports="com.example.*", lab=None, settings=None, receiver=None):
        """Two hosts: the first sends, the second receives."""
        lab = lab or self.lab()
        desk = lab.host("desk", export=exports, settings=settings)
        laptop = lab.host("laptop", user="bert", imports=imports, settings=receiver or settings)
        return lab, desk, laptop

    @staticmethod
    def observe(host, *names, **options):
        """An observer whose interest the broker knows. Names that nobody can import are waited for nowhere."""
        observer = host.observe(*names, **options)
        realm = host.settings["Bridge"]["realm"]
        host.wait_subscribed(
            *(notifications(name, realm) for name in names if not name.startswith("org.carillon.")))
        return observer

    def assert_origin(self, notification, host, user):
        details = notification["details"]
        self.assertEqual((details.get("host"), details.get("user")), (host, user), notification)

    def assert_ordered(self, numbers):
        """None twice, and none before an earlier one."""
        self.assertEqual(numbers, sorted(set(numbers)))
