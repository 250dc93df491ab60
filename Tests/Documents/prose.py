#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Counts, in documents and comments, the sentences that a reader would have to read twice.

    prose.py [--list] [--by-file] [FILE ...]

`tools/check-prose` explains the counts. The regular expressions are rough: they find clauses by their first words and know
no grammar. A text that they count wrongly stands in exceptions.txt, with its reason.
"""

import argparse
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXCEPTIONS = pathlib.Path(__file__).with_name("prose-exceptions.txt")

#: The limits of each group: in all, per 100 words (noun-less), per 100 sentences (long).
LIMITS = {"openings": 0, "noun-less": 0.3, "long": 1.0, "titles": 0, "stale": 0}
#: Words of a sentence.
LONGEST = 35

OPENING = re.compile(r"^(?:Who|What|Whatever|Whoever|So)\b(?! far\b| that\b)")
# "a client who", "each observer who": the noun is there.
PERSON = r"(?:people|person|user|author|reader|somebody else|program|client|poster|observer)s?"
NOUNLESS = re.compile(
    r"(?<![\w-])(?:"
    r"what(?:ever)?(?= (?:is|are|was|were|has|have|had|may|can|must|would|will|does|do|did|it|they|he|she|we|you|I|one|"
    r"a|an|the|this|that|these|those|its|their|each|every|all|no|nobody|somebody|anybody|else|comes?|came|follows?|goes|"
    r"went|waits?|waited|stays?|stood|stands?|happens?|happened|arrives?|arrived|belongs?|needs?|costs?|holds?|"
    r"remains?|fails?|failed|makes?|made|takes?|took|says?|said|gets?|got|lies|lay|ends?|ended|begins?|began|"
    r"[a-z]+ed|[a-z]+s)\b)"
    r"|(?:who(?:ever)?)(?= [a-z]+)"
    r"|that which|those which|those that|those who|the one that|the ones that|one that|ones that"
    r")",
    re.IGNORECASE,
)
BEFORE_WHO = re.compile(rf"\b{PERSON},? $", re.IGNORECASE)
STALE = re.compile(r"\b(?:Not yet\b|To come\b)", 0)
TITLE = re.compile(r"^(?:What|Who|Whatever|Whoever|How|Why|When|Where|Whether|If|That|So|Which)\b")


class Text:
    """A paragraph or a title, with the place where it begins."""

    def __init__(self, path, line, text, kind="paragraph"):
        self.path, self.line, self.text, self.kind = path, line, text, kind


class Texts:
    """The texts of a file, of which the last paragraph may go on."""

    def __init__(self, path):
        self.path, self.found = path, []
        self.begin, self.block = 0, []

    def add(self, line, text, kind="paragraph"):
        self.found.append(Text(self.path, line, text, kind))

    def add_cells(self, line, row):
        for cell in row.strip("|").split("|"):
            self.add(line, cell.strip())

    def extend(self, line, text):
        """Adds to the paragraph, which begins in this line if there is none."""
        if not self.block:
            self.begin = line
        self.block.append(text)

    def end(self):
        """Ends the paragraph."""
        if self.block:
            self.add(self.begin, " ".join(self.block))
        self.block = []


def plain(text):
    """Without what is no prose: code, addresses, marks."""
    text = re.sub(r"``[^`]+``|`[^`]+`", "CODE", text)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"<doc:[^>]*>|<https?:[^>]*>|https?://\S+", "CODE", text)
    text = re.sub(r"<[^>]+>", " ", text)
    text = re.sub(r"\*\*|__|(?<!\w)\*|\*(?!\w)", "", text)
    return re.sub(r"\s+", " ", text).strip()


def markdown(path, lines):
    """The paragraphs, list items, cells and titles of a document."""
    texts, fence = Texts(path), None
    for number, line in enumerate(lines, 1):
        mark = re.match(r"\s*(```+|~~~+)", line)
        if mark:
            texts.end()
            fence = None if fence and line.strip().startswith(fence) else fence or mark.group(1)
            continue
        if fence:
            continue
        stripped = line.strip()
        if stripped.startswith("#"):
            texts.end()
            texts.add(number, stripped.lstrip("# "), "title")
        elif not stripped or stripped.startswith(("<!--", "@", "|--", "|:-", "| --")):
            texts.end()
        elif stripped.startswith("|"):
            texts.end()
            texts.add_cells(number, stripped)
        else:
            item = re.match(r"(?:[-*+]|\d+\.)\s+(.*)", stripped)
            if item:
                texts.end()
            texts.extend(number, item.group(1) if item else stripped.lstrip("> "))
    texts.end()
    return texts.found


def swift(path, lines):
    """The comments of a source file; documentation keywords begin paragraphs of their own."""
    texts, fence = Texts(path), False
    for number, line in enumerate(lines, 1):
        comment = re.match(r"\s*//+ ?(.*)", line)
        if not comment:
            texts.end()
            fence = False
            trailing = re.search(r"\s//+ (.+)$", line)
            if trailing and line[: trailing.start()].count('"') % 2 == 0:
                texts.add(number, trailing.group(1))
            continue
        text = comment.group(1).strip()
        if text.startswith("SPDX"):
            continue
        if text.startswith("```"):
            texts.end()
            fence = not fence
            continue
        if fence or not text:
            texts.end()
            continue
        mark = re.match(r"MARK: -? ?(.*)", text)
        if mark:
            texts.end()
            texts.add(number, mark.group(1), "title")
            continue
        if text.startswith("#"):
            texts.end()
            texts.add(number, text.lstrip("# "), "title")
            continue
        item = re.match(r"(?:[-*+]|\d+\.)\s+(?:(?:Parameter )?\w+:\s*)?(.*)", text)
        if text.startswith("|"):
            texts.end()
            texts.add_cells(number, text)
            continue
        if item:
            texts.end()
        texts.extend(number, item.group(1) if item else text)
    texts.end()
    return texts.found


def manual(path, lines):
    """The paragraphs of a manual page in mdoc."""
    texts, skipped = Texts(path), False
    for number, line in enumerate(lines, 1):
        if line.startswith(('.\\"', "'\\\"")):
            continue
        macro, _, rest = line.partition(" ")
        if macro in (".Bd", ".Ed"):
            texts.end()
            skipped = macro == ".Bd"
        elif macro in (".Sh", ".Ss"):
            texts.end()
            skipped = rest in ("SYNOPSIS", "SEE ALSO", "NAME")
        elif macro in (".It", ".Pp", ".Bl", ".El", ".Dl", ".Dd", ".Dt", ".Os"):
            texts.end()
        elif skipped or not line.strip():
            continue
        elif line.startswith("."):
            last = rest.split()[-1:]
            texts.extend(number, "CODE" + (last[0] if last and last[0] in (".", ",", ";", ":", ").", "),") else ""))
        else:
            texts.extend(number, line.strip())
    texts.end()
    return texts.found


def xml(path, lines):
    """The comments and documentation of an interface description."""
    whole = "\n".join(lines)
    texts = []
    for match in re.finditer(r"<!--(.*?)-->|<(?:doc:para|p|summary|description)>(.*?)</(?:doc:para|p|summary|description)>", whole, re.S):
        body = match.group(1) or match.group(2) or ""
        first = whole.count("\n", 0, match.start()) + 1
        for part in re.split(r"\n\s*\n|\n\s*(?=@\w+: |[*-] )", body):
            if part.strip():
                texts.append(Text(path, first, part))
    return texts


READERS = {".md": ("documents", markdown), ".swift": ("comments", swift), ".xml": ("interface", xml), ".1": ("manual", manual)}


def sentences(text):
    """Ends behind a full stop, a question mark or an exclamation mark before an upper-case word."""
    # Colons and semicolons join clauses of one sentence.
    return [s for s in re.split(r"(?<=[.!?])[\"')]*\s+(?=[\"'(]?[A-Z])", text) if s]


def words(text):
    return re.findall(r"[A-Za-z][\w'’-]*", text)


def findings_of(text):
    """Each finding as (kind, excerpt)."""
    prose = plain(text.text)
    if text.kind == "title":
        if TITLE.match(prose) and not prose.endswith("?"):
            yield "titles", prose
        if STALE.match(prose):
            yield "stale", prose
        return
    for sentence in sentences(prose):
        is_question = sentence.rstrip("\"')").endswith("?")
        if OPENING.match(sentence) and not is_question:
            yield "openings", sentence
        if STALE.search(sentence):
            yield "stale", sentence
        if len(words(sentence)) > LONGEST:
            yield "long", sentence
        if is_question:
            continue
        for match in NOUNLESS.finditer(sentence):
            if match.group().lower().startswith("who") and BEFORE_WHO.search(sentence[: match.start()]):
                continue
            yield "noun-less", sentence[max(0, match.start() - 30) : match.end() + 30]


def tracked():
    """The files that are counted, from the root of the repository."""
    names = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
    folders = {".swift": "Sources/", ".1": "data/man/", ".xml": "dbus-interfaces/", ".md": ""}
    for name in names:
        path = pathlib.Path(name)
        if path.suffix in folders and name.startswith(folders[path.suffix]):
            yield name


def exceptions():
    """Excused texts: (FILE, EXCERPT) of lines `FILE: EXCERPT # REASON`."""
    found = []
    for line in EXCEPTIONS.read_text(encoding="utf-8").splitlines():
        if not line or line.startswith("#"):
            continue
        match = re.fullmatch(r"(\S+): (.+?) # (.+)", line)
        if not match:
            raise SystemExit(f"{EXCEPTIONS}: not 'FILE: EXCERPT # REASON': {line}")
        found.append(match.group(1, 2))
    return found


class Counts:
    """The size of a group or a file, and its findings."""

    def __init__(self):
        self.words = self.sentences = 0
        self.findings = dict.fromkeys(LIMITS, 0)

    def add(self, text, found):
        if text.kind != "title":
            self.words += len(words(plain(text.text)))
            self.sentences += len(sentences(plain(text.text)))
        for kind, _ in found:
            self.findings[kind] += 1

    def share(self, kind):
        size = {"noun-less": self.words, "long": self.sentences}.get(kind)
        return self.findings[kind] if size is None else round(self.findings[kind] * 100 / max(size, 1), 2)

    @property
    def over(self):
        return [kind for kind, limit in LIMITS.items() if self.share(kind) > limit]

    def __str__(self):
        shares = ", ".join(f"{kind} {self.share(kind)}" for kind in LIMITS)
        over = f"; over the limit: {', '.join(self.over)}" if self.over else ""
        return f"{self.words} words, {self.sentences} sentences; {shares}{over}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--by-file", action="store_true")
    parser.add_argument("files", nargs="*")
    options = parser.parse_args()
    groups, files, used = {}, {}, set()
    excused = exceptions()
    names = [str(pathlib.Path(name).resolve().relative_to(ROOT)) for name in options.files] or list(tracked())
    for name in names:
        group, read = READERS[pathlib.Path(name).suffix]
        for text in read(name, (ROOT / name).read_text(encoding="utf-8").splitlines()):
            prose = plain(text.text)
            found = list(findings_of(text))
            for exception in excused if found else []:
                if exception[0] == name and exception[1] in prose:
                    used.add(exception)
                    found = []
            groups.setdefault(group, Counts()).add(text, found)
            files.setdefault(name, Counts()).add(text, found)
            for kind, excerpt in found if options.list else []:
                print(f"{name}:{text.line}: {kind}: {excerpt}")
    if options.by_file:
        for name, counts in sorted(files.items(), key=lambda item: -sum(item[1].findings.values())):
            print(f"{name}: {counts}")
    for group, counts in sorted(groups.items()):
        print(f"{group}: {counts}")
    unused = [] if options.files else [exception for exception in excused if exception not in used]
    for name, excerpt in unused:
        print(f"{EXCEPTIONS.name}: nothing to excuse: {name}: {excerpt}")
    return 1 if unused or any(counts.over for counts in groups.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
