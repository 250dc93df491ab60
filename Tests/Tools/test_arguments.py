#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of the arguments of the scripts in tools: usage, wrong options and values, and the directory of the caller.

Nothing is installed, built or started: the programs that would do it are replaced by some that leave a note."""

import concurrent.futures
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOLS = ROOT / "tools"

#: Scripts that are only sourced.
LIBRARIES = {"arguments", "headless-desktop", "lanes"}
#: Scripts whose other options are those of a program that they run.
PASSING = {"run-swift-test"}
#: Seconds of processor time for each process of a call, and of real time for a call on a busy machine. A build takes longer.
LIMIT, PATIENCE = 5, 120
#: Programs that must not be called before the arguments are known to be good.
FORBIDDEN = ("swift", "swiftc", "apt-get", "sudo", "meson", "dbus-daemon", "dbus-run-session", "unshare", "cc", "c++")
#: The environment variables that change what a tool does.
VARIABLES = ("CARILLON_BIN_DIR", "CARILLON_DOCS_LIBRARIES", "CARILLON_TRY_INSIDE", "TMPDIR")

#: Wrong arguments of each tool, and a part of the message.
WRONG = {
    "bench": [
        ("--only", "--only"), ("--only nothing", "throughput"), ("--ways nothing", "nothing"), ("--rounds 0", "--rounds"),
        ("--json /nowhere/file", "/nowhere/file"), ("--binaries /nowhere", "/nowhere"), ("--binaries .", "carillond"),
        ("--draw --nonsense", "--nonsense"), ("--counts --pace nothing", "window"), ("--counts --posts x", "--posts"),
        ("--bridge 1", "2 to 9999"), ("--bridge --rest x", "--rest"), ("--short --report", "--report"),
        ("--parse", "--parse"), ("--short --draw", "--draw"),
    ],
    "bridge-lab": [
        ("", "demo shell run"), ("nonsense", "demo shell run"), ("demo --limit x", "--limit"), ("run", "command"),
        ("demo --binaries .", "carillond"), ("shell a/b", "a/b"), ("demo more", "more"),
    ],
    "check-prose": [("nonsense", "nonsense"), ("--nonsense", "--nonsense"), ("LICENSE", "LICENSE")],
    "chaos": [
        ("--minutes", "--minutes"), ("--minutes x", "x"), ("--bus nonsense", "dbus-broker"), ("--only nobody", "visitors"),
        ("--binaries .", "carillond"), ("--kill-every -1", "--kill-every"), ("--scale 0", "--scale"),
        ("--short --seed 2", "--seed"), ("nonsense", "nonsense"),
    ],
    "docs": [("README.md", "README.md"), ("somewhere else", "else")],
    "fuzz": [
        ("x", "SECONDS"), ("0", "SECONDS"), ("1 fuzz-nothing", "fuzz-dispatch"), ("--merge 1 fuzz-nothing", "fuzz-bridge"),
    ],
    "leave-nothing": [("--nonsense sh", "--nonsense"), ("", "COMMAND")],
    "mutants": [
        ("--numbers 99999999", "99999999"), ("--numbers x", "--numbers"), ("--list --only Nothing", "Nothing"),
        ("--least 101", "--least"), ("--sample 0", "--sample"), ("--jobs", "--jobs"), ("--seed x", "--seed"),
        ("more", "more"),
    ],
    "record-terminal": [
        ("--binaries .", "carillon"), ("--output /nowhere/x.svg", "/nowhere"), ("--check --output x", "--output"),
    ],
    "run-swift-test": [("--limit", "--limit"), ("--limit x", "x"), ("--limit 0", "--limit"), ("--xunit-output x", "--xunit-output")],
    "screenshots": [("nonsense", "x11 sway"), ("--output README.md", "README.md"), ("--output", "--output")],
    "setup": [("more", "more")],
    "simulate": [
        ("--minutes", "--minutes"), ("--minutes x", "--minutes"), ("--binary bad", "bad"), ("--planted 0", "--planted"),
        ("--planted 3 nothing", "reused-serial"), ("--seed abc", "abc"), ("--seed 18446744073709551616", "--seed"),
        ("--seed 1 --keep abc", "--keep"), ("--keep 1", "--seed"), ("--runs -5", "-5"), ("--faults much", "--faults"),
        ("--sabotage nothing", "lost-signals"), ("--costs --debug", "--debug"), ("--seed 1 --runs 3", "--runs"),
        ("--first 3", "--first"), ("--planted --seed 3", "--seed"), ("nonsense", "nonsense"),
        ("--realm --faults 2", "--faults"), ("--realm --planted --seed 1", "--seed"), ("--realm --keep 1", "--seed"),
    ],
    "swift-build-for-meson": [("sh . scratch", "PROGRAM"), ("sh /nowhere scratch 1 carillon", "/nowhere")],
    "swift-sdk-for-meson": [("sh .", "VERSION"), ("nothing . . 1", "nothing")],
    "test-bridge": [
        ("nonsense", "loss"), ("--limit", "--limit"), ("--limit x", "--limit"), ("--binaries .", "carillon"),
        ("--list nonsense", "loss"),
    ],
    "test-distributions": [
        ("nonsense", "trixie"), ("--packages", "--packages"), ("--packages README.md", "README.md"), ("--long", "--long"),
    ],
    "test-docs": [("/nowhere", "/nowhere"), (". README.md", "README.md"), (". pictures more", "more")],
    "test-examples": [("nonsense", "python/gdbus"), ("--bus nonsense", "dbus-broker"), ("--binaries .", "carillon")],
    "test-guest": [("more", "more"), ("--binaries /nowhere", "/nowhere"), ("--binaries", "--binaries")],
    "test-install": [("--build", "--build"), ("--build .", "Meson"), ("more", "more")],
    "test": [
        ("--repeat", "--repeat"), ("--busy x", "x"), ("--limit 0", "--limit"), ("-Xswiftc -g", "-Xswiftc"), ("more", "more"),
    ],
    "test-only": [
        ("", "MainLoopTests"), ("--quick", "TARGET"), ("Nothing", "MainLoopTests"), ("--limit x", "--limit"),
        ("--filter Flow", "--filter"), ("TestSupport", "TestSupport"),
    ],
    "test-packages": [
        ("--unoptimised --keep x", "--unoptimised"), ("--docs /nowhere", "/nowhere"), ("--keep README.md", "README.md"),
        ("--keep", "--keep"),
    ],
    "test-shown-commands": [("nonsense.md", "nonsense.md"), ("--binaries .", "carillon")],
    "test-threads": [("nothing", "nothing"), ("StressTests", "StressTests"), ("--filter StressTests", "--filter")],
    "try": [("more", "more")],
    "try-activity": [("", "kwin"), ("nonsense", "kwin"), ("x11 sway", "sway")],
}


def scripts():
    """The names of those that can be called."""
    return sorted(path.name for path in TOOLS.iterdir() if path.name not in LIBRARIES and path.is_file())


def text_of(name):
    return (TOOLS / name).read_text(encoding="utf-8")


def usage_of(name):
    """The comment at the head of a script, without the line of the licence."""
    lines = []
    for line in text_of(name).splitlines()[1:]:
        if not line.startswith("#"):
            break
        if not line.startswith("# SPDX-"):
            lines.append(line.removeprefix("#").removeprefix(" "))
    return "\n".join(lines) + "\n"


class Arguments(unittest.TestCase):
    def setUp(self):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="carillon-arguments-"))
        self.addCleanup(shutil.rmtree, self.directory)
        programs = self.directory / "programs"
        programs.mkdir()
        for name in FORBIDDEN:
            path = programs / name
            path.write_text(f'#!/bin/sh\necho "{name} $*" >>"$CALLED_PROGRAMS"\nexit 1\n', encoding="utf-8")
            path.chmod(0o755)
        # The directory of the calls.
        self.caller = self.directory / "caller"
        self.caller.mkdir()
        (self.caller / "README.md").touch()
        self.environment = {key: value for key, value in os.environ.items() if key not in VARIABLES}
        self.environment["PATH"] = f"{programs}:{os.environ['PATH']}"

    def call(self, name, *arguments, script=None, directory=None, called="", **variables):
        with tempfile.NamedTemporaryFile("r", dir=self.directory, encoding="utf-8") as notes:
            result = subprocess.run(
                ["sh", "-c", f'ulimit -t {LIMIT}; exec "$@"', "sh", script or str(TOOLS / name), *arguments],
                cwd=directory or self.caller, env=self.environment | {"CALLED_PROGRAMS": notes.name} | variables,
                stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE, check=False,
            )
            notes = notes.read()
            self.assertTrue(called in notes if called else not notes, f"{name} {arguments} called: {notes}; {result}")
        return result

    def each(self, names, test):
        """Tests two tools at a time, each as a subtest."""
        with concurrent.futures.ThreadPoolExecutor(max_workers=2) as pool:
            for name, done in [(name, pool.submit(test, name)) for name in names]:
                with self.subTest(name):
                    done.result()

    def assert_refused(self, name, arguments, named, **rest):
        result = self.call(name, *arguments, **rest)
        what = f"{name} {arguments}: {result}"
        self.assertEqual(result.returncode, 2, what)
        self.assertEqual(result.stdout, "", what)
        self.assertEqual(len(result.stderr.splitlines()), 1, what)
        self.assertTrue(result.stderr.startswith(f"{name}: "), what)
        self.assertIn(named, result.stderr, what)
        self.assertIn("try --help", result.stderr, what)

    def assert_helps(self, name, **rest):
        result = self.call(name, "--help", **rest)
        self.assertEqual((result.returncode, result.stderr), (0, ""), result)
        self.assertEqual(result.stdout, usage_of(name))
        self.assertNotIn("SPDX", result.stdout)
        self.assertGreater(len(result.stdout.splitlines()), 2)

    def test_every_script_is_checked(self):
        self.assertEqual(set(WRONG) - set(scripts()), set())
        self.assertEqual(set(scripts()) - set(WRONG), set(), "wrong arguments of these are missing in WRONG")

    def test_help(self):
        self.each(scripts(), self.assert_helps)

    def test_unknown_options(self):
        self.each(set(scripts()) - PASSING, lambda name: self.assert_refused(name, ["--nonsense"], "--nonsense"))

    def test_wrong_arguments(self):
        def test(name):
            for arguments, named in WRONG[name]:
                self.assert_refused(name, arguments.split(), named)

        self.each(WRONG, test)

    def test_values_with_a_line_end_are_one_line(self):
        self.assert_refused("simulate", ["--runs", "1\n2"], "--runs")
        self.assert_refused("chaos", ["two\nlines"], "two")

    def test_symbolic_links_and_relative_paths(self):
        def test(name):
            link = self.directory / f"link-to-{name}"
            link.symlink_to(TOOLS / name)
            self.assert_helps(name, script=str(link))
            self.assert_helps(name, script=f"../{link.name}")
            self.assert_helps(name, script=os.path.relpath(TOOLS / name, self.caller))
            if name in WRONG:
                arguments, named = WRONG[name][-1]
                self.assert_refused(name, arguments.split(), named, script=f"../{link.name}")

        self.each(scripts(), test)

    def test_relative_calls_go_on(self):
        """Behind their arguments, and behind tools/setup, which are read in two directories."""
        # The last step of tools/setup.
        rest = {"directory": ROOT / "docs", "CARILLON_SKIP_PACKAGES": "1", "called": "swift --version"}
        self.call("test-only", "CBORTests", script="../tools/test-only", **rest)
        self.call("test", script="../tools/test", **rest)
        self.call("fuzz", "1", script="../tools/fuzz", **rest)

    def test_paths_are_those_of_the_caller(self):
        (self.caller / "mine").mkdir()
        result = self.call("test-docs", "mine")
        self.assertIn(f"{self.caller}/mine/index.html", result.stderr)
        self.assert_refused("simulate", ["--binary", "tools/simulate"], "tools/simulate")
        listing = self.call("test-examples", "--list", "python/gdbus")
        if listing.returncode != 77:  # without python3-gi
            self.assertEqual(listing.stdout, "python/gdbus\n", listing)

    def test_temporary_directory(self):
        for name, arguments in (("mutants", ["--list"]), ("fuzz", ["1"]), ("try", []), ("setup", []), ("docs", [])):
            with self.subTest(name):
                result = self.call(name, *arguments, TMPDIR="/nowhere")
                self.assertEqual(result.returncode, 2, result)
                self.assertEqual(result.stderr, f"{name}: TMPDIR is '/nowhere', and there is no such directory\n")

    def test_programs_of_the_environment(self):
        for name in ("record-terminal", "test-bridge", "test-shown-commands", "screenshots"):
            with self.subTest(name):
                self.assert_refused(name, [], "CARILLON_BIN_DIR", CARILLON_BIN_DIR="/nowhere")
        self.assert_refused("bridge-lab", ["demo"], "CARILLON_BIN_DIR", CARILLON_BIN_DIR="/nowhere")

    def test_numbers_of_mutants(self):
        all_places = self.call("mutants", "--list").stdout.splitlines()
        some = self.call("mutants", "--list", "--only", "HeldQueue").stdout.splitlines()
        self.assertGreater(len(some), 3)
        # The last line counts them. A number does not depend on --only.
        for line in some[:-1]:
            self.assertRegex(line, r"^[0-9]+ Sources/.*HeldQueue")
            self.assertIn(line, all_places)


if __name__ == "__main__":
    unittest.main()
