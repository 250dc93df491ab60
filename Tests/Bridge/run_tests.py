#!/usr/bin/python3
# SPDX-FileCopyrightText: The Carillon authors
# SPDX-License-Identifier: Apache-2.0
"""run_tests.py [--list] [NAME …]: the tests of this directory, or those of these names; tools/test-bridge says which there
are. It prints a line for each, and why those failed that did."""

import faulthandler
import fnmatch
import glob
import os
import signal
import sys
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))

#: Seconds that one test may take. One that is still running then prints where, and all of it ends.
TEST_PATIENCE = 300


class Result(unittest.TextTestResult):
    def startTest(self, test):  # noqa: N802 (unittest's name)
        faulthandler.dump_traceback_later(TEST_PATIENCE, exit=True)
        self._began = time.monotonic()
        super().startTest(test)

    def stopTest(self, test):  # noqa: N802
        faulthandler.cancel_dump_traceback_later()
        super().stopTest(test)

    def addSuccess(self, test):  # noqa: N802
        unittest.TestResult.addSuccess(self, test)
        self.stream.writeln(f"ok, {time.monotonic() - self._began:.1f} s")
        self.stream.flush()

    def getDescription(self, test):  # noqa: N802
        return name_of(test)


def name_of(test):
    return test.id().removeprefix("test_")


def tests_of(suite):
    for each in suite:
        if isinstance(each, unittest.TestSuite):
            yield from tests_of(each)
        else:
            yield each


def is_named(test, names):
    """Whether a name is the test, or what it is in."""
    name = name_of(test)
    return not names or any(fnmatch.fnmatch(name, wanted) or fnmatch.fnmatch(name, f"{wanted}.*") for wanted in names)


def main(arguments):
    sys.path.insert(0, HERE)
    names = [name.removeprefix("test_").removesuffix(".py") for name in arguments if name != "--list"]
    loader = unittest.TestLoader()
    suite = unittest.TestSuite()
    for path in sorted(glob.glob(f"{HERE}/test_*.py")):
        suite.addTests(loader.loadTestsFromName(os.path.basename(path).removesuffix(".py")))
    chosen = [test for test in tests_of(suite) if is_named(test, names)]
    if loader.errors:
        print("\n".join(loader.errors), file=sys.stderr)
        return 1
    for name in names:
        if not any(is_named(test, [name]) for test in chosen):
            print(f"test-bridge: no test is called {name!r}, see --list; try --help", file=sys.stderr)
            return 2
    if "--list" in arguments:
        print("\n".join(name_of(test) for test in chosen))
        return 0
    # unittest takes any other exception for an error of the test, and goes on.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    kind = os.environ.get("CARILLON_LAB_NETWORK", "loopback")
    print(f"{len(chosen)} tests, on {'network namespaces' if kind == 'namespaces' else 'addresses of loopback'}", flush=True)
    runner = unittest.TextTestRunner(stream=sys.stdout, verbosity=2, resultclass=Result)
    return 0 if runner.run(unittest.TestSuite(chosen)).wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
