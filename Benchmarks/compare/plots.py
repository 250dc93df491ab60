# SPDX-License-Identifier: Apache-2.0
"""Plots as SVG: one for each question, of bars in groups, with text as text and colors that light and dark pages bear.
"""

import math
from xml.sax.saxutils import escape

#: By the family of ways; each is read on white and on black.
COLORS = {
    "raw": "#7a7f87", "plain": "#3b82c4", "library": "#2a9d5c", "channel": "#d9662b",
    "gdnc": "#a05fb4", "redis": "#c94a55", "mosquitto": "#9a8429",
}
STYLE = """
  text { font: 13px system-ui, sans-serif; fill: #24292f }
  .title { font-weight: 600; font-size: 15px }
  .small { font-size: 11px }
  .grid { stroke: #8c959f; stroke-opacity: .35 }
  @media (prefers-color-scheme: dark) { text { fill: #e6edf3 } }
"""
WIDTH, LEFT, RIGHT, ROW, GAP = 760, 240, 70, 15, 14


def short(value):
    """A number of at most four characters or so."""
    for bound, divisor, unit in ((1e6, 1e6, "M"), (1e3, 1e3, "k")):
        if abs(value) >= bound:
            scaled = value / divisor
            return f"{scaled:.0f}{unit}" if scaled >= 100 else f"{scaled:.3g}{unit}"
    return f"{value:.3g}"


class Scale:
    """From values to places, in powers of ten where small and large stand beside each other."""

    def __init__(self, values, is_logarithmic):
        self.is_logarithmic = is_logarithmic
        self.low, self.high = (min(values), max(values)) if values else (1, 1)
        if is_logarithmic:
            self.low, self.high = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
            self.high += self.high == self.low
        else:
            self.low = 0

    def place(self, value):
        value = math.log10(value) if self.is_logarithmic else value
        return LEFT + (WIDTH - LEFT - RIGHT) * (value - self.low) / ((self.high - self.low) or 1)

    def ticks(self):
        if self.is_logarithmic:
            return [10.0**power for power in range(self.low, self.high + 1)]
        step = 10 ** math.floor(math.log10(self.high or 1))
        step = next(each for each in (step / 5, step / 2, step, step * 2) if self.high / each <= 6)
        return [step * n for n in range(int(self.high / step) + 1)]


def bars(heading, note, groups, is_logarithmic=False):
    """A picture of bars that lie.

    `groups` are (label, family, values): of each value the text that says what it is, the median, the least and the
    most."""
    values = [each for _, _, group in groups for _, *numbers in group for each in numbers if each > 0]
    scale = Scale(values, is_logarithmic)
    if is_logarithmic:
        note += "; a scale of powers of ten"
    parts, y = [], 62
    for label, family, group in groups:
        middle = y + len(group) * ROW / 2 + 4
        parts.append(f'<text x="{LEFT - 62}" y="{middle:.0f}" text-anchor="end">{escape(label)}</text>')
        for what, value, least, most in group:
            end = scale.place(value) if value > 0 or not is_logarithmic else LEFT
            inside = y + ROW - 3
            parts.append(
                f'<text class="small" x="{LEFT - 6}" y="{inside}" text-anchor="end">{escape(what)}</text>'
                f'<rect x="{LEFT}" y="{y + 1}" width="{max(1, end - LEFT):.1f}" height="{ROW - 3}" rx="2" '
                f'fill="{COLORS[family]}"/>'
            )
            if most > least > 0:
                x1, x2, line = scale.place(least), scale.place(most), y + ROW / 2
                parts.append(f'<path d="M{x1:.1f} {line}H{x2:.1f}" stroke="#8c959f" stroke-width="2"/>')
                end = max(end, x2)
            parts.append(f'<text class="small" x="{end + 5:.1f}" y="{inside}">{short(value)}</text>')
            y += ROW
        y += GAP
    grid = []
    for tick in scale.ticks():
        x = scale.place(tick)
        grid.append(
            f'<path class="grid" d="M{x:.1f} 54V{y - GAP + 4}"/>'
            f'<text class="small" x="{x:.1f}" y="{y + 8}" text-anchor="middle">{short(tick)}</text>'
        )
    height = y + 20
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'role="img" aria-label="{escape(heading)}">',
        f"<style>{STYLE}</style>",
        f'<text class="title" x="12" y="24">{escape(heading)}</text>',
        f'<text class="small" x="12" y="43">{escape(note)}</text>',
        *grid, *parts, "</svg>", "",
    ])


def all_plots(figures, title):
    """The plots, by the names of their files."""
    def groups(question, keys):
        result = []
        for way in figures.ways(question):
            group = []
            for key, what in keys.items():
                values = figures.values(question, way, key)
                if values:
                    group.append((what, figures.median(question, way, key), min(values), max(values)))
            if group:
                label = title(way).replace("library on the bus", "library").replace("library on a channel", "channel")
                result.append((label.replace("dbus-", ""), way.partition("-")[0], group))
        return result

    by_observers = {1: "1", 10: "10", 50: "50"}
    rounds = "a bar is the median of the rounds, the line goes from the least to the most"
    result = {}

    def add(name, heading, note, question, keys, is_logarithmic=False):
        found = groups(question, keys)
        if found:
            result[name] = bars(heading, note, found, is_logarithmic)

    add("throughput.svg", "Deliveries in a second, to 1, 10 and 50 observers", f"more is better; {rounds}",
        "throughput", by_observers, is_logarithmic=True)
    add("latency.svg", "Microseconds from the post to the handler, at 500 posts in a second",
        f"less is better; {rounds}", "latency", {"p50": "p50", "p99": "p99"})
    add("names.svg", "Deliveries in a second of one name among 1, 10,000 and 100,000", f"more is better; {rounds}",
        "names", {1: "1", 10_000: "10,000", 100_000: "100,000"}, is_logarithmic=True)
    add("stopped.svg", "Share of their throughput that ten observers keep beside one that is stopped",
        f"1 is all of it; {rounds}", "stopped", {"kept": ""})
    add("processor-time.svg", "Processor seconds of all sides for 10,000 deliveries, to 1, 10 and 50 observers",
        f"less is better; {rounds}", "processor time of all", by_observers, is_logarithmic=True)
    add("memory.svg", "Memory of all servers in MiB",
        "at rest, after all loads, and a minute after 100,000 registrations left", "memory",
        {"idle": "at rest", "loaded": "loaded", "left": "left"}, is_logarithmic=True)
    return result
