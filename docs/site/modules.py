#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Draws docs/images/modules.svg: the modules of Sources and their imports, read from the source.

    modules.py [--check]

A module stands above all modules that it imports. A line leads to each imported module that is not reached through another
one. --check draws nothing; exit status 1 means that the picture is not that of the source. `tools/docs` draws it.
"""

import html
import os
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PICTURE = ROOT / "docs/images/modules.svg"

#: Of a box, and between two rows of boxes.
WIDTH, HEIGHT, GAP, ROW = 132, 34, 14, 84
MARGIN = 24


def imports():
    """By the folder of each module in Sources: the folders of the modules that it imports."""
    package = (ROOT / "Package.swift").read_text(encoding="utf-8")
    folders = {}
    for name in sorted(os.listdir(ROOT / "Sources")):
        target = re.search(r'name: "(\w[\w-]*)",(?:(?!name: ")[\s\S])*?path: "Sources/' + re.escape(name) + '"', package)
        folders[target.group(1) if target else name] = name
    result = {}
    for module, folder in folders.items():
        used = set()
        for path in sorted((ROOT / "Sources" / folder).rglob("*.swift")):
            text = path.read_text(encoding="utf-8")
            used |= set(re.findall(r"^(?:@\w+(?:\(\w+\))? )?(?:\w+ )?import (?:(?:struct|class|enum|func) )?(\w+)", text, re.M))
        result[folder] = sorted(folders[name] for name in used if name in folders and name != module)
    return result


def reached(graph, module, seen=None):
    """All modules that a module imports, directly or not."""
    seen = set() if seen is None else seen
    for other in graph[module]:
        if other not in seen:
            seen.add(other)
            reached(graph, other, seen)
    return seen


def rows(graph):
    """The modules by their height: those that import nothing come first."""
    height = {}

    def find(module):
        if module not in height:
            height[module] = 1 + max((find(other) for other in graph[module]), default=-1)
        return height[module]

    for module in graph:
        find(module)
    # A library of C stands below its only user.
    users = {module: [other for other in graph if module in graph[other]] for module in graph}
    for module in graph:
        if height[module] == 0 and users[module]:
            height[module] = min(height[user] for user in users[module]) - 1
    found = [[] for _ in range(max(height.values()) + 1)]
    for module in sorted(graph):
        found[height[module]].append(module)
    return found


def direct(graph):
    """The imports that no other import of the module brings along."""
    return {
        module: [other for other in used if not any(other in reached(graph, between) for between in used if between != other)]
        for module, used in graph.items()
    }


def ordered(levels, edges):
    """Each row in an order with few crossings: by the mean place of the imported modules, from below."""
    place = {}
    result = []
    for level in levels:
        def mean(module):
            used = [place[other] for other in edges[module] if other in place]
            return sum(used) / len(used) if used else 0.5

        level = sorted(level, key=lambda module: (mean(module), module))
        for number, module in enumerate(level):
            place[module] = (number + 0.5) / len(level)
        result.append(level)
    return result


def svg():
    """The picture."""
    graph = imports()
    edges = direct(graph)
    levels = ordered(rows(graph), edges)
    widest = max(len(level) for level in levels)
    width = 2 * MARGIN + widest * WIDTH + (widest - 1) * GAP
    height = 2 * MARGIN + (len(levels) - 1) * ROW + HEIGHT
    box = {}
    for number, level in enumerate(levels):
        step = (width - 2 * MARGIN) / len(level)
        for column, module in enumerate(level):
            box[module] = (round(MARGIN + step * (column + 0.5)), height - MARGIN - HEIGHT - number * ROW)
    lines = [
        "<!-- SPDX-License-Identifier: Apache-2.0 -->",
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">',
        "<title>The modules of Sources: each stands above the modules that it imports</title>",
        "<style>",
        'text { font: 13px system-ui, "Noto Sans", "DejaVu Sans", sans-serif; fill: #1f2328; text-anchor: middle; }',
        ".box { fill: #ffffff; stroke: #c9d1d9; stroke-width: 1.5; }",
        ".c { fill: #f3e9da; stroke: #dcc39b; }",
        ".import { fill: none; stroke: #8c959f; stroke-width: 1.1; }",
        "</style>",
        f'<rect width="{width}" height="{height}" rx="12" fill="#fbfaf8"/>',
    ]
    for module, used in sorted(edges.items()):
        for other in used:
            (x, y), (to_x, to_y) = box[module], box[other]
            begin, end = y + HEIGHT, to_y
            bend = (end - begin) // 2
            lines.append(f'<path class="import" d="M{x} {begin}C{x} {begin + bend} {to_x} {end - bend} {to_x} {end}"/>')
    for module, (x, y) in sorted(box.items()):
        kind = "box c" if not list((ROOT / "Sources" / module).rglob("*.swift")) else "box"
        lines.append(f'<rect class="{kind}" x="{x - WIDTH // 2}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="7"/>')
        lines.append(f'<text x="{x}" y="{y + 22}">{html.escape(module)}</text>')
    return "\n".join([*lines, "</svg>", ""])


def main():
    picture = svg()
    if PICTURE.exists() and PICTURE.read_text(encoding="utf-8") == picture:
        return 0
    if sys.argv[1:] == ["--check"]:
        print(f"{PICTURE.relative_to(ROOT)} is not that of the source: run tools/docs", file=sys.stderr)
        return 1
    PICTURE.write_text(picture, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
