# SPDX-License-Identifier: Apache-2.0
"""The reference of a D-Bus interface from its XML, in whose comments everything is explained, as Markdown and HTML."""

import re
import textwrap
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass, field

KINDS = {"method": "Methods", "signal": "Signals", "property": "Properties"}

#: How D-Bus types read.
TYPES = {
    "s": "string", "b": "boolean", "t": "64-bit unsigned integer", "u": "32-bit unsigned integer", "x": "64-bit integer",
    "i": "32-bit integer", "d": "double", "h": "file descriptor", "a{sv}": "dictionary", "as": "list of strings",
    "at": "list of numbers", "a{st}": "dictionary of numbers", "aa{sv}": "list of dictionaries",
}  # fmt: skip


@dataclass
class Member:
    kind: str
    name: str
    arguments: list = field(default_factory=list)  # name, type, direction, what it is
    type: str = ""
    access: str = ""
    text: str = ""

    @property
    def anchor(self):
        return f"{self.kind}-{self.name}"

    @property
    def signature(self):
        if self.kind == "property":
            return f"{self.name}: {self.type} ({self.access})"
        ways = {way: ", ".join(f"{type_} {name}" for name, type_, direction, _ in self.arguments if direction == way)
                for way in ("in", "out")}  # fmt: skip
        if self.kind == "signal":
            return f"{self.name}({ways['out']})"
        return f"{self.name}({ways['in']})" + (f" → {ways['out']}" if ways["out"] else "")


class Interface:
    """An interface with its members, each with what its comment says."""

    def __init__(self, path):
        parser = ElementTree.XMLParser(target=ElementTree.TreeBuilder(insert_comments=True))
        with open(path, "rb") as file:
            root = ElementTree.fromstring(file.read(), parser)
        self.members = []
        self.name = self.text = self.summary = ""
        comment = ""
        for node in root:
            if node.tag is ElementTree.Comment:
                comment = node.text
            elif node.tag == "interface":
                self.name = node.get("name")
                title, parameters, self.text = _parts(comment)
                if title != self.name:
                    raise ValueError(f"{path}: the comment before {self.name} is of {title}")
                self.summary = parameters.get("short_description", "")
                self._read(path, node)
        if not self.members:
            raise ValueError(f"{path}: there is no interface in it")

    def _read(self, path, interface):
        comment = None
        for node in interface:
            if node.tag is ElementTree.Comment:
                comment = node.text
                continue
            if node.tag not in KINDS:
                continue
            if comment is None:
                raise ValueError(f"{path}: {node.get('name')} is not explained")
            title, parameters, text = _parts(comment)
            comment = None
            member = Member(node.tag, node.get("name"), text=text)
            if title != member.name:
                raise ValueError(f"{path}: the comment before {member.name} is of {title}")
            member.type, member.access = node.get("type", ""), node.get("access", "")
            for argument in node.iter("arg"):
                name = argument.get("name")
                if name not in parameters:
                    raise ValueError(f"{path}: the argument {name} of {member.name} is not explained")
                direction = argument.get("direction", "out" if node.tag == "signal" else "in")
                member.arguments.append((name, argument.get("type"), direction, parameters[name]))
            self.members.append(member)

    def markdown(self, text, page_of):
        """A comment as Markdown. page_of gives the page of another interface."""
        methods = {member.name for member in self.members if member.kind == "method"}
        lines, is_code = [], False
        for line in text.split("\n"):
            if line.strip() in ("|[", "]|"):
                is_code = not is_code
                indentation = line[: len(line) - len(line.lstrip())]
                lines.append(indentation + ("```sh" if is_code else "```"))
                continue
            if not is_code:
                line = line.replace("``", "`")
                line = re.sub(r"#([\w.]+?)(::|:)(\w+)", lambda match: self._reference(match, page_of), line)
                line = re.sub(r"(?<![\w`\[])(\w+)\(\)", lambda match: f"[{match[1]}](#method-{match[1]})"
                              if match[1] in methods else match[0], line)  # fmt: skip
                line = re.sub(r"(?<!\w)@(\w+)", r"`\1`", line)
            lines.append(line)
        return "\n".join(lines)

    def _reference(self, match, page_of):
        name, mark, member = match.groups()
        page = "" if name == self.name else page_of(name)
        return f"[{member}]({page}#{'signal' if mark == '::' else 'property'}-{member})"


def _parts(comment):
    """The title of a comment, its parameters, and the rest."""
    lines = textwrap.dedent(comment.strip("\n")).rstrip().split("\n")
    title = lines[0].strip().rstrip(":")
    parameters, current, at = {}, None, 1
    for at in range(1, len(lines) + 1):
        line = lines[at] if at < len(lines) else ""
        if not line.strip():
            break
        if match := re.match(r"@(\w+):\s*(.*)", line):
            current = match[1]
            parameters[current] = match[2]
        elif current:
            parameters[current] += " " + line.strip()
    return title, parameters, "\n".join(lines[at:]).strip("\n")
