# SPDX-License-Identifier: Apache-2.0
"""Finds the places of a Swift source that can be mutated, and writes the source with mutants in it, each behind a switch
that the environment of the process turns on (`Switches.swift`).

It reads tokens, not types: what does not compile the compiler finds. What is only there to notice faults (`invariant`,
`assert`, `require`, the checks between events) is not mutated: a check that is weaker changes nothing that a program
does, and `InvariantTests` shows that each finds its fault.
"""

import dataclasses
import re

TOKEN = re.compile(
    r"""(?P<space>\s+)
    | (?P<comment>//[^\n]*|/\*.*?\*/)
    | (?P<string>"{3}.*?"{3}|\#+".*?"\#+)
    | (?P<number>0x[0-9A-Fa-f_]+|[0-9][0-9_]*(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)
    | (?P<word>`?[A-Za-z_][A-Za-z_0-9]*`?|\$[0-9]+|[@\#][A-Za-z_]+)
    | (?P<operator>\.\.\.|\.\.<|[-+*/%<>=!&|^~?]+)
    | (?P<mark>[()\[\]{},;:.\\@\#])""",
    re.VERBOSE | re.DOTALL,
)
PAIRS = {"(": ")", "[": "]", "{": "}"}

COMPARISON = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}
EQUALITY = {"==": "!=", "!=": "=="}
IDENTITY = {"===": "!==", "!==": "==="}
LOGIC = {"&&": "||", "||": "&&"}
ARITHMETIC = {"+": "-", "-": "+"}
PRODUCT = {"*": "/", "/": "*", "%": "/"}
ASSIGNMENT = {"+=": "-=", "-=": "+="}
WRAPPING = {"&+=": "&-=", "&-=": "&+="}
SWAPPED = COMPARISON | EQUALITY | IDENTITY | LOGIC | ARITHMETIC | PRODUCT | ASSIGNMENT | WRAPPING
ASSIGNMENTS = {"=", "*=", "/=", "|=", "^=", "&=", *ASSIGNMENT, *WRAPPING}

CONTROL = {"if", "guard", "while", "for", "else", "do", "defer", "switch", "repeat", "catch"}
TYPES = {"struct", "class", "enum", "extension", "protocol", "actor"}
NO_EXPRESSION = CONTROL | TYPES | {
    "let", "var", "func", "init", "deinit", "subscript", "case", "default", "return", "break", "continue", "throw",
    "import", "typealias", "fallthrough", "static", "private", "fileprivate", "public", "internal", "package",
    "mutating", "override", "final", "get", "set", "indirect", "lazy", "weak", "nonisolated",
}

# Calls that only notice faults, or only save memory and time.
CHECKS = {"invariant", "assert", "require", "precondition", "assertionFailure", "preconditionFailure", "fatalError"}
SAVING = {"reserveCapacity", "eventEnded", "checkTotals"}
# Properties that only these read.
CHECK_STATE = {"checksInvariants", "eventsSinceCheck"}
# Functions that throw this only notice faults, and so do these functions and properties.
CHECK_ERROR = ["throws", "(", "BrokenInvariant"]
CHECKING = {"checkInvariants", "checkTotals", "payers", "hasTurns"}


# What takes a closure that gives something back.
VALUE_CLOSURES = {
    "allSatisfy", "compactMap", "contains", "drop", "filter", "first", "firstIndex", "flatMap", "lastIndex", "map",
    "mapError", "mapValues", "max", "min", "prefix", "removeAll", "sort", "sorted",
}


@dataclasses.dataclass
class Frame:
    """What a brace opens."""

    kind: str  # file, type, init, function, value, control or closure
    name: str  # of the function or property that it is in
    is_left_alone: bool = False
    returns_bool: bool = False
    statements: list = dataclasses.field(default_factory=list)  # first and last token of each


@dataclasses.dataclass
class Token:
    kind: str
    text: str
    start: int
    end: int
    line: int
    space_before: bool
    space_behind: bool = True
    partner: int = -1  # the place of the bracket that belongs to this one
    frame: Frame = None
    is_left_alone: bool = False

    @property
    def is_opening(self):
        return self.kind == "mark" and self.text in PAIRS

    @property
    def is_closing(self):
        return self.kind == "mark" and self.text in PAIRS.values()


@dataclasses.dataclass
class Mutant:
    file: str
    line: int
    last_line: int
    function: str
    text: str  # the line as it is in the source
    what: str  # becomes of what
    start: int
    end: int
    before: str  # takes the place of the text from start to end, or comes before it; {n} is the number
    behind: str = None  # comes behind it
    operator: str = ""  # the operator that needs a declaration
    number: int = 0

    @property
    def key(self):
        """What it is, wherever its line has moved to."""
        return (self.file, self.function, self.text, self.what)


def tokens_of(source):
    """All tokens but comments. A string is one token, with what is interpolated."""
    tokens = []
    place, line, space = 0, 1, True
    while place < len(source):
        if source[place] == '"' and not source.startswith('"""', place):
            kind, end = "string", end_of_string(source, place)
        else:
            match = TOKEN.match(source, place)
            if not match:
                raise ValueError(f"line {line}: no token begins with {source[place:place + 20]!r}")
            kind, end = match.lastgroup, match.end()
        text = source[place:end]
        if kind in ("space", "comment"):
            space = True
        else:
            # What follows an operand without a space belongs to it: x! and x?.
            is_behind_operand = tokens and not space and tokens[-1].kind != "operator" and not tokens[-1].is_opening
            if kind == "operator" and text[0] in "!?" and is_behind_operand:
                text = text[0]
                kind, end = "mark", place + 1
            if tokens:
                tokens[-1].space_behind = space
            tokens.append(Token(kind, text, place, end, line, space))
            space = False
        line += source.count("\n", place, end)
        place = end
    return tokens


def end_of_string(source, place):
    """Behind the string of one line that begins here."""
    place += 1
    while source[place] != '"':
        if source.startswith("\\(", place):
            depth, place = 1, place + 2
            while depth > 0:
                if source[place] == '"':
                    place = end_of_string(source, place)
                else:
                    depth += {"(": 1, ")": -1}.get(source[place], 0)
                    place += 1
        else:
            place += 2 if source[place] == "\\" else 1
    return place + 1


def goes_on(previous, token):
    """Whether a token at the beginning of a line belongs to the statement before it."""
    if previous.text in (",", ":", "=", "->", "return") or previous.kind == "operator" and previous.space_before:
        return True
    return token.text in (".", "?", ":", "else", "{", "catch", "where", "throws") or (
        token.kind == "operator" and token.space_behind
    )


class Source:
    """A file with its tokens, brackets and statements."""

    def __init__(self, name, text):
        self.name = name
        self.text = text
        self.lines = text.split("\n")
        self.tokens = tokens_of(text)
        self.frames = []
        self._pair()
        self._find_statements()
        self._leave_alone()

    def _pair(self):
        opened = []
        for place, token in enumerate(self.tokens):
            if token.is_opening:
                opened.append(place)
            elif token.is_closing:
                other = opened.pop()
                if PAIRS[self.tokens[other].text] != token.text:
                    raise ValueError(f"{self.name}:{token.line}: {token.text} closes another bracket")
                token.partner, self.tokens[other].partner = other, place

    def _find_statements(self):
        """Finds out what each brace opens, and the statements in it."""
        tokens = self.tokens
        frames = [Frame("file", "")]
        firsts = [None]  # of the statement that has begun, in each open brace
        brackets = []
        self.frames.append(frames[0])
        for place, token in enumerate(tokens):
            token.frame = frames[-1]
            previous = tokens[place - 1] if place else None
            if token.is_closing:
                if token.text == "}":
                    self._end(frames.pop(), firsts.pop(), place - 1)
                    token.frame = frames[-1]
                brackets.pop()
                continue
            is_in_braces = not brackets or brackets[-1] == "{"
            if is_in_braces and token.text != ";":
                first = firsts[-1]
                if first is None:
                    firsts[-1] = place
                elif previous.text == ";":
                    self._end(frames[-1], first, place - 2)
                    firsts[-1] = place
                elif previous.text == ":" and tokens[first].text in ("case", "default"):
                    firsts[-1] = place  # the pattern of a case has ended
                elif token.line > previous.line and not goes_on(previous, token):
                    self._end(frames[-1], first, place - 1)
                    firsts[-1] = place
            if token.is_opening:
                if token.text == "{":
                    frames.append(self._frame_of(place, firsts[-1] if is_in_braces else None, frames[-1]))
                    firsts.append(None)
                    self.frames.append(frames[-1])
                brackets.append(token.text)
            elif token.text == "in" and is_in_braces and frames[-1].kind == "closure":
                # The parameters of a closure are no statement.
                if not frames[-1].statements and tokens[firsts[-1]].text != "for":
                    firsts[-1] = None
        self._end(frames[-1], firsts[-1], len(tokens) - 1)

    @staticmethod
    def _end(frame, first, last):
        if first is not None and last >= first:
            frame.statements.append((first, last))

    def _frame_of(self, brace, first, outer):
        """What a brace opens, from the statement that it is in."""
        # The beginning of the statement alone, without what is in brackets.
        head = []
        is_check = False
        place = brace if first is None else first
        while place < brace:
            if self.tokens[place].is_opening:
                # A function that finds out whether all is as it must be.
                is_check = is_check or [token.text for token in self.tokens[place - 1 : place + 2]] == CHECK_ERROR
                place = self.tokens[place].partner
            else:
                head.append(self.tokens[place].text)
            place += 1

        def frame(kind, name=outer.name):
            is_left_alone = outer.is_left_alone or is_check or name in CHECKING
            return Frame(kind, name, is_left_alone, head[-1:] == ["Bool"] and head[-2] in ("->", ":"))

        if self.tokens[brace - 1].text in VALUE_CLOSURES:
            return frame("value")
        if not head:
            return frame("closure")
        if head[0] in CONTROL or head[-1] in ("else", "do", "defer"):
            return frame("control")
        if "func" in head:
            result = head[head.index("->") + 1 :] if "->" in head else ["Void"]
            return frame("function" if result == ["Void"] else "value", head[head.index("func") + 1])
        if "init" in head or "deinit" in head:
            return frame("init", "init")
        if "subscript" in head:
            return frame("value", "subscript")
        if set(head) & TYPES:
            return frame("type")
        if "var" in head and "=" not in head:
            return frame("value", head[head.index("var") + 1])
        if head in (["set"], ["didSet"], ["willSet"]):
            return frame("function")
        return frame("value" if head == ["get"] else "closure")

    def _leave_alone(self):
        """Marks what only notices faults, and what is compiled only where faults are planted."""
        left = set()
        is_planted = False
        for number, line in enumerate(self.lines, 1):
            directive = line.strip()
            if directive.startswith("#if CARILLON_PLANTED"):
                is_planted = True
            elif directive in ("#else", "#endif"):
                is_planted = False
            if is_planted or any(name in line for name in CHECK_STATE):
                left.add(number)
        for place, token in enumerate(self.tokens):
            if token.line in left or token.frame.is_left_alone:
                token.is_left_alone = True
            if token.text in CHECKS | SAVING and self.tokens[place + 1].text == "(":
                for inner in self.tokens[place : self.tokens[place + 1].partner + 1]:
                    inner.is_left_alone = True
            if token.text in ("Log", "meter") and self.tokens[place + 1].text == ".":
                # Lines are for people: whether there is one, and of which level, is no rule. Steps are for the judge of costs.
                for inner in self.tokens[place : self.tokens[place + 3].partner + 1]:
                    inner.is_left_alone = True
            if token.text == "keepingCapacity":
                for inner in self.tokens[place : self._end_of_argument(place)]:
                    inner.is_left_alone = True
            if token.text == "case" and token.frame.kind == "control":
                # The compiler has to see that all cases are there.
                for inner in self._until(place, ":"):
                    if inner.kind == "number" or inner.text in ("true", "false"):
                        inner.is_left_alone = True

    def _end_of_argument(self, place):
        """The place behind the argument that a label begins."""
        while self.tokens[place].text != "," and not self.tokens[place].is_closing:
            place = self.tokens[place].partner + 1 if self.tokens[place].is_opening else place + 1
        return place

    def _until(self, place, mark):
        """The tokens from a place to the next mark of this kind in its line."""
        line = self.tokens[place].line
        while place < len(self.tokens) and self.tokens[place].line == line and self.tokens[place].text != mark:
            yield self.tokens[place]
            place += 1


def places(name, text):
    """All mutants of a file, in its order."""
    source = Source(name, text)
    found = []

    def add(first, last, what, before, behind=None, operator=""):
        tokens = source.tokens[first : last + 1]
        if any(token.is_left_alone for token in (tokens[0], tokens[-1])):
            return
        found.append(
            Mutant(
                name, tokens[0].line, tokens[-1].line, tokens[0].frame.name or "-",
                source.lines[tokens[0].line - 1].strip(), what, tokens[0].start, tokens[-1].end, before, behind,
                operator,
            )
        )

    _find_tokens(source, add)
    _find_conditions(source, add)
    _find_results(source, add)
    _find_statements(source, add)
    found.sort(key=lambda mutant: (mutant.start, -mutant.end, mutant.what))
    # Those of one line that read the same are told apart by their order.
    seen = {}
    for mutant in found:
        same = (mutant.line, mutant.what)
        seen[same] = seen.get(same, 0) + 1
        if seen[same] > 1:
            mutant.what += f" ({seen[same]})"
    return found


def _find_tokens(source, add):
    """Operators, numbers, truth values, least and greatest."""
    tokens = source.tokens
    for place, token in enumerate(tokens[:-1]):
        previous, following = tokens[place - 1], tokens[place + 1]
        if token.frame.kind == "type" and source.lines[token.line - 1].strip().startswith(("case ", "@")):
            continue
        if token.kind == "operator" and previous.text != "func":
            is_binary = token.space_before and token.space_behind
            if token.text == "+" and ("string" in (previous.kind, following.kind) or following.text == "["):
                continue  # texts and arrays have no difference
            if token.text in SWAPPED and is_binary:
                operator = token.text + (" nil" if following.text == "nil" else "")
                add(place, place, f"{token.text} becomes {SWAPPED[token.text]}", "{op}", operator=operator)
            elif token.text == "..<" and not (previous.is_opening or following.is_closing):
                add(place, place, "..< takes one more", "{op}", operator="..<")
            elif token.text == "!" and not token.space_behind:
                add(place, place, "! left out", "{op}", operator="!")
        elif token.kind == "number" and token.text.replace("_", "").isdigit() and previous.text != ".":
            value = int(token.text.replace("_", "")) + 1
            add(place, place, f"{token.text} becomes {value}", f"(mutant({{n}}) ? {value} : {token.text})")
        elif token.kind == "word" and previous.text != ".":
            if token.text in ("true", "false"):
                other = "false" if token.text == "true" else "true"
                add(place, place, f"{token.text} becomes {other}", f"mutantFlip({{n}}, {token.text})")
            elif token.text in ("min", "max") and following.text == "(" and previous.text != "func":
                what, function = {
                    "min": ("min becomes max", "mutantLeast"), "max": ("max becomes min", "mutantGreatest"),
                }[token.text]
                add(place, place + 1, what, function + "({n}, ")


def _find_conditions(source, add):
    """Clauses of conditions that are expressions, turned round."""
    tokens = source.tokens
    for place, token in enumerate(tokens):
        if token.text not in ("if", "guard", "while", "where") or token.kind != "word" or not place:
            continue
        if tokens[place - 1].text == "." or token.text == "where" and not _is_of_loop(source, place):
            continue
        for first, last in _clauses(source, place):
            texts = [inner.text for inner in tokens[first : last + 1]]
            if texts[0] in ("let", "var", "case"):
                continue
            # These are turned round by their operator.
            if not set(texts) & {"&&", "||", "?"} and (
                texts[0] == "!" or sum(text in EQUALITY | IDENTITY for text in texts) == 1
            ):
                continue
            add(first, last, f"{token.text} turned round", "mutantFlip({n}, ", ")")


def _is_of_loop(source, place):
    for token in reversed(source.tokens[:place]):
        if token.text in ("{", "}", "func", "extension", "struct", "enum", "class"):
            return False
        if token.text == "for":
            return True
    return False


def _clauses(source, keyword):
    """The first and last tokens of each clause behind a keyword."""
    tokens = source.tokens
    end = "else" if tokens[keyword].text == "guard" else "{"
    first = place = keyword + 1
    while place < len(tokens) and tokens[place].text != end:
        if tokens[place].is_opening:
            place = tokens[place].partner
        elif tokens[place].text == ",":
            yield first, place - 1
            first = place + 1
        place += 1
    if place > first and place < len(tokens):
        yield first, place - 1


def _find_results(source, add):
    """What a function or property gives back that is a Bool, turned round."""
    tokens = source.tokens
    for brace, token in enumerate(tokens):
        if token.text != "{" or token.partner <= brace + 1:
            continue
        frame = tokens[brace + 1].frame
        if not frame.returns_bool:
            continue
        if len(frame.statements) == 1:
            first, last = frame.statements[0]
            if tokens[first].text not in NO_EXPRESSION and last > first:
                add(first, last, "result turned round", "mutantFlip({n}, ", ")")
        for place in range(brace + 1, token.partner):
            if tokens[place].text != "return" or tokens[place].kind != "word":
                continue
            last = next(last for first, last in tokens[place].frame.statements if first <= place <= last)
            if last > place + 1:
                add(place + 1, last, "result turned round", "mutantFlip({n}, ", ")")


def _find_statements(source, add):
    """Assignments, and calls whose result nobody uses, left out."""
    for frame in source.frames:
        # An initialiser has to give every property its value.
        if frame.kind in ("file", "type", "init"):
            continue
        for first, last in frame.statements:
            head = source.tokens[first]
            is_name = head.kind == "word" and head.text not in NO_EXPRESSION and head.text[0] not in "#@"
            kind = _kind(source, first, last)
            # The only statement of a function that has a value is that value.
            is_value = frame.kind == "value" and len(frame.statements) == 1
            if kind == "assignment" and (is_name or head.text == "(") or kind == "call" and is_name and not is_value:
                add(first, last, f"{kind} left out", "if !mutant({n}) { ", " }")


def _kind(source, first, last):
    """What a statement is: an assignment, a call, or a value."""
    tokens = source.tokens
    kind = "call" if tokens[last].text in (")", "}") else "value"
    place = first
    while place <= last:
        token = tokens[place]
        if token.kind == "operator" and token.space_before and token.space_behind:
            if token.text in ASSIGNMENTS:
                return "assignment"
            kind = "value"
        if token.is_opening:
            place = token.partner
        place += 1
    return kind


def operator_name(number):
    """An operator for a mutant: its number in signs that operators of Swift may have."""
    digits = ""
    while number:
        digits = chr(0x2200 + number % 16) + digits
        number //= 16
    return "⊙" + digits


def rewrite(text, mutants):
    """The source with these mutants in it. No line changes its number."""
    edits = []  # what orders them, where they begin and end, and what stands there then
    for mutant in mutants:
        before = mutant.before.replace("{n}", str(mutant.number)).replace("{op}", operator_name(mutant.number))
        if mutant.behind is None:
            edits.append(((mutant.start, 2, 0, 0), mutant.end, before))
            continue
        # At one place what ends comes before what begins; what is inside ends first and begins last. Of two around the
        # same text a statement goes around an expression.
        rank = int(mutant.behind == " }")
        edits.append(((mutant.end, 0, -mutant.start, rank), mutant.end, mutant.behind))
        edits.append(((mutant.start, 1, -mutant.end, -rank), mutant.start, before))
    result, place = [], 0
    for order, end, new in sorted(edits):
        if order[0] < place:
            raise ValueError(f"two mutants take the same place, {order[0]}")
        result += [text[place : order[0]], new]
        place = end
    return "".join(result) + text[place:]
