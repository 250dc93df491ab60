# SPDX-FileCopyrightText: The Carillon authors
# SPDX-License-Identifier: Apache-2.0
"""Configurations of the largest size that is read."""

import os

from hostile.cases import states
from hostile.files import configuration_path
from wire import message

RELOAD = message("ReloadConfiguration", answer=True)

#: The size of the largest file that the service reads.
LARGEST = 1 << 20


def reload_without_end(scene, text):
    """Has a configuration read again and again, with 10,000 observers that are held against it."""
    path = configuration_path(os.environ)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    connection = states.observers(scene, 10_000)
    scene.ask(connection, RELOAD)
    scene.reached("bytes", len(text), LARGEST * 9 // 10)
    scene.repeat(lambda: scene.ask_all(connection, [RELOAD], 20))


def largest(scene):
    """Has a configuration of 1 MiB with rules for thousands of applications read again and again."""
    group = "[Policy org.example.App{}]\npost=org.example.A{};org.example.B.*\nobserve=org.example.C;org.example.D.*\n"
    count = LARGEST // (len(group) + 8)
    reload_without_end(scene, "".join(group.format(index, index) for index in range(count)))


def longest_list(scene):
    """Has a configuration of 1 MiB with one list of open names read again and again."""
    count = LARGEST // 25 - 10
    names = ";".join(f"org.example.Open{number:08d}" for number in range(count))
    reload_without_end(scene, f"[Policy]\nopen-names={names}\n")


CASES = {
    "configuration-largest": largest,
    "configuration-longest-list": longest_list,
}
