# SPDX-License-Identifier: Apache-2.0
"""The fenced blocks of a Markdown document, and what their info strings ask for.

The first word of an info string is the language, as on every site that shows Markdown. What follows is for the test:

    no-run: REASON      not run; the reason is printed. It goes to the end of the line
    file=NAME           the block is the contents of this file, which the commands behind it use
    goes-on             the last command is still running when the next block begins: its output up to there has come, and
                        the rest comes by the end of the section, when the command gets SIGINT
    until="COMMAND"     with goes-on: the next block begins when this command succeeds
    status=N            the last command of the block ends with this exit status instead of 0
    needs=A,B           programs (`xvfb-run`), modules of Python (`module:gi`), typelibs (`typelib:Gtk-3.0`) or packages of
                        pkg-config (`pkg-config:gio-2.0`), or a `display`, which is started, without which the block and the rest of its section are skipped
    same-as=PATH        the block is the same as this file of the repository, which other tests run
    part-of=PATH        its lines stand so, one behind the other, in this file

A comment `<!-- differs: PATTERN: REASON -->` says for the rest of the document that what matches differs from run to run.
A comment `<!-- check: COMMAND -->` is a command that is run there, again and again until it succeeds, and is not shown.
In the output of a console block `…` stands for anything within a line, and alone on a line for any number of lines.
"""

import re
import shlex
from dataclasses import dataclass, field

#: Languages of blocks that people type in, each of which must be run or say why not.
COMMANDS = {"console", "sh"}

_KEYS = {"file", "until", "status", "needs", "same-as", "part-of"}


class DocumentError(Exception):
    """What is wrong with a document, with the place."""


@dataclass
class Step:
    """A block, a hidden check, or the heading that begins a section."""

    kind: str  # "block", "check" or "heading"
    line: int
    text: str
    language: str = ""
    no_run: str = ""
    goes_on: bool = False
    options: dict = field(default_factory=dict)


@dataclass
class Document:
    path: str
    steps: list
    differs: list


def parse(path, text):
    """The steps of a document, in its order."""
    steps, differs = [], []
    lines = text.split("\n")
    at = 0
    while at < len(lines):
        line = lines[at]
        number = at + 1
        if match := re.match(r"(`{3,}|~{3,})\s*(.*)$", line):
            fence, info = match.groups()
            body = []
            at += 1
            while at < len(lines) and not re.match(re.escape(fence[0]) + "{%d,}\\s*$" % len(fence), lines[at]):
                body.append(lines[at])
                at += 1
            if at == len(lines):
                raise DocumentError(f"{path}:{number}: this block never ends")
            steps.append(_block(path, number, info.strip(), "\n".join(body) + "\n"))
        elif match := re.match(r"<!--\s*(differs|check):\s*(.*?)\s*-->\s*$", line):
            kind, value = match.groups()
            if kind == "check":
                steps.append(Step("check", number, value))
            else:
                pattern, separator, reason = value.rpartition(": ")
                if not separator or not reason:
                    raise DocumentError(f"{path}:{number}: 'differs' has no reason: <!-- differs: PATTERN: REASON -->")
                try:
                    differs.append(re.compile(pattern))
                except re.error as error:
                    raise DocumentError(f"{path}:{number}: {pattern!r} is no pattern: {error}") from error
        elif re.match(r"<!--\s*(differs|check)\b", line):
            raise DocumentError(f"{path}:{number}: a comment for the test stands on one line")
        elif match := re.match(r"#{1,6}\s+(.*)$", line):
            steps.append(Step("heading", number, match.group(1)))
        at += 1
    return Document(path, steps, differs)


def _block(path, number, info, text):
    language, _, rest = info.partition(" ")
    step = Step("block", number, text, language=language)
    before, marker, reason = rest.partition("no-run:")
    if marker:
        step.no_run = reason.strip()
        if not step.no_run:
            raise DocumentError(f"{path}:{number}: 'no-run:' without a reason")
        rest = before
    try:
        words = shlex.split(rest)
    except ValueError as error:
        raise DocumentError(f"{path}:{number}: {error}: {rest}") from error
    for word in words:
        key, separator, value = word.partition("=")
        if word == "goes-on":
            step.goes_on = True
        elif separator and key in _KEYS and value:
            step.options[key] = value
        else:
            raise DocumentError(f"{path}:{number}: {word!r} is nothing that a block can ask for")
    if "until" in step.options and not step.goes_on:
        raise DocumentError(f"{path}:{number}: 'until' is for a block that goes on")
    if "status" in step.options and not step.options["status"].isdigit():
        raise DocumentError(f"{path}:{number}: status={step.options['status']} is no number")
    return step


def commands(path, step):
    """The commands of a console block, each with the lines of output that are shown behind it."""
    result = []
    continued = False
    for offset, line in enumerate(step.text.rstrip("\n").split("\n") if step.text.strip() else []):
        if continued:
            result[-1][0] += "\n" + (line[2:] if line.startswith("> ") else line)
        elif line.startswith("$ "):
            result.append([line[2:], []])
        elif line.startswith("> ") and result and not result[-1][1]:
            result[-1][0] += "\n" + line[2:]
        elif result:
            result[-1][1].append(line)
        else:
            raise DocumentError(f"{path}:{step.line + 1 + offset}: output without a command before it")
        continued = bool(result) and not result[-1][1] and result[-1][0].endswith("\\")
    return result
