# SPDX-License-Identifier: Apache-2.0
"""Mutation testing of the modules that decide: tools/mutants runs this, and its beginning explains the options.

All mutants of a sample are in one program, each behind a switch, so that there is one build. The source is copied
before. The tests then run once for each mutant, with its number in the environment, in a process group of their own.
"""

import argparse
import collections
import concurrent.futures
import dataclasses
import hashlib
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
# The module of the switches. Only the copy of the package has it, below all other modules.
SWITCHES = "Mutants"

# Builds in which the compiler may still find mutants that are no Swift.
MOST_BUILDS = 16
# What a process of tests may take of memory: a mutant that grows without an end shall not take the machine with it.
MOST_MEMORY = 2 << 30


# A sample of at most so many is from one part only, so that only its tests are built.
MAX_OF_ONE_PART = 10
# So many mutants are not all survivors by chance: the switches do not work then.
MIN_TO_SEE_ONE_KILLED = 3


@dataclasses.dataclass
class Part:
    """Some sources, and the tests that belong to them. No test of a part starts a program: none is built."""

    name: str
    paths: list  # folders and files
    target: str
    runs: list  # arguments and environment of the runs of its tests, the fast one first
    left_out: list = dataclasses.field(default_factory=list)  # names of files
    sources: list = None  # files of the target that are built, if not all

    def has(self, file):
        return any(file == path or file.startswith(path + "/") for path in self.paths)

    def files(self):
        for path in self.paths:
            path = ROOT / path
            for file in [path] if path.is_file() else sorted(path.rglob("*.swift")):
                if file.name not in self.left_out:
                    yield file


def some_suites(name, paths, target, suites, left_out=()):
    """A part whose tests are some suites of a target, each in the file of its name: only these are built."""
    run = (["--filter", rf"^{target}\.({'|'.join(suites)})/"], {})
    return Part(name, paths, target, [run], left_out, [suite + ".swift" for suite in suites])


PARTS = [
    Part(
        "collections", ["Sources/Collections"], "CollectionsTests",
        [(["--filter", r"^CollectionsTests\."], {})],
    ),
    Part(
        "core", ["Sources/Core"], "NotificationCoreTests",
        # What takes long comes last. Of the model's tests those that try other seeds each time, or the test itself,
        # are left out.
        [
            (
                ["--filter", r"^NotificationCoreTests\.", "--skip",
                 r"\.ModelTests/|/(many|matrix|random)\("],
                {},
            ),
            (
                ["--filter", r"^NotificationCoreTests\.(ModelTests/(fixedSeeds|restarts)|PostingQueueTests/many)\("],
                {"CARILLON_QUICK": "1"},
            ),
            (
                ["--filter", r"^NotificationCoreTests\.(ModelTests/(fixedSeeds|restarts)|\w+/(matrix|random))\("],
                {},
            ),
        ],
        # They only notice faults.
        ["Invariant.swift", "PlantedFault.swift", "DistributedCenter+Invariants.swift"],
    ),
    Part(
        "wire", ["Sources/Wire"], "NotificationWireTests",
        [(["--filter", r"^NotificationWireTests\."], {})],
        # What calls the service, and the interface of the bridge: other modules' tests have these.
        ["BridgeWire.swift", "CenterMethod.swift"],
    ),
    Part(
        "engine", ["Sources/Client"], "ServiceClientTests",
        [(["--filter", r"^ServiceClientTests\."], {})],
        # It only reads and writes a socket: the tests have another line.
        ["SocketStream.swift"],
    ),
    some_suites(
        "policy",
        [
            "Sources/Service/Policy", "Sources/Service/Configuration.swift",
            "Sources/Service/ConfigurationKeeper.swift",
            "Sources/Service/Sessions/SessionRules.swift",
        ],
        "NotificationServiceTests",
        ["PolicyTests", "PolicyGateTests", "ServiceConfigurationTests", "SessionRulesTests"],
    ),
    some_suites(
        "bridge",
        ["Sources/CarillonBridge/" + path for path in (
            "BridgeConfiguration.swift", "Hosts/HostTable.swift", "Hosts/OwnPresence.swift", "Inwards",
            "Losses/LossLedger.swift", "Messages",
            "Outwards/ExportQueue.swift", "Outwards/OwnValues.swift", "Outwards/TopicCounts.swift", "State", "Topics",
        )],
        "CarillonBridgeTests",
        [
            "BoundsTests", "CBORPayloadTests", "ConfigurationTests", "ImportListTests", "InwardGateTests", "KeptHereTests",
            "MessageTests", "OwnPresenceTests", "OwnValuesTests", "PagedQuestionTests", "SequenceTrackerTests", "StateTests",
            "TopicTests",
        ],
        # It posts and subscribes; the tests between machines have it.
        left_out=["Importer.swift"],
    ),
    Part(
        "activity",
        ["Sources/Activity/" + name for name in (
            "ActivityChoice.swift", "ActivityTracker.swift", "InactivityRules.swift", "LivenessCheck.swift",
        )],
        "DesktopActivityTests",
        [(["--filter", r"^DesktopActivityTests\."], {})],
    ),
]


def fail(message):
    sys.exit(f"mutants: {message}")


def bad_usage(message):
    print(f"mutants: {message}; try --help", file=sys.stderr)
    sys.exit(2)


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


def files_of_package():
    """All files of the repository, as Git knows them, also those that are new: tests read documents and data."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, check=False,
    )
    if listing.returncode == 0:
        names = os.fsdecode(listing.stdout).split("\0")
    else:  # a source archive
        names = []
        for folder, folders, files in os.walk(ROOT):
            folders[:] = [name for name in folders if name not in (".build", ".git")]
            names += [os.path.relpath(os.path.join(folder, name), ROOT) for name in files]
    return [name for name in names if name and (ROOT / name).is_file()]


def manifest():
    """What comes behind Package.swift: all modules may import the switches."""
    lines = [
        "",
        f'for target in package.targets where target.type != .system {{ target.dependencies.append("{SWITCHES}") }}',
        f'package.targets.append(.target(name: "{SWITCHES}"))',
    ]
    for part in PARTS:
        if part.sources:
            sources = ", ".join(f'"{name}"' for name in part.sources)
            lines.append(f'package.targets.first {{ $0.name == "{part.target}" }}?.sources = [{sources}]')
    return "\n".join(lines) + "\n"


def copy_package(mutants, declared):
    """Copies the package, with the mutants in it and switches for all that are declared; what an earlier copy had besides
    is removed."""
    files = {name: (ROOT / name).read_bytes() for name in files_of_package()}
    files["Package.swift"] += manifest().encode()
    for file in {mutant.file for mutant in mutants}:
        text = places.rewrite(files[file].decode(), [mutant for mutant in mutants if mutant.file == file])
        # In the first line, so that no other one changes its number.
        files[file] = f"import {SWITCHES}; {text}".encode()
    switches = (ROOT / "Tests/Mutation/Switches.swift").read_text(encoding="utf-8")
    switches += "".join("\n" + declaration(mutant) for mutant in declared if mutant.operator)
    files[f"Sources/{SWITCHES}/Switches.swift"] = switches.encode()
    for path in PACKAGE.rglob("*"):
        if path.is_file() and str(path.relative_to(PACKAGE)) not in files:
            path.unlink()
    for name, content in files.items():
        path = PACKAGE / name
        # What is as it was is not built again.
        if path.exists() and path.read_bytes() == content:
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        shutil.copymode(ROOT / name if (ROOT / name).is_file() else __file__, path)


def run_swift(arguments, parts):
    environment = dict(
        os.environ, CARILLON_ONLY=",".join(part.target for part in parts), CARILLON_PROGRAMS="")
    command = [
        "swift", "build", "--package-path", str(PACKAGE), "--scratch-path", str(WORK / "build"),
        "-Xswiftc", "-gnone", *arguments,
    ]
    return subprocess.run(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, errors="replace", check=False,
    )


def build(parts, mutants, size):
    """Builds the tests with these mutants, and leaves out those that the compiler does not take.

    Returns at most `size` of those that are in the program, how many were left out, and the program.
    """
    declared, left_out = mutants, 0
    for round_ in range(1, MOST_BUILDS + 1):
        # The switches stay as they were, so that only files with mutants that go are built again.
        copy_package(mutants, declared)
        began = time.monotonic()
        result = run_swift(["--build-tests"], parts)
        say(f"build {round_}: {len(mutants)} mutants, {time.monotonic() - began:.0f} s")
        if result.returncode == 0:
            shown = run_swift(["--show-bin-path"], parts)
            directory = pathlib.Path(shown.stdout.strip().splitlines()[-1])
            programs = list(directory.glob("*PackageTests.xctest"))
            if len(programs) != 1:
                fail(f"no program of tests in {directory}")
            return mutants[:size], left_out, programs[0]
        (WORK / "build.log").write_text(result.stdout, encoding="utf-8")
        wrong = blamed(result.stdout, mutants)
        if not wrong:
            fail(f"the build fails, and not because of a mutant: {WORK / 'build.log'}")
        left_out += len(wrong)
        mutants = [mutant for mutant in mutants if id(mutant) not in wrong]
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


def run_tests(program, run, number, limit, processor_time=30):
    """Runs tests with a mutant on, until the first that fails.

    `limit` is for all of them, in seconds, and `processor_time` the limit that each has by itself (`Tests/TestLimits`),
    in seconds of its thread.
    """
    arguments, variables = run
    environment = dict(
        os.environ, CARILLON_MUTANT=str(number), CARILLON_TEST_LIMITS=f"{processor_time / 30:.2f}",
        SWIFT_BACKTRACE="enable=no", SWIFT_DETERMINISTIC_HASHING="1", NO_COLOR="1", **variables,
    )
    began = time.monotonic()
    process = subprocess.Popen(
        [str(program), "--testing-library", "swift-testing", "--no-parallel", *arguments], env=environment, cwd=PACKAGE,
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
                if " hangs: " in line:
                    looped = failed
                end(process)
            elif match := re.search(r"Test run with (\d+) tests?", line):
                count = int(match[1])
        process.wait()
    finally:
        clock.cancel()
        end(process)
        with running_lock:
            running.discard(process)
    seconds = time.monotonic() - began
    if looped:
        return Result("looped", looped, seconds)
    if failed:
        return Result("failed", failed, seconds)
    if is_late.is_set():
        return Result("hung", f"after {limit} s", seconds)
    if process.returncode < 0:
        return Result("crashed", f"{signal.Signals(-process.returncode).name}: {last}", seconds)
    if process.returncode != 0:
        return Result("failed", last, seconds)
    return Result("passed" if count else "no tests", str(count), seconds)


class Limits:
    """How long each run of a part may take. A run is measured without a mutant before the first one that needs it."""

    def __init__(self, program):
        self.program = program
        self.lock = threading.Lock()
        self.limits = {}

    def of(self, part, place):
        with self.lock:
            if (part.name, place) not in self.limits:
                result = run_tests(self.program, part.runs[place], 0, 600)
                if result.outcome != "passed":
                    fail(f"without a mutant the tests of {part.name}: {result.outcome}, {result.by}")
                # One test may take as long as all took, and some more; and one that waits in vain, as long as a test waits.
                limit, processor_time = int(80 + 5 * result.seconds), int(4 + result.seconds)
                say(f"{part.name}, run {place + 1}: {result.by} tests in {result.seconds:.1f} s; a mutant has {limit} s")
                self.limits[part.name, place] = limit, processor_time
            return self.limits[part.name, place]


def test_mutant(program, mutant, limits, end_of_time):
    """All runs of the tests that belong to a mutant, until one does not pass."""
    if time.monotonic() > end_of_time:
        return mutant, None
    part = part_of(mutant)
    for place, run in enumerate(part.runs):
        result = run_tests(program, run, mutant.number, *limits.of(part, place))
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
        f"hung {len(kinds['hung'])}, survived {len(kinds['passed'])}; {left_out} that do not compile were left out,"
        f" and {len(equivalents)} equivalent ones",
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
    if not killed and len(results) >= MIN_TO_SEE_ONE_KILLED:
        print("\nNot one was killed, so the switches are in doubt: this is a fault of tools/mutants.")
        return False
    return share >= options.least and not stale


def in_order_of(seed, mutants):
    """An order by chance, in which each keeps its place when others come or go: an edit leaves the rest of a sample, and
    what was done about its survivors can be seen in the next run."""
    seen = collections.Counter()
    order = []
    for mutant in mutants:
        # Some lines of a function read the same.
        seen[mutant.key] += 1
        text = repr((seed, mutant.key, seen[mutant.key]))
        order.append((hashlib.sha256(text.encode()).digest(), mutant))
    return [mutant for _, mutant in sorted(order, key=lambda pair: pair[0])]


def main():
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--sample", default="60")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="")
    parser.add_argument("--numbers", default="")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=1e6)
    parser.add_argument("--least", type=float, default=95)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--check", action="store_true")  # whether there are mutants to try, and no more
    options = parser.parse_args()

    equivalents = read_equivalents()
    everything = all_mutants()
    keys = {mutant.key for mutant in everything}
    stale = [key for key in equivalents if key not in keys]
    mutants = [mutant for mutant in everything if mutant.key not in equivalents]
    # Before files are left out, so that a mutant has the same number with and without --only.
    for number, mutant in enumerate(mutants, 1):
        mutant.number = number
    last_number = len(mutants)
    known = [mutant for mutant in everything if mutant.key in equivalents and options.only in mutant.file]
    mutants = [mutant for mutant in mutants if options.only in mutant.file]
    if not mutants:
        bad_usage(f"--only: no file with {options.only!r} in its path has anything to mutate")
    wanted = [int(number) for number in options.numbers.split(",") if number]
    for number in wanted:
        if not 1 <= number <= last_number:
            bad_usage(f"--numbers: there is no mutant {number}; the numbers are 1 to {last_number}")
        if not any(mutant.number == number for mutant in mutants):
            bad_usage(f"--numbers: mutant {number} is in no file with {options.only!r} in its path, as --only demands")
    if options.check:
        return
    if options.list:
        for mutant in mutants:
            print(f"{mutant.number} {mutant.file}:{mutant.line}: {mutant.what}: {mutant.text}")
        print(f"{len(mutants)} mutants, and {len(known)} that are equivalent")
        if stale:
            print("\n".join(describe_stale(stale)), file=sys.stderr)
        sys.exit(1 if stale else 0)

    chance = random.Random(options.seed)
    parts = {part.name: [mutant for mutant in mutants if part_of(mutant) is part] for part in PARTS}
    if wanted:
        mutants = [mutant for mutant in mutants if mutant.number in wanted]
        options.sample = "all"
    elif options.sample != "all" and int(options.sample) <= MAX_OF_ONE_PART:
        name = chance.choices(list(parts), [len(each) for each in parts.values()])[0]
        say(f"from the part {name}")
        mutants = parts[name]
    options.count = len(mutants)
    mutants = in_order_of(options.seed, mutants)
    size = len(mutants) if options.sample == "all" else int(options.sample)
    # Some more, in the place of those that do not compile.
    mutants = mutants[: size + size // 8 + 2]
    parts = [part for part in PARTS if any(part_of(mutant) is part for mutant in mutants)]
    sample, left_out, program = build(parts, mutants, size)

    # A process of tests that grows is ended by this, and not the machine.
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_MEMORY, MOST_MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    limits = Limits(program)

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
