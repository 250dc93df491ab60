# SPDX-FileCopyrightText: The Carillon authors
# SPDX-License-Identifier: Apache-2.0
"""The program behind tools/chaos, which says what it does."""

import argparse
import faulthandler
import os
import random
import shutil
import signal
import sys
import tempfile

try:
    import gi

    gi.require_version("Gio", "2.0")
except (ImportError, ValueError) as problem:
    print(f"cannot run: {problem} (needs python3-gi)", file=sys.stderr)
    sys.exit(77)

import buses  # noqa: E402
from hostile import KINDS  # noqa: E402
from judge import SLACK_BYTES, SLACK_DESCRIPTORS, Verdict, alike  # noqa: E402
from stage import Failure, Stage  # noqa: E402
from trouble import HARMS, make_trouble  # noqa: E402


def arguments():
    parser = argparse.ArgumentParser(prog="tools/chaos", allow_abbrev=False)
    parser.add_argument("--binaries", required=True, help="the directory with carillond and carillon")
    parser.add_argument("--seconds", type=float, required=True, help="the length of the load on each bus")
    parser.add_argument("--seed", default=str(random.SystemRandom().randrange(10**6)))
    parser.add_argument("--bus", choices=[*buses.KINDS, "both"], default="both")
    parser.add_argument("--only", action="append", choices=list(KINDS), help="hostile clients of this kind only")
    parser.add_argument("--without", action="append", choices=list(KINDS), default=[], help="none of this kind")
    parser.add_argument("--kill-every", type=float, default=6, help="seconds on average; 0 is never")
    parser.add_argument("--scale", type=float, default=1, help="how much of everything hostile clients do")
    parser.add_argument("--bound", type=float, default=1, help="seconds within which a call is answered")
    parser.add_argument("--keep", action="store_true", help="keep the records of a good run, too")
    return parser.parse_args()


def run(kind, options):
    """One run on one bus. Returns whether everything held."""
    directory = tempfile.mkdtemp(prefix="carillon-chaos-")
    kinds = [each for each in options.only or KINDS if each not in options.without]
    executables = {name: os.path.join(options.binaries, name) for name in ("carillond", "carillon")}
    faulthandler.register(signal.SIGUSR1)
    print(f"\n{kind}, seed {options.seed}, {options.seconds:g} s", flush=True)
    stage = Stage(
        kind, options.seed, options.seconds, options.scale, executables, directory, kinds, options.kill_every
    )
    try:
        stage.start()
        stage.play()
        stage.settle()
        stage.rest(SLACK_BYTES, SLACK_DESCRIPTORS)
        stage.end_actors()
        make_trouble(stage, round(len(HARMS) * min(1, options.scale)))
    except Failure as failure:
        stage.note(str(failure))
    finally:
        stage.stop()
    verdict = Verdict(stage, options.bound)
    for line in verdict.lines:
        print(f"    {line}")
    for faults in alike(verdict.faults):
        for time, text in faults[:3]:
            print(f"BROKEN {describe(stage, time)}: {text}")
        if len(faults) > 3:
            print(f"       … and {len(faults) - 3} more like this")
    if verdict.faults:
        print(f"--- the end of the log of the bus and the service, which with all records is in {directory}")
        print(stage.bus.log_tail())
        print(f"--- to repeat: {repetition(kind, options)}")
    elif options.keep:
        print(f"    records: {directory}")
    else:
        shutil.rmtree(directory)
    return not verdict.faults


def describe(stage, time):
    """When that was in the plan, and who was hostile then."""
    if stage.began is None or time < stage.began - 60:
        return "at some time"
    moment = time - stage.began
    active = [bout.kind for bout in stage.bouts if bout.start - 0.5 <= moment <= bout.end + 2]
    killed = [at - stage.began for at, _ in stage.kills if at <= time]
    last = f", {moment - max(killed):.2f} s after a kill" if killed else ""
    return f"at {moment:.2f} s{last}, beside {' '.join(active) or 'nobody'}"


def repetition(kind, options):
    """The command that does the same again, as far as chance allows."""
    words = [f"tools/chaos --minutes {options.seconds / 60:.10g} --seed {options.seed} --bus {kind}"]
    words += [f"--only {each}" for each in options.only or []] + [f"--without {each}" for each in options.without]
    words += [f"--kill-every {options.kill_every:g}"] if options.kill_every != 6 else []
    words += [f"--scale {options.scale:g}"] if options.scale != 1 else []
    words += ["--debug"] if options.bound != 1 else []
    return " ".join(words)


def main():
    options = arguments()
    # Ended by a signal, what was started ends too.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _frame: sys.exit(128 + number))
    wanted = buses.KINDS if options.bus == "both" else (options.bus,)
    kinds = [kind for kind in wanted if buses.available(kind)]
    for kind in set(wanted) - set(kinds):
        print(f"skipped: {kind}, which is not installed", flush=True)
        if os.environ.get("CI") == "true" or options.bus != "both":
            sys.exit(1)
    results = [run(kind, options) for kind in kinds]
    if not all(results):
        print("\nFAILED: see above")
        sys.exit(1)
    print("\nEverything held.")


if __name__ == "__main__":
    main()
