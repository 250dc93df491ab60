# SPDX-FileCopyrightText: The Carillon authors
# SPDX-License-Identifier: Apache-2.0
"""The program behind `tools/chaos --cases`: how late another client's answers are beside each hostile case.

Each case is alone with a fresh service on a private bus. A probe (probe.py) asks the service all the time: while the
case drives it to its state, while it attacks, when the hostile process is killed, and for a second after that.
"""

import argparse
import concurrent.futures
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile

try:
    import gi

    gi.require_version("Gio", "2.0")
    from gi.repository import Gio, GLib
except (ImportError, ValueError) as problem:
    print(f"cannot run: {problem} (needs python3-gi)", file=sys.stderr)
    sys.exit(77)

import buses  # noqa: E402
from contract import BUS_NAME, INTERFACE, OBJECT_PATH, PATIENCE, PROPERTIES, now  # noqa: E402
from hostile.cases import CASES  # noqa: E402
from hostile.scene import SETUP_SECONDS  # noqa: E402
from judge import alike  # noqa: E402
from latency import corrected, summary  # noqa: E402
from probe import BUS_INTERVAL, INTERVAL  # noqa: E402
from sockets import BusSocket  # noqa: E402
from stage import Actor, Failure, Stage  # noqa: E402
from watch import processor_seconds  # noqa: E402

#: Seconds between two samples of the service's waits for a processor.
DELAY_INTERVAL = 0.02

#: Milliseconds that 99.9 % of all answers of all cases take the service at most.
MOST_OF_ALL = 50

#: Seconds beyond which it is looked at why an answer took so long.
LONG = 0.02

#: The memory that the service may have: all limits together come to some 600 MiB, at one and a half times their size as
#: heaps have gaps, and the program itself. A case that drives it further is ended.
MOST_RESIDENT = 1 << 30

#: Seconds between two questions what the service holds, and between two samples of the memory that it has.
HELD_INTERVAL = 0.1

#: The memory that the service may have for each byte that it says it holds, and besides.
MOST_PER_HELD = 1.5
MOST_BESIDES = 12 << 20
#: Cases with messages that are larger than any that is held, in bytes: one is there while it is read and refused.
LARGEST_MESSAGES = {"too-large": 8 << 20}

#: The part of the samples of memory beside which it must have said what it holds, where times are looked at.
LEAST_JUDGED = 0.25

#: How many of the worst cases the table at the end has.
WORST = 25

ANSWERS = ("ping", "post", "arrival")


def arguments():
    parser = argparse.ArgumentParser(prog="tools/chaos --cases", allow_abbrev=False)
    parser.add_argument("--binaries", required=True, help="the directory with carillond")
    parser.add_argument("--bus", choices=[*buses.KINDS, "both", "turns"], default="both")
    parser.add_argument("--only", action="append", choices=list(CASES), metavar="NAME")
    parser.add_argument("--without", action="append", choices=list(CASES), default=[], metavar="NAME")
    parser.add_argument("--seconds", type=float, default=3, help="how long a case attacks")
    parser.add_argument("--scale", type=float, default=1, help="how much of everything; less does not reach the limits")
    parser.add_argument("--bound", type=float, default=250, help="milliseconds within which a call is answered")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--jobs", type=int, default=1, help="cases at a time")
    parser.add_argument("--untimed", action="store_true", help="nothing is too late, only wrong or missing")
    parser.add_argument("--keep", action="store_true", help="keep what bus, service and case wrote, and the answers")
    parser.add_argument("--one", nargs=2, metavar=("CASE", "BUS"), help=argparse.SUPPRESS)
    return parser.parse_args()


# One case


class Trial(Stage):
    """One case on one bus."""

    delay_interval = DELAY_INTERVAL
    size_interval = 0.1

    def __init__(self, case, kind, options, directory):
        executables = {"carillond": os.path.join(options.binaries, "carillond")}
        super().__init__(kind, options.seed, options.seconds, options.scale, executables, directory, [], 0)
        self.case = case
        self.began = now()
        #: What Statistics said is held: moments of question and answer, and the bytes. And the most observers.
        self.held = []
        self.registered = 0
        self.processor = 0.0
        self.pid = None
        self.socket = None
        #: Pairs of what the case wanted and what it reached, by its names for that.
        self.reached = {}
        self._asking = False
        self._is_too_large = False

    def play(self):
        """The case from its set-up to a second after its end."""
        self.open_bus()
        self.probe = Actor(self, "probe", "probe.py", self._records("probe"))
        self.wait_until_ready([self.probe])
        if not self.wait_until(lambda: self.service, "the service has its name"):
            raise Failure("no service")
        self.pid = self.service.pid
        try:
            self.socket = BusSocket(self.pid, self.bus.path)
        except OSError as problem:
            # Then all that the bus does not explain is the service's own.
            print(f"what lies unread is not known: {problem}", file=sys.stderr)
        victim = self.probe.said[0].split()[1]
        hostile = Actor(
            self, "hostile", "hostile_client.py", self.case, str(self.seed), str(self.seconds), str(self.scale), victim
        )
        self._actors.remove(hostile)
        try:
            self._watch(lambda: hostile.has_said("acting") or hostile.process.poll() is not None, SETUP_SECONDS)
            self._watch(lambda: False, self.seconds)
        finally:
            if hostile.process.poll():
                self.note(f"the hostile process ended with {hostile.process.returncode}")
            buses.end(hostile.process)
        self._read_case(hostile.said)
        self._watch(lambda: False, min(1, self.seconds))

    def end_actors(self):
        """Ends the probe, which waits for its last answers; what the service still did for that counts, too."""
        super().end_actors()
        self.processor = processor_seconds(self.pid) or self.processor
        self.samples.take_sizes(self.service and self.service.pid)

    def _watch(self, condition, seconds):
        """Samples what the service holds until the condition holds, or for that time."""
        deadline = now() + seconds
        due = now() + HELD_INTERVAL
        while not condition() and now() < deadline and not self._is_too_large:
            if self.socket:
                self.samples.take_unread(self.socket, self.pid)
            self._is_too_large = bool(self.samples.sizes) and self.samples.sizes[-1][2] > MOST_RESIDENT
            self.iterate(min(DELAY_INTERVAL, max(0.001, deadline - now())))
            self.processor = processor_seconds(self.pid) or self.processor
            if now() > due:
                due = now() + HELD_INTERVAL
                self.samples.take_memory(self.pid)
                if not self._asking:
                    self._ask_statistics()

    def _ask_statistics(self):
        """Asks what the service holds, without waiting for the answer."""
        self._asking = True
        asked = now()

        def answered(connection, result):
            self._asking = False
            try:
                (counters,) = connection.call_finish(result).unpack()
            except GLib.Error:
                return
            self.held.append((asked, now(), counters["memory-bytes"]))
            self.registered = max(self.registered, counters["observers"])

        self.connection.call(
            BUS_NAME, OBJECT_PATH, PROPERTIES, "Get", GLib.Variant("(ss)", (INTERFACE, "Statistics")), None,
            Gio.DBusCallFlags.NONE, PATIENCE * 1000, None, answered,
        )

    @property
    def most_held(self):
        return max((held for _, _, held in self.held), default=0)

    def uncounted(self, is_timed):
        """Where the service had more memory than what it said that it holds explains: pairs of time and text."""
        besides = MOST_BESIDES + LARGEST_MESSAGES.get(self.case, 0)
        found, judged = self.samples.uncounted(self.held, MOST_PER_HELD, besides)
        if is_timed and judged < len(self.samples.memory) * LEAST_JUDGED:
            yield self.began, f"of {len(self.samples.memory)} samples of its memory only {judged} could be judged"
        for moment, memory, held in found:
            yield moment, f"it had {memory / 2**20:.1f} MiB of memory, and said that it held {held / 2**20:.1f}"

    def _read_case(self, said):
        """What the case reached, and whether that was what it wanted."""
        lines = [(line.partition(" ")[0], json.loads(line.partition(" ")[2] or "[]")) for line in said]
        for word, rest in lines:
            if word == "reached":
                what, value, wanted = rest
                _, before = self.reached.get(what, (0, -1))
                self.reached[what] = (wanted, max(value, before))
        self.acted = any(word == "acting" for word, _ in lines)
        if not self.acted and not self._is_too_large:
            failures = [rest[0] for word, rest in lines if word == "failed"]
            self.note(f"the case did not reach its state in time {failures[:2] or ''}")
        for what, (wanted, value) in self.reached.items():
            if value < wanted * 0.98:
                self.note(f"the case reached {value} {what} of {wanted}")


def try_case(case, kind, options):
    """Runs one case on one bus. Returns what was measured, as what JSON can hold."""
    directory = tempfile.mkdtemp(prefix="carillon-cases-")
    trial = Trial(case, kind, options, directory)
    report = None
    try:
        trial.play()
    except Failure as failure:
        trial.note(str(failure))
    finally:
        trial.stop()
    try:
        with open(os.path.join(directory, "probe.records"), encoding="utf-8") as file:
            report = json.load(file)
    except OSError:
        trial.note("the probe reported nothing")
    resident = max((size[2] for size in trial.samples.sizes), default=0)
    if resident > MOST_RESIDENT:
        trial.note(f"the service has {resident >> 20} MiB of memory, and says that it holds {trial.most_held >> 20}")
    faults = list(trial.broken) + list(trial.uncounted(not options.untimed))
    result = {"case": case, "bus": kind, "answers": [], "own": [], "bus answers": []}
    if report:
        faults += map(tuple, report["faults"])
        faults += missing(report)
        result["answers"] = [answer for each in ANSWERS for answer in report["answers"][each]]
        result["own"] = own(trial, report["answers"])
        result["bus answers"] = report["answers"]["bus"]
        if not options.untimed:
            faults += too_late(trial, report["answers"], options.bound / 1000)
    result |= {
        "faults": described(faults, trial.began), "reached": trial.reached, "held": trial.most_held,
        "observers": trial.registered, "processor": trial.processor, "resident": resident,
        "memory": max((memory for _, memory in trial.samples.memory), default=0),
    }
    if faults or options.keep:
        result["directory"] = directory
    else:
        shutil.rmtree(directory)
    return result


def slowest(bus, sent, seconds):
    """How long the bus took for an answer at most, of those under way in that time, and within it."""
    end = sent + seconds
    return max((min(asked + took, end) - max(asked, sent) for asked, took in bus if asked < end and asked + took > sent), default=0)


def missing(report):
    """The answers that did not come, while those of the bus did."""
    bus = report["answers"]["bus"]
    return [
        (sent, f"no answer to {kind} within {seconds:.0f} s")
        for sent, seconds, kind in report["missing"] if slowest(bus, sent, seconds) < seconds / 2
    ]


def excused(trial, answers, sent, seconds):
    """Of the seconds that an answer took, those that are not the service's: as long as the bus took for one, or as the
    service had no processor or nothing to do."""
    bus = slowest(answers["bus"], sent, seconds)
    waited = trial.samples.without_processor(sent, sent + seconds, 2 * DELAY_INTERVAL)
    elsewhere = trial.samples.seconds_elsewhere(sent, sent + seconds)
    return {"the bus answered": bus, "without a processor": waited, "without a processor or at the bus": elsewhere}


def own(trial, answers):
    """The answers with the seconds that are the service's own."""
    return [
        (sent, max(0.0, seconds - max(excused(trial, answers, sent, seconds).values())) if seconds > LONG else seconds)
        for kind in ANSWERS for sent, seconds in answers[kind]
    ]


def too_late(trial, answers, bound):
    """The answers that took the service itself longer than the bound."""
    late = []
    for kind in ANSWERS:
        for sent, seconds in answers[kind]:
            if seconds <= bound:
                continue
            parts = excused(trial, answers, sent, seconds)
            if seconds - max(parts.values()) > bound:
                reasons = ", ".join(f"{part * 1000:.0f} ms {reason}" for reason, part in parts.items())
                late.append((sent, f"{kind} was answered after {seconds * 1000:.0f} ms: {reasons}"))
    return late


def described(faults, began):
    """The first of each kind of fault as texts, with the seconds since the beginning."""
    texts = []
    for kind in alike(faults):
        texts += [f"at {moment - began:.2f} s: {text}" for moment, text in kind[:2]]
        if len(kind) > 2:
            texts.append(f"… and {len(kind) - 2} more like this")
    return texts


# All cases


def try_in_process(case, kind, options):
    """Runs one case in a process of its own, as each has an event loop."""
    words = [sys.executable, "-B", os.path.abspath(__file__), "--one", case, kind, "--binaries", options.binaries]
    for name in ("seconds", "scale", "bound", "seed"):
        words += [f"--{name}", str(getattr(options, name))]
    words += [f"--{name}" for name in ("untimed", "keep") if getattr(options, name)]
    ran = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=False)
    try:
        return json.loads(ran.stdout.splitlines()[-1])
    except (ValueError, IndexError):
        text = f"the trial ended with {ran.returncode}: {ran.stdout[-500:]}"
        return {
            "case": case, "bus": kind, "answers": [], "own": [], "bus answers": [], "faults": [text], "reached": {}, "held": 0,
            "observers": 0, "processor": 0, "resident": 0, "memory": 0,
        }


def milliseconds(measured, *keys):
    """These numbers of a summary as columns."""
    return " ".join(f"{measured[key] * 1000:8.1f}" for key in keys)


COLUMNS = ("p50", "p99", "p99.9", "max")
TITLE = (
    f"{'case':26}{'bus':12}{'answers':>8} {'p50':>8} {'p99':>8} {'p99.9':>8} {'max':>8}  {'own 99.9':>8} {'own max':>8}  {'bus 99.9':>8} {'bus max':>8}"
    f" {'cpu s':>6} {'MiB':>5} {'own':>5} {'held':>5} {'observers':>9}  reached   (times in ms)"
)


def line(result):
    """What was measured beside one case."""
    measured = result["measured"]
    return (
        f"{result['case']:26}{result['bus']:12}{measured['count']:8} {milliseconds(measured, *COLUMNS)}  "
        f"{milliseconds(result['own measured'], 'p99.9', 'max')}  "
        f"{milliseconds(result['bus measured'], 'p99.9', 'max')} {result['processor']:6.2f} "
        f"{result['resident'] >> 20:5} {result['memory'] >> 20:5} {result['held'] >> 20:5} {result['observers']:9}  "
        + ", ".join(f"{value} {what}" for what, (_, value) in result["reached"].items())
    )


def trials(options):
    """Pairs of case and bus."""
    cases = [case for case in options.only or CASES if case not in options.without]
    kinds = [kind for kind in wanted(options) if buses.available(kind)]
    if options.bus == "turns":
        return [(case, kinds[index % len(kinds)]) for index, case in enumerate(cases)]
    return [(case, kind) for kind in kinds for case in cases]


def wanted(options):
    """The buses on which cases shall run."""
    return buses.KINDS if options.bus in ("both", "turns") else (options.bus,)


def run_all(options):
    """Runs all that is wanted and prints each as it ends. Returns the results, and the seconds of all answers."""
    results, everything, own_of_all = [], [], []
    print(TITLE, flush=True)
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        running = [pool.submit(try_in_process, case, kind, options) for case, kind in trials(options)]
        for future in concurrent.futures.as_completed(running):
            result = future.result()
            seconds = list(corrected(result.pop("answers"), INTERVAL))
            everything += seconds
            result["measured"] = summary(seconds)
            own_seconds = list(corrected(result.pop("own"), INTERVAL))
            own_of_all += own_seconds
            result["own measured"] = summary(own_seconds)
            result["bus measured"] = summary(corrected(result.pop("bus answers"), BUS_INTERVAL))
            results.append(result)
            print(line(result), flush=True)
            for fault in result["faults"]:
                print(f"BROKEN {result['case']} on {result['bus']}: {fault}", flush=True)
            if result.get("directory"):
                print(f"       what bus, service and case wrote: {result['directory']}", flush=True)
    return results, everything, own_of_all


def conclude(results, everything, own_of_all, options):
    """Prints the worst and what all cases together had. Returns whether everything held."""
    print(f"\nThe worst:\n{TITLE}")
    for result in sorted(results, key=lambda result: -result["measured"]["max"])[:WORST]:
        print(line(result))
    print(f"\n{len(results)} trials, {len(everything)} answers:")
    for what, seconds in (("all in all", everything), ("of the service", own_of_all)):
        measured = summary(seconds)
        print(f"{what:16}" + ", ".join(f"{key} {measured[key] * 1000:.1f} ms" for key in COLUMNS))
    broken = [result for result in results if result["faults"]]
    slow = not options.untimed and measured["p99.9"] * 1000 > MOST_OF_ALL
    if slow:
        late = measured["p99.9"] * 1000
        print(f"BROKEN: 99.9 % of all answers took the service up to {late:.1f} ms, the bound is {MOST_OF_ALL} ms")
    for result in broken:
        again = f"--only {result['case']} --bus {result['bus']} --seconds {options.seconds:g} --scale {options.scale:g}"
        print(f"--- to repeat: tools/chaos --cases {again}")
    return not broken and not slow


def main():
    options = arguments()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _frame: sys.exit(128 + number))
    # For the bus, which dbus-broker's launcher gives as many.
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if options.one:
        print(json.dumps(try_case(*options.one, options)))
        return
    for kind in wanted(options):
        if not buses.available(kind):
            print(f"skipped: {kind}, which is not installed", flush=True)
            if os.environ.get("CI") == "true" or len(wanted(options)) == 1:
                sys.exit(1)
    if not conclude(*run_all(options), options):
        print("\nFAILED: see above")
        sys.exit(1)
    print("\nEverything held.")


if __name__ == "__main__":
    main()
