# SPDX-License-Identifier: Apache-2.0
"""The program behind tools/test-examples, which says what it does."""

import argparse
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
EXAMPLES = os.path.join(ROOT, "Examples")
sys.path.insert(0, os.path.join(ROOT, "Tests", "Chaos"))

try:
    import gi

    gi.require_version("Gio", "2.0")
except (ImportError, ValueError) as problem:
    print(f"cannot run: {problem} (needs python3-gi)", file=sys.stderr)
    sys.exit(77)

import buses  # noqa: E402
from program import Failure  # noqa: E402
from readme import Readme, Unreadable, is_example  # noqa: E402
from trial import Trial  # noqa: E402

from gi.repository import GLib  # noqa: E402

#: Folders that are no posters and observers in a language, and what tests them.
ELSEWHERE = {
    "c-gtk": "Tests/NotificationServiceTests/Desktop/ExampleTests.swift",
    "python-gtk": "Tests/NotificationServiceTests/Desktop/ExampleTests.swift",
    "qt": "Tests/NotificationServiceTests/Desktop/ExampleTests.swift and Tests/Interop/test_tools.py",
    "swift": "Tests/CarillonTests",
    "windows": "tools/screenshots",
}

#: What build tools say when what they have to fetch can't be reached; of pip also that it has found no version at all.
UNREACHABLE = re.compile(
    r"NewConnectionError|Max retries exceeded|name resolution|Could not resolve host|Connection refused|"
    r"\(from versions: none\)|Connection timed out|ReadTimeout|ConnectTimeout|Network is unreachable|ProxyError"
)


def folders_in(directory):
    entries = sorted(os.scandir(directory), key=lambda entry: entry.name)
    return [entry.name for entry in entries if entry.is_dir() and not entry.name.startswith((".", "__"))]


def discover():
    """The examples, and the folders that should have one and have none."""
    examples, empty = [], []
    for language in folders_in(EXAMPLES):
        folder = os.path.join(EXAMPLES, language)
        if is_example(folder):
            examples.append(language)
            continue
        libraries = [f"{language}/{library}" for library in folders_in(folder)]
        found = [library for library in libraries if is_example(os.path.join(EXAMPLES, library))]
        examples += found
        if language not in ELSEWHERE:
            empty += [library for library in libraries if library not in found] if found else [language]
    return examples, empty


def missing_packages(packages):
    """Those that are not installed, where that can be known."""
    if shutil.which("dpkg-query") is None:
        return []
    def is_installed(package):
        query = ["dpkg-query", "--show", "--showformat=${db:Status-Status}", package]
        return subprocess.run(query, capture_output=True, text=True, check=False).stdout == "installed"
    return [package for package in packages if not is_installed(package)]


def packages_of_setup():
    """The packages that tools/setup knows."""
    with open(os.path.join(ROOT, "tools", "setup"), encoding="utf-8") as file:
        lists = re.findall(r"_packages\+?=\(([^)$]*)\)", file.read())
    return set(" ".join(lists).split())


class Run:
    """All examples, each on all buses, one after the other."""

    def __init__(self, kinds, binaries, directory):
        self.kinds = kinds
        self.binaries = binaries
        self.directory = directory
        self.passed = self.failed = self.skipped = 0
        #: Of those that were skipped, how many could have been installed with tools/setup.
        self.installable = 0
        shutil.copytree(EXAMPLES, os.path.join(directory, "Examples"), ignore=shutil.ignore_patterns("venv", "build"))
        shutil.copytree(os.path.join(ROOT, "dbus-interfaces"), os.path.join(directory, "dbus-interfaces"))
        # Examples that are products of this package are not built in the copy: there is no package.
        os.mkdir(os.path.join(directory, ".build"))
        self.products = os.environ.get("CARILLON_BIN_DIR") or None
        os.symlink(
            os.path.abspath(self.products or os.path.join(ROOT, ".build", "debug")),
            os.path.join(directory, ".build", "debug"),
        )

    def fail(self, what, problem, more=()):
        self.failed += 1
        print(f"FAILED: {what}: {problem}", *(f"    {line}" for line in more), sep="\n", flush=True)

    def skip(self, what, reason, installable=True):
        self.skipped += 1
        self.installable += installable
        print(f"{what}: skipped: {reason}", flush=True)

    def example(self, example):
        folder = os.path.join(self.directory, "Examples", example)
        try:
            readme = Readme(folder)
        except Unreadable as problem:
            self.fail(example, f"README.md: {problem}")
            return
        if unknown := set(readme.packages) - packages_of_setup():
            self.fail(example, f"tools/setup does not know {' '.join(sorted(unknown))}, which README.md names")
            return
        if missing := missing_packages(readme.packages):
            for kind in self.kinds:
                self.skip(f"{example} on {kind}", f"not installed: {' '.join(missing)}")
            return
        if readme.is_product:
            built = self.products is not None or self.build(example, os.path.join(EXAMPLES, example), readme.build)
        else:
            built = not readme.build or self.build(example, folder, readme.build)
        if not built:
            return
        for kind in self.kinds:
            self.trial(example, folder, readme, kind)

    def build(self, example, folder, commands):
        began = time.monotonic()
        made = subprocess.run(
            ["bash", "-e", "-c", commands], cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, errors="replace", check=False,
        )
        if made.returncode == 0:
            print(f"{example}: built in {time.monotonic() - began:.1f} s", flush=True)
            return True
        if UNREACHABLE.search(made.stdout):
            for kind in self.kinds:
                self.skip(f"{example} on {kind}", "what its build has to fetch can't be reached", installable=False)
        else:
            self.fail(example, "its commands under '## Build' fail", made.stdout.splitlines()[-30:])
        return False

    def trial(self, example, folder, readme, kind):
        what = f"{example} on {kind}"
        began = time.monotonic()
        trial = Trial(readme, folder, kind, self.binaries, tempfile.mkdtemp(prefix="trial-", dir=self.directory))
        try:
            trial.run()
        except (Failure, GLib.Error, RuntimeError) as problem:
            self.fail(what, problem, trial.report())
            return
        self.passed += 1
        print(f"{what}: passed in {time.monotonic() - began:.1f} s", flush=True)
        if kind == self.kinds[0]:
            for key, reason in readme.cannot.items():
                print(f"    not tested: {key}: {reason}")


def arguments():
    parser = argparse.ArgumentParser(prog="tools/test-examples", allow_abbrev=False)
    parser.add_argument("--binaries", help="the directory with carillond and carillon")
    parser.add_argument("--bus", choices=[*buses.KINDS, "both"], default="both")
    parser.add_argument("--list", action="store_true", help="print the folders of the examples, and run nothing")
    parser.add_argument("folders", nargs="*", metavar="FOLDER", help="folders of Examples; all if none is named")
    return parser.parse_args()


def main():
    options = arguments()
    examples, empty = discover()
    wanted = [folder.strip("/").removeprefix("Examples/") for folder in options.folders]
    for folder in wanted:
        if not any(f"{example}/".startswith(f"{folder}/") for example in examples):
            sys.exit(f"test-examples: there is no example in Examples/{folder}")
    chosen = [each for each in examples if not wanted or any(f"{each}/".startswith(f"{one}/") for one in wanted)]
    if options.list:
        print(*chosen, sep="\n")
        sys.exit()
    kinds = list(buses.KINDS if options.bus == "both" else (options.bus,))
    # Ended by a signal, what was started ends too.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _frame: sys.exit(128 + number))
    with contextlib.ExitStack() as stack:
        directory = tempfile.mkdtemp(prefix="carillon-examples-")
        stack.callback(shutil.rmtree, directory, ignore_errors=True)
        available = [kind for kind in kinds if buses.available(kind)]
        run = Run(available, options.binaries, directory)
        for kind in set(kinds) - set(available):
            for example in chosen:
                run.skip(f"{example} on {kind}", f"{kind} is not installed")
        for example in chosen:
            run.example(example)
        for folder in empty if not wanted else ():
            run.fail(folder, f"no README.md in Examples/{folder} tells how to run an example")
    if run.installable and os.environ.get("CI") == "true":
        print(f"FAILED: with CI=true, what is not installed: {run.installable}")
        run.failed += run.installable
        run.skipped -= run.installable
    if run.passed + run.failed == 0:
        print("FAILED: nothing was tested")
    print(f"{run.passed} passed, {run.failed} failed, {run.skipped} skipped")
    sys.exit(1 if run.failed or not run.passed else 0)


if __name__ == "__main__":
    main()
