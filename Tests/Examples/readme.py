# SPDX-License-Identifier: Apache-2.0
"""What the README.md of an example tells to do. That is what is tested, so that what is shown is true."""

import os
import re

#: What an example may declare that it can't do: bullets `- KEY: reason` under this heading. It is not tested then, and
#: told with the result.
CANNOT = "Missing functions"

#: The keys, each with what is not tested for it; trial.py has the checks.
KEYS = {
    "registers": "the observer is none, it watches the bus: it counts nowhere, and the next four don't apply",
    "forged": "the observer ignores signals that somebody else sends",
    "restart": "the observer has the service started again when it is killed, and registers anew",
    "lost": "the observer tells how many it lost",
    "retained": "the observer gets what is retained",
    "no-service": "the observer and the poster say in a line that there is no service",
    "error-name": "the poster tells the D-Bus name of an error",
    "large-integers": "integers beyond 2^53 arrive and are posted as they are",
}


class Unreadable(Exception):
    """The README.md is not as tools/test-examples needs it."""


class Readme:
    """The packages, the commands and the limits of the example in a folder."""

    def __init__(self, folder):
        with open(os.path.join(folder, "README.md"), encoding="utf-8") as file:
            text = file.read()
        sections = re.split(r"^## +(.*?) *$", text, flags=re.MULTILINE)
        self.sections = dict(zip(sections[1::2], sections[2::2]))
        commands = "".join(re.findall(r"sudo apt install ((?:[^`\n]|\\\n)+)", text))
        #: Debian packages that it needs.
        self.packages = commands.replace("\\\n", " ").split()
        self.build = self._commands("Build") if "Build" in self.sections else ""
        #: Whether that builds a product of this package, in .build/debug.
        self.is_product = "swift build" in self.build
        run = [line for line in self._commands("Run").split("\n") if line]
        if len(run) != 2:
            raise Unreadable(f"'## Run' has {len(run)} commands, not two: the observer, the poster")
        self.observer, self.poster = run
        #: Reasons by the key of what it can't do.
        self.cannot = {}
        for bullet in re.split(r"^- ", self.sections.get(CANNOT, ""), flags=re.MULTILINE)[1:]:
            key, colon, reason = bullet.partition(":")
            if key not in KEYS or not colon or not reason.strip():
                raise Unreadable(f"'{bullet.strip()}' is no 'KEY: reason' with one of {', '.join(KEYS)}")
            self.cannot[key] = " ".join(reason.split())

    def _commands(self, section):
        blocks = re.findall(r"^```sh\n(.*?)^```$", self.sections.get(section, ""), flags=re.MULTILINE | re.DOTALL)
        if len(blocks) != 1:
            raise Unreadable(f"'## {section}' has {len(blocks)} blocks of ```sh, not one")
        return blocks[0].strip()


def is_example(folder):
    """Whether its README.md tells how to run it."""
    try:
        with open(os.path.join(folder, "README.md"), encoding="utf-8") as file:
            return any(line.rstrip() == "## Run" for line in file)
    except FileNotFoundError:
        return False
