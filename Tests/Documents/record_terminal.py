#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Records the picture of README.md: two terminals, in which real commands are typed to the real service.

    record_terminal.py --binaries DIRECTORY [--check] [--output FILE]

Each terminal is a pane of tmux with a shell, on a private bus. What stands in them at the end becomes an SVG. With --check
nothing is written: the text is compared with that of the picture that is there, without what the bus numbers.
Exit status: 0 done or the same, 1 something else, 77 there is no tmux.
"""

import argparse
import html
import os
import re
import shutil
import subprocess
import sys

import matching
from stage import Stage, StageError, wait_for

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PICTURE = "docs/images/terminal.svg"
COLUMNS = 88

#: Terminal, what is typed, and what is waited for in which terminal.
SCENE = [
    ("observer", "carillon observe", ("observer", "observing all names")),
    ("poster", "carillon post com.example.Saved --object report.txt bytes=4711 clean=true", ("observer", "report.txt")),
    ("poster", "carillon post com.example.Battery --object BAT0 --retain percent=80", ("observer", "BAT0")),
    ("poster", "echo status=ok seconds=12.5 | carillon post com.example.Build --lines --verbose", ("observer", "12.5")),
    ("poster", "carillon get com.example.Battery", ("poster", r"\nc\S+ +BAT0")),
]
TERMINALS = {"observer": 6, "poster": 7}

#: The colors of a terminal: the eight, and the bright ones.
PALETTE = ["#3b4048", "#ef6b73", "#8ccf7e", "#e5c76b", "#67b0e8", "#c47fd5", "#6cbfbf", "#d7dde4",
           "#6d7681", "#f48b91", "#a4dc98", "#f0d994", "#8cc5f0", "#d6a0e3", "#8fd4d4", "#ffffff"]  # fmt: skip
INK, PAPER, BAR = "#d7dde4", "#181b20", "#262b32"


class Tmux:
    """A server of tmux of its own, with a session for each terminal."""

    def __init__(self, stage):
        self.stage = stage
        self.socket = f"{stage.directory}/tmux"
        self.environment = stage.environment | {"TERM": "xterm-256color", "PS1": "$ ", "SHELL": "/bin/bash"}

    def run(self, *arguments):
        return subprocess.run(
            ["tmux", "-S", self.socket, "-f", "/dev/null", *arguments], env=self.environment, check=True, cwd=self.stage.scratch,
            capture_output=True, encoding="utf-8").stdout  # fmt: skip

    def open(self, name, rows):
        self.run("new-session", "-d", "-s", name, "-x", str(COLUMNS), "-y", str(rows),
                 "env PS1='$ ' bash --norc --noprofile -i")  # fmt: skip
        wait_for(f"a shell in the terminal {name}", lambda: "$" in self.text(name))

    def type(self, name, line):
        self.run("send-keys", "-t", name, "-l", line)
        self.run("send-keys", "-t", name, "Enter")

    def text(self, name, *options):
        return self.run("capture-pane", "-p", "-t", name, *options)

    def end(self):
        subprocess.run(["tmux", "-S", self.socket, "kill-server"], env=self.environment, check=False, capture_output=True)


def record(binaries):
    """The lines of each terminal, with their escape sequences."""
    with Stage(binaries, ROOT) as stage:
        tmux = Tmux(stage)
        try:
            for name, rows in TERMINALS.items():
                tmux.open(name, rows)
            for name, line, (where, pattern) in SCENE:
                tmux.type(name, line)
                wait_for(lambda: f"{pattern!r} in the terminal {where}, which shows\n{tmux.text(where)}",
                         lambda: re.search(pattern, tmux.text(where)))  # fmt: skip
                # The prompt is back, except behind what goes on.
                if name == "poster":
                    wait_for("a prompt", lambda: tmux.text(name).rstrip("\n ").endswith("\n$"))
            for name in TERMINALS:
                if not tmux.text(name).startswith("$ carillon"):
                    raise StageError(f"the terminal {name} has too few rows: its first line is gone")
            return {name: tmux.text(name, "-e").rstrip("\n").split("\n") for name in TERMINALS}
        finally:
            tmux.end()


def spans(line):
    """The parts of a line with their styles, from its escape sequences."""
    color, bold, dim = INK, False, False
    for index, part in enumerate(re.split(r"\x1b\[([0-9;]*)m", line)):
        if index % 2 == 0:
            if part:
                yield part, color, bold, dim
            continue
        codes = [int(code or 0) for code in part.split(";")]
        while codes:
            code = codes.pop(0)
            if code == 0:
                color, bold, dim = INK, False, False
            elif code == 1:
                bold = True
            elif code == 2:
                dim = True
            elif code == 22:
                bold = dim = False
            elif 30 <= code <= 37:
                color = PALETTE[code - 30]
            elif 90 <= code <= 97:
                color = PALETTE[code - 90 + 8]
            elif code == 39:
                color = INK
            elif code in (38, 48) and codes:
                kind = codes.pop(0)
                value, codes = (codes[:1], codes[1:]) if kind == 5 else (codes[:3], codes[3:])
                if code == 38:
                    color = PALETTE[value[0]] if kind == 5 and value[0] < 16 else INK


def picture(terminals):
    """An SVG of the terminals, one below the other."""
    width_of, height_of, margin, bar = 8.4, 20, 14, 30
    width = round(COLUMNS * width_of + 2 * margin)
    parts, top = [], 0
    for name, lines in terminals.items():
        height = bar + 2 * 10 + len(lines) * height_of
        parts.append(f'<g transform="translate(0 {top})"><rect width="{width}" height="{height}" rx="9" fill="{PAPER}"/>'
                     f'<path d="M0 {bar}V9a9 9 0 0 1 9-9h{width - 18}a9 9 0 0 1 9 9v{bar - 9}z" fill="{BAR}"/>'
                     + "".join(f'<circle cx="{18 + 18 * at}" cy="15" r="5" fill="{color}"/>'
                               for at, color in enumerate(("#ef6b73", "#e5c76b", "#8ccf7e")))
                     + f'<text x="{width / 2:g}" y="20" class="title">{name}</text>')  # fmt: skip
        for row, line in enumerate(lines):
            column, y = 0, bar + 10 + row * height_of + 15
            for text, color, bold, dim in spans(line):
                if text.strip():
                    style = (' font-weight="bold"' if bold else "") + (' opacity=".65"' if dim else "")
                    parts.append(f'<text x="{margin + column * width_of:g}" y="{y}" fill="{color}"{style} '
                                 f'textLength="{len(text.rstrip()) * width_of:g}">{html.escape(text.rstrip())}</text>')  # fmt: skip
                column += len(text)
        parts.append("</g>")
        top += height + 12
    return f"""<!-- SPDX-License-Identifier: Apache-2.0 -->
<!-- Made by tools/record-terminal from a real run; don't edit. -->
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {top - 12}" width="{width}" height="{top - 12}" role="img">
<title>Two terminals: in one an observer, in the other posts, which the first prints</title>
<style>text {{ font: 14px ui-monospace, "DejaVu Sans Mono", "Liberation Mono", monospace; white-space: pre; }}
.title {{ font-size: 12px; fill: #98a2ad; text-anchor: middle; }}</style>
{chr(10).join(parts)}
</svg>
"""


def texts(svg):
    """The lines of a picture, as they are read."""
    lines = {}
    terminal = 0
    for kind, x, y, text in re.findall(r'<(g|text)(?: x="([\d.]+)" y="([\d.]+)")?[^>]*>([^<]*)', svg):
        if kind == "g":
            terminal += 1
        else:
            lines.setdefault((terminal, float(y)), []).append((float(x), html.unescape(text)))
    return [matching.normalized(" ".join(text for _, text in sorted(parts)), []) for _, parts in sorted(lines.items())]


def is_same(one, other):
    """Whether two pictures show the same text, however it is colored."""
    return [line.replace(" ", "") for line in texts(one)] == [line.replace(" ", "") for line in texts(other)]


def check(binaries):
    """Nothing if a run gives what the picture shows, and otherwise the difference."""
    new = picture(record(binaries))
    with open(f"{ROOT}/{PICTURE}", encoding="utf-8") as file:
        there = file.read()
    if is_same(new, there):
        return ""
    return f"{PICTURE} shows\n" + "\n".join(texts(there)) + "\nand a run now gives\n" + "\n".join(texts(new)) + \
        "\ntools/record-terminal makes it anew"  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description="Records the picture of README.md.")
    parser.add_argument("--binaries", required=True, help="where carillon and carillond are")
    parser.add_argument("--check", action="store_true", help="compare with the picture that is there")
    parser.add_argument("--output", default=f"{ROOT}/{PICTURE}")
    options = parser.parse_args()
    if shutil.which("tmux") is None:
        print("skipped: there is no tmux", file=sys.stderr)
        return 77
    try:
        if options.check:
            difference = check(options.binaries)
            print(difference or "the same")
            return 1 if difference else 0
        svg = picture(record(options.binaries))
    except (StageError, subprocess.CalledProcessError) as error:
        print(f"record-terminal: {error}", file=sys.stderr)
        return 1
    with open(options.output, "w", encoding="utf-8") as file:
        file.write(svg)
    return 0


if __name__ == "__main__":
    sys.exit(main())
