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
#: The head of the first column where the cells are medians of the rounds.
SYSTEM = "system (in brackets the lowest and the highest round)"


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
    head = [SYSTEM, *(f"deliveries per second, {n} observer{'s' if n > 1 else ''}" for n in (1, 10, 50)),
            "divided by the raw broadcast's, 1 / 10 / 50 observers"]
    rows = []
    for way in figures.ways("throughput"):
        cells = [spread(figures.values("throughput", way, n), rate) for n in (1, 10, 50)]
        ratios = " / ".join(number(figures.ratio("throughput", way, n), 2) for n in (1, 10, 50))
        rows.append([title(way), *cells, ratios])
    return table(head, rows)


def latency(figures):
    head = [f"{SYSTEM}, at 500 posts per second", "latency p50 (median), µs", "latency p99, µs",
            "p50 / p99, divided by the raw broadcast's"]
    rows = []
    for way in figures.ways("latency"):
        cells = [spread(figures.values("latency", way, key), number) for key in ("p50", "p99")]
        ratios = " / ".join(number(figures.ratio("latency", way, key), 2) for key in ("p50", "p99"))
        rows.append([title(way), *cells, ratios])
    return table(head, rows)


def names(figures):
    head = [SYSTEM, "deliveries per second, 1 registration", "deliveries per second, 10,000 registrations",
            "deliveries per second, 100,000 registrations",
            "rate with 100,000 registrations, divided by that with 1"]
    rows = []
    for way in figures.ways("names"):
        cells = [spread(figures.values("names", way, n), rate) for n in (1, 10_000, 100_000)]
        rows.append([title(way), *cells, number(figures.ratio("names", way, 100_000, way, 1), 3)])
    return table(head, rows)


def stopped(figures):
    head = [SYSTEM, "throughput of ten observers beside a stopped one, divided by their throughput without it"]
    return table(head, [
        [title(way), spread(figures.values("stopped", way, "kept"), lambda value: number(value, 2))]
        for way in figures.ways("stopped")
    ])


def processor_time(figures):
    head = ["system", "servers: processor s per 10,000 deliveries, 1 / 10 / 50 observers",
            "servers, poster and observers: processor s per 10,000 deliveries, 1 / 10 / 50 observers",
            "servers, poster and observers, divided by the raw broadcast's"]
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
    head = ["system", "servers at rest, MiB", "servers after all loads, MiB", "servers with 100,000 registrations, MiB",
            "servers a minute after the registrations ended, MiB"]
    keys = ("idle", "loaded", "registered", "left")
    return table(head, [
        [title(way), *(number(figures.median("memory", way, key), 1) for key in keys)]
        for way in figures.ways("memory")
    ])


def service(figures):
    data = figures.data.get("service", {})
    rows = []
    if "first call" in data:
        rows.append(["time of the first call, which makes the bus start the service, ms",
                     spread(data["first call"], lambda value: number(value, 1))])
        rows.append(["time of the next call, ms", spread(data["next call"], lambda value: number(value, 2))])
    if "resident" in data:
        rows.append(["resident memory at rest, with one observer, MiB", number(statistics.median(data["resident"]), 1)])
        rows.append([f"wake-ups in {data['idle seconds']} s at rest, with one observer", str(data["wake-ups"])])
    return table(["measured quantity of the service, `carillond`", "value (lowest to highest)"], rows)


def counts(figures):
    data = figures.data.get("counts", {})
    rows = []
    for way, of_way in data.items():
        instructions, calls = of_way["instructions"], of_way["system calls"]
        rows.append([
            TITLES[way], number(instructions["0"]), number(instructions["10"] / 10),
            number(sum(calls["0"].values()), 2), number(sum(calls["10"].values()) / 10, 2),
        ])
    head = ["clients", "service's instructions for a post without observers",
            "service's instructions per delivery, ten observers", "service's system calls for a post without observers",
            "service's system calls per delivery, ten observers"]
    return table(head, rows)


def losses(figures):
    head = ["system", "lost notifications", "notifications out of order or twice"]
    lost, faults = figures.data["lost"], figures.data["out of order"]
    return table(head, [[title(way), number(lost[way]), number(faults[way])] for way in ORDER if way in lost])


def missing(figures):
    lines = [f"- {title(way)} was not measured: {reason}" for way, reason in figures.data["missing"].items()]
    for way, failures in figures.data["failed"].items():
        for each in dict.fromkeys(failures):
            lines.append(f"- {title(way)}: {failure(each, failures.count(each))}")
    return "\n".join(lines) if lines else "No system was missing, and no measurement failed."


#: Questions by the names of their sections in the document.
SECTIONS = {
    "start": "Start of the server", "throughput": "Throughput", "latency": "Latency",
    "stopped": "An observer that is stopped", "names": "One name among many", "start-up": "The service alone",
    "counts": "Counts",
}
#: The lines of the loads for which the benchmark waits.
AWAITED = {
    "ready": "the observer did not become ready", "posted=": "the poster did not send all its posts",
    "received=": "the observer did not receive all notifications", "first=": "the service did not answer the first call",
}


def failure(text, rounds):
    """A sentence about a measurement that failed: which, how often, and why."""
    question, _, reason = text.partition(": ")
    if found := re.search(r": no '([^']+)' within (\d+) s$", reason):
        reason = f"{AWAITED.get(found.group(1), f'no line {found.group(1)}')} within {found.group(2)} s"
    name = ", ".join(SECTIONS.get(each, each) for each in question.split(", "))
    times = "once" if rounds == 1 else f"in {rounds} rounds"
    return f"the measurement *{name}* failed {times}, because {reason}."


def run(figures):
    machine = figures.data["machine"]
    return (
        f"The run of {machine['date']} used a machine with {machine['processors']} processors, {machine['system']}, "
        f"Linux {machine['kernel']}, dbus-daemon {machine['dbus-daemon']} and dbus-broker "
        f"{machine['dbus-broker'] or '(not installed)'}. The run had {figures.data['rounds']} rounds and took "
        f"{figures.data.get('seconds', 0) // 60} minutes. Before the run, the machine had a load average of "
        f"{machine['load']:.1f}."
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
            name = f"{TITLES[family]}: throughput with {n} observer{'s' if n > 1 else ''}, divided by the raw broadcast's"
            each("Throughput", name, bound, True,
                 lambda bus, n=n, f=family: figures.ratio("throughput", f"{f}-{bus}", n))
    for family, bound in (("channel", 0.8), ("library", 1.6), ("plain", 1.6)):
        name = f"{TITLES[family]}: median latency at 500 posts per second, divided by the raw broadcast's"
        each("Latency", name, bound, False,
             lambda bus, f=family: figures.ratio("latency", f"{f}-{bus}", "p50"))
    for family in OURS:
        each("Names", f"{TITLES[family]}: throughput with 100,000 registrations, divided by that with 1", 0.95, True,
             lambda bus, f=family: figures.ratio("names", f"{f}-{bus}", 100_000, f"{f}-{bus}", 1))
    for family in OURS:
        name = f"{TITLES[family]}: throughput of ten observers beside a stopped one, divided by that without it"
        each("A stopped observer", name, 0.9, True,
             lambda bus, f=family: figures.median("stopped", f"{f}-{bus}", "kept"))

    def instructions(way, observers):
        of_way = figures.data.get("counts", {}).get(way)
        return of_way and of_way["instructions"][str(observers)] / max(1, observers)

    single("Instructions", "plain clients: instructions of the service per delivery, ten observers", 20_000,
           instructions("plain", 10), 0)
    single("Instructions", "library on a channel: instructions of the service per delivery, ten observers", 6_000,
           instructions("channel", 10), 0)
    single("Instructions", "plain clients: instructions of the service for a post without observers", 25_000,
           instructions("plain", 0), 0)
    data = figures.data.get("service", {})
    single("Memory", "service: resident memory at rest, MiB", 10,
           statistics.median(data["resident"]) if "resident" in data else None, 1)
    for family in OURS:
        def more(bus, way=family):
            idle, left = (figures.median("memory", f"{way}-{bus}", f"service {key}") for key in ("idle", "left"))
            return None if idle is None or left is None else left - idle

        each("Memory", f"{TITLES[family]}: growth of the service's memory a minute after 100,000 registrations ended, MiB",
             2, False, more, 1)
    single("Wake-ups", "service: wake-ups per minute at rest", 0, data.get("wake-ups"), 0)
    single("Start-up", "service: time of the first call, which starts the service, ms", 10,
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
        if len(values) == 1:
            values.append("independent of the bus")
        rows.append([name, aim, *values, verdict(bound, is_least, reached)])
    return table(["measured quantity", "aim", "reached on dbus-daemon", "reached on dbus-broker", "result"], rows)


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
