# SPDX-License-Identifier: Apache-2.0
"""Mutation testing of the core and of the wire's checker: what tools/mutants runs, whose beginning says how.

All mutants of a sample are in one program, each behind a switch, so that there is one build. The source is copied
before. The tests then run once for each mutant, with its number in the environment, in a process group of their own.
"""

import argparse
import concurrent.futures
import dataclasses
import os
import pathlib
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time

import places

ROOT = pathlib.Path(__file__).resolve().parents[2]
WORK = ROOT / ".build" / "mutants"
PACKAGE = WORK / "package"
REPORT = WORK / "report.txt"
EQUIVALENTS = ROOT / "Tests" / "Mutation" / "equivalents.txt"
SWITCHES = "Sources/NotificationCore/Switches.swift"

# Builds in which the compiler may still find mutants that are no Swift.
MOST_BUILDS = 8
# What a process of tests may take of memory: a mutant that grows without an end shall not take the machine with it.
MOST_MEMORY = 2 << 30


@dataclasses.dataclass
class Part:
    """Some sources, and the tests that belong to them."""

    name: str
    path: str  # a folder or a file
    left_out: list  # names of files that only notice faults
    target: str
    runs: list  # arguments and environment of the runs of its tests, the fast one first

    def has(self, file):
        return file == self.path or file.startswith(self.path + "/")

    def files(self):
        path = ROOT / self.path
        files = [path] if path.is_file() else sorted(path.rglob("*.swift"))
        return [file for file in files if file.name not in self.left_out]


PARTS = [
    Part(
        "core",
        "Sources/NotificationCore",
        ["Invariant.swift", "PlantedFault.swift", "DistributedCenter+Invariants.swift"],
        "NotificationCoreTests",
        # What takes long comes last. Of the model's tests those that try other seeds each time, or the test itself,
        # are left out.
        [
            (["--filter", r"^NotificationCoreTests\.", "--skip", r"\.(ModelTests|WatchdogTests)/|/many\("], {}),
            (
                ["--filter", r"^NotificationCoreTests\.(ModelTests/(fixedSeeds|restarts)|PostingQueueTests/many)\("],
                {"CARILLON_QUICK": "1"},
            ),
            (["--filter", r"^NotificationCoreTests\.ModelTests/(fixedSeeds|restarts)\("], {}),
        ],
    ),
    Part(
        "wire",
        "Sources/NotificationWire/PropertyList/PropertyListChecker.swift",
        [],
        "NotificationWireTests",
        [(["--filter", r"^NotificationWireTests\."], {})],
    ),
]


def fail(message):
    sys.exit(f"mutants: {message}")


# The places


def all_mutants():
    mutants = []
    for part in PARTS:
        for path in part.files():
            mutants += places.places(str(path.relative_to(ROOT)), path.read_text(encoding="utf-8"))
    return mutants


def part_of(mutant):
    return next(part for part in PARTS if part.has(mutant.file))


def read_equivalents():
    """The mutants of which is known that no test can tell them from the source, with the reason of each."""
    equivalents = {}
    for block in re.split(r"\n\s*\n", EQUIVALENTS.read_text(encoding="utf-8")):
        lines = [line.strip() for line in block.splitlines() if line.strip() and not line.startswith("#")]
        if not lines:
            continue
        if len(lines) < 4 or ", in " not in lines[0]:
            fail(f"{EQUIVALENTS.name}: file and function, line, mutation and reason are expected: {lines}")
        file, function = lines[0].split(", in ")
        equivalents[(file, function, lines[1], lines[2])] = " ".join(lines[3:])
    return equivalents


# The program with the mutants


def declaration(mutant):
    """The operator of a mutant."""
    original, _, operand = mutant.operator.partition(" ")
    name = places.operator_name(mutant.number)
    on = f"mutant({mutant.number})"
    if original == "!":
        return f"prefix operator {name}\npublic prefix func {name} (value: Bool) -> Bool {{ {on} ? value : !value }}\n"
    other = places.SWAPPED.get(original)
    both = f"{on} ? left {other} right : left {original} right"

    def function(generics, left, right, result, body, effect=""):
        return f"public func {name} {generics}(left: {left}, right: {right}) {effect}-> {result} {{ {body} }}\n"

    if original in places.LOGIC:
        precedence = "LogicalConjunctionPrecedence" if original == "&&" else "LogicalDisjunctionPrecedence"
        body = f"try {on} ? left {other} right() : left {original} right()"
        text = function("", "Bool", "@autoclosure () throws -> Bool", "Bool", body, "rethrows ")
    elif original in places.COMPARISON or original in places.EQUALITY and not operand:
        precedence = "ComparisonPrecedence"
        protocol = "Comparable" if original in places.COMPARISON else "Equatable"
        text = function(f"<V: {protocol}>", "V", "V", "Bool", both)
        text += function("<V: BinaryInteger>", "V", "V", "Bool", both)
        text += function("<V: BinaryInteger, W: BinaryInteger>", "V", "W", "Bool", both)
        if original in places.EQUALITY:
            text += function("<V: Equatable, W: Equatable>", "(V, W)", "(V, W)", "Bool", both)
    elif original in places.EQUALITY:
        precedence = "ComparisonPrecedence"
        text = function("<V>", "V?", "_OptionalNilComparisonType", "Bool", both)
    elif original in places.IDENTITY:
        precedence = "ComparisonPrecedence"
        text = function("", "AnyObject?", "AnyObject?", "Bool", both)
    elif original in places.ARITHMETIC:
        precedence = "AdditionPrecedence"
        text = function("<V: AdditiveArithmetic>", "V", "V", "V", both)
    elif original in places.PRODUCT:
        precedence = "MultiplicationPrecedence"
        text = function("<V: BinaryInteger>", "V", "V", "V", both)
    elif original in places.ASSIGNMENT | places.WRAPPING:
        precedence = "AssignmentPrecedence"
        protocol = "AdditiveArithmetic" if original in places.ASSIGNMENT else "FixedWidthInteger"
        body = f"if {on} {{ left {other} right }} else {{ left {original} right }}"
        text = function(f"<V: {protocol}>", "inout V", "V", "Void", body)
    elif original == "..<":
        precedence = "RangeFormationPrecedence"
        body = f"{on} && right < .max ? left..<(right + 1) : left..<right"
        text = function("<V: FixedWidthInteger>", "V", "V", "Range<V>", body)
    else:
        raise ValueError(original)
    return f"infix operator {name} : {precedence}\n{text}"


def write_if_changed(path, text):
    """So that what is as it was is not built again."""
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def copy_package(mutants):
    """Copies what builds need, with the mutants in it, and removes what an earlier copy had besides."""
    texts = {}
    for folder in ["Sources", "Tests"]:
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in (".swift", ".h", ".modulemap") and path.is_file():
                texts[str(path.relative_to(ROOT))] = path.read_text(encoding="utf-8")
    texts["Package.swift"] = (ROOT / "Package.swift").read_text(encoding="utf-8")
    for file in {mutant.file for mutant in mutants}:
        texts[file] = places.rewrite(texts[file], [mutant for mutant in mutants if mutant.file == file])
    switches = texts["Tests/Mutation/Switches.swift"]
    texts[SWITCHES] = switches + "".join("\n" + declaration(mutant) for mutant in mutants if mutant.operator)
    for path in PACKAGE.rglob("*"):
        if path.is_file() and str(path.relative_to(PACKAGE)) not in texts:
            path.unlink()
    for name, text in texts.items():
        write_if_changed(PACKAGE / name, text)


def run_swift(arguments, parts):
    environment = dict(os.environ, CARILLON_ONLY=",".join(part.target for part in parts))
    command = ["swift", "build", "--package-path", str(PACKAGE), "--scratch-path", str(WORK / "build"), *arguments]
    return subprocess.run(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, errors="replace", check=False,
    )


def build(parts, mutants, spare):
    """Builds the tests. What the compiler does not take is replaced out of `spare`, and left out in the end.

    Returns the mutants that are in the program, how many were left out, and the program.
    """
    left_out = 0
    for round_ in range(1, MOST_BUILDS + 1):
        copy_package(mutants)
        began = time.monotonic()
        result = run_swift(["--build-tests"], parts)
        say(f"build {round_}: {len(mutants)} mutants, {time.monotonic() - began:.0f} s")
        if result.returncode == 0:
            shown = run_swift(["--show-bin-path"], parts)
            directory = pathlib.Path(shown.stdout.strip().splitlines()[-1])
            programs = list(directory.glob("*PackageTests.xctest"))
            if len(programs) != 1:
                fail(f"no program of tests in {directory}")
            return mutants, left_out, programs[0]
        wrong = blamed(result.stdout, mutants)
        if not wrong:
            (WORK / "build.log").write_text(result.stdout, encoding="utf-8")
            fail(f"the build fails, and not because of a mutant: {WORK / 'build.log'}")
        left_out += len(wrong)
        mutants = [mutant for mutant in mutants if id(mutant) not in wrong]
        # Others instead, but not in the last rounds, so that these succeed.
        while spare and round_ <= MOST_BUILDS // 2 and wrong:
            mutants.append(spare.pop())
            wrong.pop()
    fail(f"after {MOST_BUILDS} builds there still are mutants that do not compile")


def blamed(log, mutants):
    """The mutants in lines of which the compiler says that something is wrong."""
    wrong = set()
    for match in re.finditer(r"^(?P<path>/[^\n:]+):(?P<line>\d+):\d+: error: ", log, re.MULTILINE):
        path = pathlib.Path(match["path"])
        if not path.is_relative_to(PACKAGE):
            continue
        name, line = str(path.relative_to(PACKAGE)), int(match["line"])
        here = [mutant for mutant in mutants if mutant.file == name]
        exact = [mutant for mutant in here if mutant.line <= line <= mutant.last_line]
        # What a statement that is missing leaves undone is noticed further down.
        near = [mutant for mutant in here if line - 15 <= mutant.line <= line]
        wrong |= {id(mutant) for mutant in exact or near}
    return wrong


# Running


@dataclasses.dataclass
class Result:
    outcome: str  # passed, failed, crashed, looped or hung
    by: str  # the test, or the signal
    seconds: float


running = set()
running_lock = threading.Lock()


def end(process):
    """Ends the whole group of a process that this script has started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def run_tests(program, run, number, limit, watchdog=30):
    """Runs tests with a mutant on, until the first that fails.

    `limit` is for all of them, in seconds, and `watchdog` the limit that each has by itself (`Tests/TestLimits`), in
    seconds of its thread.
    """
    arguments, variables = run
    environment = dict(
        os.environ, CARILLON_MUTANT=str(number), CARILLON_WATCHDOG=str(watchdog), SWIFT_BACKTRACE="enable=no",
        SWIFT_DETERMINISTIC_HASHING="1", NO_COLOR="1", **variables,
    )
    began = time.monotonic()
    process = subprocess.Popen(
        [str(program), "--testing-library", "swift-testing", "--no-parallel", *arguments], env=environment, cwd=ROOT,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
        start_new_session=True,
    )
    with running_lock:
        running.add(process)
    is_late = threading.Event()

    def late():
        is_late.set()
        end(process)

    clock = threading.Timer(limit, late)
    clock.start()
    failed, looped, last, count = "", "", "", 0
    try:
        for line in process.stdout:
            line = line.strip()
            last = line or last
            if " recorded an issue" in line and not failed:
                failed = re.sub(r"^\W*Test ", "", line.partition(" recorded an issue")[0])
                end(process)
            elif line.startswith("Watchdog: "):
                looped = line
            elif match := re.search(r"Test run with (\d+) tests?", line):
                count = int(match[1])
        process.wait()
    finally:
        clock.cancel()
        end(process)
        with running_lock:
            running.discard(process)
    seconds = time.monotonic() - began
    if failed:
        return Result("failed", failed, seconds)
    if looped:
        return Result("looped", looped, seconds)
    if is_late.is_set():
        return Result("hung", f"after {limit} s", seconds)
    if process.returncode < 0:
        return Result("crashed", f"{signal.Signals(-process.returncode).name}: {last}", seconds)
    if process.returncode != 0:
        return Result("failed", last, seconds)
    return Result("passed" if count else "no tests", str(count), seconds)


def test_mutant(program, mutant, limits, end_of_time):
    """All runs of the tests that belong to a mutant, until one does not pass."""
    if time.monotonic() > end_of_time:
        return mutant, None
    part = part_of(mutant)
    for run, (limit, watchdog) in zip(part.runs, limits[part.name]):
        result = run_tests(program, run, mutant.number, limit, watchdog)
        if result.outcome != "passed":
            break
    return mutant, result


# Reporting


def say(text):
    print(text, flush=True)


def describe(mutant):
    return f"{mutant.file}, in {mutant.function}\n    {mutant.text}\n    {mutant.what}"


def describe_stale(stale):
    lines = [f"In {EQUIVALENTS.name}, but no longer in the source:"]
    return lines + [f"\n{file}, in {function}\n    {text}\n    {what}" for file, function, text, what in stale]


def report(options, program, results, left_out, equivalents, stale):
    kinds = {kind: [] for kind in ("failed", "crashed", "looped", "hung", "passed")}
    for mutant, result in results:
        kinds[result.outcome].append((mutant, result))
    killed = len(kinds["failed"]) + len(kinds["crashed"]) + len(kinds["looped"])
    share = 100 * killed / len(results)
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=12"], cwd=ROOT, stdout=subprocess.PIPE, text=True,
        check=False,
    ).stdout.strip()
    lines = [
        f"commit {commit or 'unknown'}, seed {options.seed}, {len(results)} mutants of {options.count}"
        + (f", of files with {options.only!r} in their path" if options.only else ""),
        f"killed {killed} ({share:.1f} %): {len(kinds['failed'])} by a test that failed, {len(kinds['crashed'])} by a"
        f" crash, {len(kinds['looped'])} by the tests' own limit",
        f"hung {len(kinds['hung'])}, survived {len(kinds['passed'])}; {left_out} that do not compile were replaced or"
        f" left out, {len(equivalents)} equivalent ones not tried",
    ]
    for title, kind in [("Survived", "passed"), ("Hung: no test noticed", "hung")]:
        if kinds[kind]:
            lines += ["", title + ":"]
        for mutant, result in kinds[kind]:
            lines += ["", describe(mutant), f"    # line {mutant.line}, mutant {mutant.number}"]
    if kinds["passed"] or kinds["hung"]:
        lines += [
            "", "To see one with some tests, NUMBER being that of the mutant:",
            f"    CARILLON_MUTANT=NUMBER {os.path.relpath(program, ROOT)} --testing-library swift-testing --filter TESTS",
        ]
    if stale:
        lines += ["", *describe_stale(stale)]
    text = "\n".join(lines)
    print("\n" + text)
    for title, kind in [("Failed", "failed"), ("Crashed", "crashed"), ("Ended by the tests' own limit", "looped")]:
        lines += ["", title + ":"]
        lines += [
            f"{mutant.file}:{mutant.line}: {mutant.what}: {result.by} ({result.seconds:.1f} s)"
            for mutant, result in kinds[kind]
        ]
    REPORT.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"\nWith those that were killed: {REPORT.relative_to(ROOT)}")
    return share >= options.least and not stale


def main():
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("sample", nargs="?", default="60")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=1e6)
    parser.add_argument("--least", type=float, default=95)
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()

    equivalents = read_equivalents()
    everything = all_mutants()
    keys = {mutant.key for mutant in everything}
    stale = [key for key in equivalents if key not in keys]
    mutants = [mutant for mutant in everything if options.only in mutant.file]
    known = [mutant for mutant in mutants if mutant.key in equivalents]
    mutants = [mutant for mutant in mutants if mutant.key not in equivalents]
    for number, mutant in enumerate(mutants, 1):
        mutant.number = number
    if options.list:
        for mutant in mutants:
            print(f"{mutant.file}:{mutant.line}: {mutant.what}: {mutant.text}")
        print(f"{len(mutants)} mutants, and {len(known)} that are equivalent")
        if stale:
            print("\n".join(describe_stale(stale)), file=sys.stderr)
        sys.exit(1 if stale else 0)
    if not mutants:
        fail(f"no file with {options.only!r} in its path has anything to mutate")

    options.count = len(mutants)
    random.Random(options.seed).shuffle(mutants)
    size = len(mutants) if options.sample == "all" else min(int(options.sample), len(mutants))
    sample, spare = mutants[:size], mutants[size:][::-1]
    parts = [part for part in PARTS if any(part_of(mutant) is part for mutant in mutants)]
    sample, left_out, program = build(parts, sample, spare)

    # A process of tests that grows is ended by this, and not the machine.
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_MEMORY, MOST_MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    limits = {}
    for part in parts:
        if not any(part_of(mutant) is part for mutant in sample):
            continue
        limits[part.name] = []
        for run in part.runs:
            result = run_tests(program, run, 0, 600)
            if result.outcome != "passed":
                fail(f"without a mutant the tests of {part.name}: {result.outcome}, {result.by}")
            # One test may take as long as all took, and some more.
            limit, watchdog = int(20 + 5 * result.seconds), int(4 + result.seconds)
            limits[part.name].append((limit, watchdog))
            say(f"{part.name}: {result.by} tests in {result.seconds:.1f} s; a mutant has {limit} s")

    results = []
    with concurrent.futures.ThreadPoolExecutor(max_workers=options.jobs) as pool:
        end_of_time = time.monotonic() + 60 * options.minutes
        futures = [pool.submit(test_mutant, program, mutant, limits, end_of_time) for mutant in sample]
        try:
            for future in concurrent.futures.as_completed(futures):
                mutant, result = future.result()
                if result is None:
                    continue
                results.append((mutant, result))
                name = {"passed": "SURVIVED", "hung": "HUNG"}.get(result.outcome, result.outcome)
                say(f"{len(results):4} {name:8} {mutant.file.rpartition('/')[2]}:{mutant.line}: {mutant.what}")
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            with running_lock:
                for process in running:
                    end(process)
            raise
    if not results:
        fail("no time for a single one")
    results.sort(key=lambda pair: (pair[0].file, pair[0].line, pair[0].number))
    is_good = report(options, program, results, left_out, known, stale)
    sys.exit(0 if is_good else 1)


if __name__ == "__main__":
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(130))
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
