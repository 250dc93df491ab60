# SPDX-License-Identifier: Apache-2.0
"""Tables of the figures, in Markdown, and docs/performance.md with them."""

import json
import pathlib
import re
import statistics
import sys

import plots

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
DOCUMENT = ROOT / "docs" / "performance.md"
FOLDER = ROOT / "docs" / "performance"
DATA = FOLDER / "figures.json"
BUSES = ("daemon", "broker")
TITLES = {
    "raw": "raw broadcast", "plain": "plain clients", "library": "library on the bus",
    "channel": "library on a channel",
    "all": "all ways", "gdnc": "GNUstep gdnc", "redis": "Redis", "mosquitto": "mosquitto",
}
ORDER = [f"{family}-{bus}" for bus in BUSES for family in ("raw", "plain", "library", "channel")]
ORDER += ["gdnc", "redis", "mosquitto"]
OURS = ("plain", "library", "channel")


def title(way):
    family, _, bus = way.partition("-")
    return TITLES[family] + (f", dbus-{bus}" if bus else "")


def base(way):
    """The raw broadcast on the same bus; what is on none is compared with that on dbus-daemon."""
    _, _, bus = way.partition("-")
    return f"raw-{bus or 'daemon'}"


class Figures:
    """What was measured, and what follows from it."""

    def __init__(self, data):
        self.data = data
        self.questions = data["questions"]

    def ways(self, question):
        return [way for way in ORDER if way in self.questions.get(question, {})]

    def values(self, question, way, key):
        return self.questions.get(question, {}).get(way, {}).get(str(key), [])

    def median(self, question, way, key):
        values = self.values(question, way, key)
        return statistics.median(values) if values else None

    def ratio(self, question, way, key, other=None, other_key=None):
        """The median of the ratios of those that were measured one after the other."""
        ours = self.values(question, way, key)
        theirs = self.values(question, other or base(way), other_key or key)
        pairs = [a / b for a, b in zip(ours, theirs) if b]
        return statistics.median(pairs) if pairs else None


# Numbers


def number(value, digits=0):
    return "–" if value is None else f"{value:,.{digits}f}"


def rate(value):
    if value is None:
        return "–"
    if value >= 1e6:
        return f"{value / 1e6:.2f}M"
    return f"{value / 1e3:.1f}k" if value >= 1e3 else f"{value:.0f}"


def spread(values, form):
    """The median, and how far the rounds are apart."""
    if not values:
        return "–"
    middle = form(statistics.median(values))
    if len(values) < 2:
        return middle
    return f"{middle} ({form(min(values))} to {form(max(values))})"


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


# Tables, one for each question


def throughput(figures):
    head = ["delivered in a second", "1 observer", "10 observers", "50 observers", "times the raw broadcast"]
    rows = []
    for way in figures.ways("throughput"):
        cells = [spread(figures.values("throughput", way, n), rate) for n in (1, 10, 50)]
        ratios = " / ".join(number(figures.ratio("throughput", way, n), 2) for n in (1, 10, 50))
        rows.append([title(way), *cells, ratios])
    return table(head, rows)


def latency(figures):
    head = ["microseconds, at 500 posts in a second", "p50", "p99", "times the raw broadcast"]
    rows = []
    for way in figures.ways("latency"):
        cells = [spread(figures.values("latency", way, key), number) for key in ("p50", "p99")]
        ratios = " / ".join(number(figures.ratio("latency", way, key), 2) for key in ("p50", "p99"))
        rows.append([title(way), *cells, ratios])
    return table(head, rows)


def names(figures):
    head = ["delivered in a second, of one name", "among 1", "among 10,000", "among 100,000", "100,000 against 1"]
    rows = []
    for way in figures.ways("names"):
        cells = [spread(figures.values("names", way, n), rate) for n in (1, 10_000, 100_000)]
        rows.append([title(way), *cells, number(figures.ratio("names", way, 100_000, way, 1), 3)])
    return table(head, rows)


def stopped(figures):
    head = ["ten observers, and one that is stopped", "share of their throughput that the ten keep"]
    return table(head, [
        [title(way), spread(figures.values("stopped", way, "kept"), lambda value: number(value, 2))]
        for way in figures.ways("stopped")
    ])


def processor_time(figures):
    head = ["processor seconds for 10,000 deliveries", "servers, 1 / 10 / 50 observers", "all sides",
            "all sides, times the raw broadcast"]
    rows = []
    for way in figures.ways("processor time of all"):
        cells = [
            " / ".join(number(figures.median(question, way, n), 3) for n in (1, 10, 50))
            for question in ("processor time of servers", "processor time of all")
        ]
        ratios = " / ".join(number(figures.ratio("processor time of all", way, n), 2) for n in (1, 10, 50))
        rows.append([title(way), *cells, ratios])
    return table(head, rows)


def memory(figures):
    head = ["MiB of all servers", "at rest", "after all loads", "with 100,000 registrations",
            "a minute after they left"]
    keys = ("idle", "loaded", "registered", "left")
    return table(head, [
        [title(way), *(number(figures.median("memory", way, key), 1) for key in keys)]
        for way in figures.ways("memory")
    ])


def service(figures):
    data = figures.data.get("service", {})
    rows = []
    if "first call" in data:
        rows.append(["first call, which makes the bus start it, ms",
                     spread(data["first call"], lambda value: number(value, 1))])
        rows.append(["next call, ms", spread(data["next call"], lambda value: number(value, 2))])
    if "resident" in data:
        rows.append(["resident at rest, with one observer, MiB", number(statistics.median(data["resident"]), 1)])
        rows.append([f"wake-ups in {data['idle seconds']} s at rest", str(data["wake-ups"])])
    return table(["`carillond` alone", ""], rows)


def counts(figures):
    data = figures.data.get("counts", {})
    rows = []
    for way, of_way in data.items():
        instructions, calls = of_way["instructions"], of_way["system calls"]
        rows.append([
            TITLES[way], number(instructions["0"]), number(instructions["10"] / 10),
            number(sum(calls["0"].values()), 2), number(sum(calls["10"].values()) / 10, 2),
        ])
    head = ["of the service", "instructions for a post that nobody observes", "for a delivery, of ten to each post",
            "system calls for a post", "for a delivery"]
    return table(head, rows)


def losses(figures):
    head = ["in all runs", "lost", "out of order"]
    lost, faults = figures.data["lost"], figures.data["out of order"]
    return table(head, [[title(way), number(lost[way]), number(faults[way])] for way in ORDER if way in lost])


def missing(figures):
    lines = [f"- {title(way)}: {reason}" for way, reason in figures.data["missing"].items()]
    lines += [f"- {title(way)}: failed, {each}" for way, all_ in figures.data["failed"].items() for each in all_]
    return "\n".join(lines) if lines else "Nothing was missing."


def run(figures):
    machine = figures.data["machine"]
    return (
        f"{machine['date']}, {machine['processors']} processors, {machine['system']}, Linux {machine['kernel']}, "
        f"dbus-daemon {machine['dbus-daemon']}, dbus-broker {machine['dbus-broker'] or 'not installed'}; "
        f"{figures.data['rounds']} rounds, {figures.data.get('seconds', 0) // 60} minutes. Before it began the machine "
        f"had a load of {machine['load']:.1f}."
    )


# Aims


def aims(figures):
    """For each aim: of what kind it is, its name, the bound, whether it is a least or a most, what was reached on each
    bus, and the digits of that."""
    result = []

    def each(kind, name, bound, is_least, reach, digits=2):
        result.append((kind, name, bound, is_least, [reach(bus) for bus in BUSES], digits))

    def single(kind, name, bound, value, digits):
        result.append((kind, name, bound, False, [value], digits))

    for family, bounds in (("channel", {1: 3, 10: 3, 50: 3}), ("library", {1: 1.0, 10: 1.3, 50: 1.3}),
                           ("plain", {1: 0.6, 10: 0.45})):
        for n, bound in bounds.items():
            name = f"{TITLES[family]}: throughput with {n} observer{'s' if n > 1 else ''}, times the raw broadcast"
            each("Throughput", name, bound, True,
                 lambda bus, n=n, f=family: figures.ratio("throughput", f"{f}-{bus}", n))
    for family, bound in (("channel", 0.8), ("library", 1.6), ("plain", 1.6)):
        each("Latency", f"{TITLES[family]}: p50 at 500 posts in a second, times the raw broadcast", bound, False,
             lambda bus, f=family: figures.ratio("latency", f"{f}-{bus}", "p50"))
    for family in OURS:
        each("Names", f"{TITLES[family]}: one name among 100,000, against one among one", 0.95, True,
             lambda bus, f=family: figures.ratio("names", f"{f}-{bus}", 100_000, f"{f}-{bus}", 1))
    for family in OURS:
        each("A stopped observer", f"{TITLES[family]}: what ten observers keep beside one that is stopped", 0.9, True,
             lambda bus, f=family: figures.median("stopped", f"{f}-{bus}", "kept"))

    def instructions(way, observers):
        of_way = figures.data.get("counts", {}).get(way)
        return of_way and of_way["instructions"][str(observers)] / max(1, observers)

    single("Instructions", "plain clients: instructions of the service for a delivery to ten", 20_000,
           instructions("plain", 10), 0)
    single("Instructions", "library on a channel: instructions of the service for a delivery to ten", 6_000,
           instructions("channel", 10), 0)
    single("Instructions", "plain clients: instructions of the service for a post that nobody observes", 25_000,
           instructions("plain", 0), 0)
    data = figures.data.get("service", {})
    single("Memory", "service at rest, MiB", 10,
           statistics.median(data["resident"]) if "resident" in data else None, 1)
    for family in OURS:
        def more(bus, way=family):
            idle, left = (figures.median("memory", f"{way}-{bus}", f"service {key}") for key in ("idle", "left"))
            return None if idle is None or left is None else left - idle

        each("Memory", f"{TITLES[family]}: the service a minute after 100,000 registrations left, MiB more than before",
             2, False, more, 1)
    single("Wake-ups", "service: wake-ups in a minute at rest", 0, data.get("wake-ups"), 0)
    single("Start-up", "service: first call after activation, ms", 10,
           statistics.median(data["first call"]) if "first call" in data else None, 1)
    return result


def verdict(bound, is_least, reached):
    known = [value for value in reached if value is not None]
    if not known:
        return "not measured"
    return "met" if all(value >= bound if is_least else value <= bound for value in known) else "**missed**"


def aims_table(figures, has_unmeasured=True):
    rows = []
    for _, name, bound, is_least, reached, digits in aims(figures):
        if not has_unmeasured and verdict(bound, is_least, reached) == "not measured":
            continue
        values = [number(value, digits) for value in reached]
        aim = ("at least " if is_least else "at most ") + f"{bound:,}"
        rows.append([name, aim, *(values if len(values) == 2 else [values[0], ""]), verdict(bound, is_least, reached)])
    return table(["what", "aim", "reached, dbus-daemon", "dbus-broker", ""], rows)


PARTS = {
    "run": run, "aims": aims_table, "throughput": throughput, "latency": latency, "names": names, "stopped": stopped,
    "processor time": processor_time, "memory": memory, "service": service, "counts": counts, "losses": losses,
    "missing": missing,
}


def text(data):
    """All tables that have something in them."""
    figures = Figures(data)
    parts = [run(figures), aims_table(figures, has_unmeasured=False)]
    parts += [part(figures) for name, part in PARTS.items() if name not in ("run", "aims")]
    # Tables with nothing below their heads are left out.
    return "\n\n".join(part for part in parts if part.count("\n") != 1 or not part.startswith("|"))


# The document

MARKED = re.compile(r"(<!-- figures: ([a-z ]+) -->\n).*?(\n<!-- end -->)", re.DOTALL)


def read():
    return json.loads(DATA.read_text(encoding="utf-8"))


def documents(data):
    """What the document and the plots have to be, by their paths."""
    figures = Figures(data)
    old = DOCUMENT.read_text(encoding="utf-8")
    new = MARKED.sub(lambda found: f"{found.group(1)}\n{PARTS[found.group(2)](figures)}\n{found.group(3)}", old)
    return {DOCUMENT: new} | {FOLDER / name: svg for name, svg in plots.all_plots(figures, title).items()}


def write(data):
    FOLDER.mkdir(exist_ok=True)
    DATA.write_text(json.dumps(data, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    # As it will be read, so that the order of its keys is always the same.
    for path, content in documents(read()).items():
        path.write_text(content, encoding="utf-8")
    for kind in unspoken(Figures(data)):
        print(f"bench: docs/performance.md has to say what stands in the way: **{kind}.**", file=sys.stderr)
    return 0


def unspoken(figures):
    """Kinds of aims of which one is missed, and of which the document does not say why."""
    section = DOCUMENT.read_text(encoding="utf-8").partition("### Missed aims\n")[2].partition("\n## ")[0]
    missed = dict.fromkeys(
        kind for kind, _, bound, is_least, reached, _ in aims(figures)
        if verdict(bound, is_least, reached) == "**missed**"
    )
    return [kind for kind in missed if f"**{kind}.**" not in section]


def check():
    status = 0
    for kind in unspoken(Figures(read())):
        print(f"docs/performance.md does not say what stands in the way of an aim: **{kind}.**", file=sys.stderr)
        status = 1
    for path, content in documents(read()).items():
        if not path.exists() or path.read_text(encoding="utf-8") != content:
            print(f"{path.relative_to(ROOT)} is not what docs/performance/figures.json says: tools/bench --draw",
                  file=sys.stderr)
            status = 1
    return status
