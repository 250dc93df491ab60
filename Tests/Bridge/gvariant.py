# SPDX-FileCopyrightText: The Carillon authors
# SPDX-License-Identifier: Apache-2.0
"""What gdbus prints, as values of Python: GLib's text form of variants, as far as answers of the bridge have it."""

import re

_TOKEN = re.compile(
    r"""\s*(?:
        (?P<string>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
      | (?P<type>@[a-z(){}*?]+|byte|int16|uint16|int32|uint32|int64|uint64|handle|double|objectpath|signature)(?=\s)
      | (?P<word>true|false)\b
      | (?P<number>[-+]?(?:0x[0-9a-fA-F]+|inf|nan|[0-9.]+(?:e[-+]?[0-9]+)?))
      | (?P<mark>[][(){}<>,:])
    )""",
    re.VERBOSE,
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}


def parse(text):
    """The value; a tuple of Python for the answer of a call."""
    tokens = []
    at = 0
    text = text.strip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if not match:
            raise ValueError(f"no variant at {at}: {text[at:at + 40]!r}")
        if match.lastgroup != "type":
            tokens.append((match.lastgroup, match.group(match.lastgroup)))
        at = match.end()
    value, rest = _value(tokens, 0)
    if rest != len(tokens):
        raise ValueError(f"more than one variant: {text[:80]!r}")
    return value


def _value(tokens, at):
    kind, text = tokens[at]
    if kind == "string":
        return _unescaped(text[1:-1]), at + 1
    if kind == "word":
        return text == "true", at + 1
    if kind == "number":
        try:
            return int(text, 0), at + 1
        except ValueError:
            return float(text), at + 1
    if text == "<":
        value, at = _value(tokens, at + 1)
        return value, _mark(tokens, at, ">")
    if text in "[(":
        values, at = _several(tokens, at + 1, "]" if text == "[" else ")")
        return (values if text == "[" else tuple(values)), at
    if text == "{":
        result = {}
        at += 1
        while tokens[at] != ("mark", "}"):
            key, at = _value(tokens, at)
            result[key], at = _value(tokens, _mark(tokens, at, ":"))
            if tokens[at] == ("mark", ","):
                at += 1
        return result, at + 1
    raise ValueError(f"no value begins with {text!r}")


def _several(tokens, at, end):
    values = []
    while tokens[at] != ("mark", end):
        value, at = _value(tokens, at)
        values.append(value)
        if tokens[at] == ("mark", ","):
            at += 1
    return values, at + 1


def _mark(tokens, at, mark):
    if tokens[at] != ("mark", mark):
        raise ValueError(f"{mark!r} expected, and not {tokens[at][1]!r}")
    return at + 1


def _unescaped(text):
    def one(match):
        escape = match.group(1)
        return chr(int(escape[1:], 16)) if escape[0] in "uU" and len(escape) > 1 else _ESCAPES.get(escape, escape)

    return re.sub(r"\\(u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)", one, text, flags=re.DOTALL)
