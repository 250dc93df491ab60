#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the commands that documents show, and compares what they print with what is shown of it.

    shown_commands.py --binaries DIRECTORY [--list] [--verbose] [DOCUMENT …]

Each document has a private bus that starts the real service, and a scratch directory. Its blocks are run in order; a
section that goes wrong is given up, and the next one goes on. Prints a line for each block, and at the end
`N passed, N failed, N skipped`. Exit status: 0 when nothing failed, 1 when something did, 2 for wrong usage.

blocks.py says what a document can ask for.
"""

import argparse
import importlib.util
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time

import blocks
import matching
import record_terminal
import stage
from stage import Stage, StageError, wait_for

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

#: Between the outputs of the commands of one block.
MARK = "\x01end of command"

#: What a bus says that was started as root in a container, and nobody sees elsewhere.
NOISE = re.compile(r"dbus-daemon\[\d+\]: .*Failed to set fd limit")


class Failure(Exception):
    """Why a block failed."""


class Report:
    """What became of each block."""

    def __init__(self, verbose):
        self.passed = self.failed = self.skipped = 0
        self.verbose = verbose

    def passes(self, place, what):
        self.passed += 1
        if self.verbose:
            print(f"passed: {place}: {what}", flush=True)

    def fails(self, place, why):
        self.failed += 1
        print(f"FAILED: {place}: {why}", flush=True)

    def skips(self, place, why):
        self.skipped += 1
        print(f"skipped: {place}: {why}", flush=True)


class Running:
    """A block whose commands run, one after the other, in one shell."""

    def __init__(self, where, path, step, number):
        if step.language == "console":
            self.commands = blocks.commands(path, step)
        else:
            self.commands = [[step.text.rstrip("\n"), None]]
        self.step = step
        self.output = f"{where.directory}/output-{number}"
        # The status of a command is that of the next one's `$?`, as at a prompt.
        script = "".join(
            f"{command}\n__status=$?; printf '\\n%s %s\\n' '{MARK}' $__status; (exit $__status)\n"
            for command, _ in self.commands)  # fmt: skip
        if step.language == "sh":
            script = step.text
        file = f"{where.directory}/block-{number}"
        with open(file, "w", encoding="utf-8") as stream:
            stream.write(script)
        arguments = ["bash", "-e", "-u", "-o", "pipefail", file] if step.language == "sh" else ["bash", file]
        with open(self.output, "wb") as stream:
            self.process = where.start(arguments, stdout=stream, stderr=subprocess.STDOUT)

    def text(self):
        with open(self.output, encoding="utf-8", errors="replace") as stream:
            return stream.read()

    def parts(self):
        """What each command printed so far, and its exit status, None for the one that runs."""
        result, lines = [], []
        for line in self.text().split("\n"):
            if line.startswith(MARK):
                if lines and not lines[-1]:
                    lines.pop()  # The line break before the mark.
                result.append((lines, int(line.rpartition(" ")[2])))
                lines = []
            elif not NOISE.match(line):
                lines.append(line)
        if lines and not lines[-1]:
            lines.pop()
        return [*result, (lines, None)] if len(result) < len(self.commands) else result


class Runner:
    """Runs one document."""

    def __init__(self, where, document, report):
        self.stage = where
        self.document = document
        self.report = report
        self.number = 0
        self.open = []
        self.given_up = ""

    def place(self, step):
        return f"{self.document.path}:{step.line}"

    def run(self):
        for step in self.document.steps:
            if step.kind == "heading":
                self.end_section()
                continue
            if step.kind == "block" and not is_for_test(step):
                continue
            if self.given_up:
                if step.kind == "block":
                    self.report.skips(self.place(step), self.given_up)
                continue
            try:
                self.run_step(step)
            except (Failure, StageError, blocks.DocumentError) as failure:
                self.report.fails(self.place(step), failure)
                self.given_up = f"something before it in this section failed: {self.place(step)}"
        self.end_section()

    def run_step(self, step):
        if step.kind == "check":
            wait_for(f"this succeeds: {step.text}", lambda: self.stage.succeeds(step.text))
            self.report.passes(self.place(step), step.text)
            return
        if step.no_run:
            self.report.skips(self.place(step), step.no_run)
            return
        needs = [need for need in step.options.get("needs", "").split(",") if need]
        lacking = ["Xvfb" if need == "display" else need for need in needs
                   if not is_there(need) and not os.access(f"{self.stage.binaries}/{need}", os.X_OK)]  # fmt: skip
        if lacking:
            self.given_up = f"not installed: {', '.join(lacking)}"
            self.report.skips(self.place(step), self.given_up)
            return
        if "display" in needs:
            self.stage.start_display()
        if {"same-as", "part-of"} & set(step.options):
            compare(step)
        elif "file" in step.options:
            with open(f"{self.stage.scratch}/{step.options['file']}", "w", encoding="utf-8") as file:
                file.write(step.text)
        if step.language in blocks.COMMANDS:
            self.run_commands(step)
        else:
            self.report.passes(self.place(step), " ".join(step.options.values()))

    def run_commands(self, step):
        self.number += 1
        running = Running(self.stage, self.document.path, step, self.number)
        if not step.goes_on:
            self.finish(running)
            self.report.passes(self.place(step), running.commands[0][0].split("\n")[0])
            return
        self.open.append(running)
        until = step.options.get("until")

        def begun():
            if running.process.poll() is not None:
                raise Failure(f"it has ended:\n{indented(running.text())}")
            if until:
                return self.stage.succeeds(until)
            lines, status = running.parts()[-1]
            shown = running.commands[-1][1] or []
            if not shown:
                raise blocks.DocumentError("a block that goes on shows output, or has until=\"COMMAND\"")
            return len(running.parts()) == len(running.commands) and status is None and lines and \
                matching.matches(shown[:1], lines, self.document.differs, is_over=False)  # fmt: skip

        wait_for(lambda: f"the last command goes on; so far:\n{indented(running.text())}", begun)

    def finish(self, running):
        """Waits for a block to end, and compares."""
        try:
            running.process.wait(stage.COMMAND_PATIENCE)
        except subprocess.TimeoutExpired:
            raise Failure(f"it does not end; so far:\n{indented(running.text())}") from None
        allowed = int(running.step.options.get("status", 0))
        if running.step.language == "sh":
            if running.process.returncode != allowed:
                raise Failure(f"it ends with status {running.process.returncode}:\n{indented(running.text())}")
            return
        parts = running.parts()
        for index, (command, shown) in enumerate(running.commands):
            if index >= len(parts) or parts[index][1] is None:
                raise Failure(f"the shell ended before '{command}' did:\n{indented(running.text())}")
            lines, status = parts[index]
            is_last = index == len(running.commands) - 1
            is_asked = not is_last and "$?" in running.commands[index + 1][0]
            if status != (allowed if is_last else 0) and not is_asked:
                raise Failure(f"'{command}' ends with status {status}:\n" + indented("\n".join(lines)))
            self.check_output(command, shown, lines)

    def check_output(self, command, shown, lines, is_over=True):
        if not matching.matches(shown, lines, self.document.differs, is_over):
            raise Failure(f"'{command}' prints\n" + indented("\n".join(lines)) + "\nand shown is\n" +
                          indented("\n".join(shown)))  # fmt: skip

    def end_section(self):
        """What was left running has printed all that is shown, and ends."""
        for running in self.open:
            command, shown = running.commands[-1]
            try:
                if shown is not None:
                    # All of it, and nothing more: what would come too often has the time of a round trip to come.
                    try:
                        wait_for("", lambda: matching.matches(shown, running.parts()[-1][0], self.document.differs))
                    except StageError:
                        self.check_output(command, shown, running.parts()[-1][0])
                    self.stage.run(["carillon", "status"])
                    self.check_output(command, shown, running.parts()[-1][0])
                for index, (earlier, earlier_shown) in enumerate(running.commands[:-1]):
                    self.check_output(earlier, earlier_shown, running.parts()[index][0])
                self.report.passes(self.place(running.step), command.split("\n")[0])
            except (Failure, StageError) as failure:
                if not self.given_up:
                    self.report.fails(self.place(running.step), failure)
            finally:
                interrupt(running.process)
        self.open = []
        self.given_up = ""


def compare(step):
    """Whether a block stands in a file that other tests run."""
    path = step.options.get("same-as") or step.options["part-of"]
    with open(f"{ROOT}/{path}", encoding="utf-8") as file:
        there = [line for line in file.read().splitlines() if "SPDX-License-Identifier" not in line]
    shown = step.text.splitlines()
    if "same-as" in step.options:
        if there != shown:
            raise Failure(f"this is not what stands in {path}")
        return
    # Indented as it may be there.
    there, shown = ([line.strip() for line in lines] for lines in (there, shown))
    if not any(there[start:start + len(shown)] == shown for start in range(len(there))):
        raise Failure(f"this is no part of {path}")


def interrupt(process):
    """What Ctrl-C does, and more for who does not heed it."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        if process.poll() is not None:
            return
        os.killpg(process.pid, number)
        os.killpg(process.pid, signal.SIGCONT)  # A document may have stopped some of them.
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            continue


def is_for_test(step):
    """Whether a block is run, or has to say why not. Other languages are run where they say how."""
    return step.language in blocks.COMMANDS or bool(step.options) or bool(step.no_run)


def is_there(need):
    """Whether something that a block needs is installed."""
    kind, separator, name = need.partition(":")
    if need == "display":
        return is_there("Xvfb")
    if not separator:
        return shutil.which(need) is not None or os.access(f"/usr/sbin/{need}", os.X_OK)
    if kind == "module":
        return importlib.util.find_spec(name) is not None
    if kind == "pkg-config":
        return subprocess.run(["pkg-config", "--exists", name], check=False).returncode == 0
    if kind == "typelib":
        places = subprocess.run(
            ["sh", "-c", f"ls /usr/lib/girepository-1.0/{shlex.quote(name)}.typelib "
             f"/usr/lib/*/girepository-1.0/{shlex.quote(name)}.typelib 2>/dev/null"],
            check=False, capture_output=True)  # fmt: skip
        return bool(places.stdout)
    raise blocks.DocumentError(f"needs={need}: there is no such kind")


def indented(text):
    return "\n".join("    | " + line for line in text.rstrip("\n").replace(MARK, "(status)").split("\n"))


def default_documents():
    guides = os.path.join(ROOT, "docs/guides")
    names = sorted(f"docs/guides/{name}" for name in os.listdir(guides) if name.endswith(".md"))
    return ["README.md", *names, "docs/beyond.md"]


def check_picture(binaries, report):
    """Whether the picture of README can still be recorded, and shows what a run gives now."""
    if not is_there("tmux"):
        report.skips(record_terminal.PICTURE, "not installed: tmux")
        return
    try:
        difference = record_terminal.check(binaries)
    except (StageError, OSError, subprocess.CalledProcessError) as error:
        difference = str(error)
    if difference:
        report.fails(record_terminal.PICTURE, difference)
    else:
        report.passes(record_terminal.PICTURE, "recorded again")


def main():
    parser = argparse.ArgumentParser(description="Runs the commands that documents show.")
    parser.add_argument("--binaries", required=True, help="where carillon and carillond are")
    parser.add_argument("--verbose", action="store_true", help="a line for each block that passes, too")
    parser.add_argument("documents", nargs="*", help="from the root of the repository; README.md, docs/guides and docs/beyond.md if none")
    options = parser.parse_args()

    # Ended by a signal, what was started ends too.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _frame: sys.exit(128 + number))
    report = Report(options.verbose)
    for path in options.documents or default_documents():
        begin, before = time.monotonic(), (report.passed, report.failed, report.skipped)
        try:
            with open(f"{ROOT}/{path}", encoding="utf-8") as file:
                document = blocks.parse(path, file.read())
            with Stage(options.binaries, ROOT) as where:
                Runner(where, document, report).run()
                if report.failed > before[1]:
                    print(f"the bus and the service of {path} said:\n{indented(where.bus_log())}", flush=True)
        except (blocks.DocumentError, OSError, StageError) as error:
            report.fails(path, error)
        now = (report.passed, report.failed, report.skipped)
        counts = ", ".join(f"{after - first} {word}" for after, first, word in
                           zip(now, before, ("passed", "failed", "skipped")))  # fmt: skip
        print(f"{path}: {counts}, {time.monotonic() - begin:.1f} s", flush=True)
    if not options.documents:
        check_picture(options.binaries, report)
    if report.passed == 0:
        report.fails("all documents", "not one block was run")
    print(f"{report.passed} passed, {report.failed} failed, {report.skipped} skipped")
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main())
