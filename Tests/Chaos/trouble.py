# SPDX-FileCopyrightText: The Carillon authors
# SPDX-License-Identifier: Apache-2.0
"""Trouble with the files in which the service keeps its state, after the load.

Whoever writes there can take the state away, so registrations may be lost here. The service itself must go on, come
back after a kill, and serve who asks then.
"""

import os
import random
import shutil
import stat

from gi.repository import GLib

NAME = "org.example.Chaos.Trouble"


def truncate(path):
    os.truncate(path, 0)


def cut(path):
    os.truncate(path, os.path.getsize(path) * 2 // 3)


def fill(path):
    with open(path, "r+b") as file:
        file.write(b"\xff" * os.path.getsize(path))


def remove(path):
    os.remove(path)


def put_fifo(path):
    os.remove(path)
    os.mkfifo(path, 0o600)


def put_endless(path):
    os.remove(path)
    os.symlink("/dev/zero", path)


def put_sparse(path):
    os.truncate(path, 3 << 30)


def remove_directory(path):
    shutil.rmtree(os.path.dirname(path))


HARMS = (truncate, cut, fill, remove, put_fifo, put_endless, put_sparse, remove_directory)


def make_trouble(stage, count):
    """Does so many kinds of harm, with a kill after each. What broke is noted in the stage."""
    chance = random.Random(f"{stage.seed} trouble")
    directory = os.path.join(stage.bus.environment["XDG_RUNTIME_DIR"], "carillon")
    for harm in chance.sample(HARMS, min(count, len(HARMS))):
        ending = chance.choice([".log", ".counts"])
        if not stage.wait_until(lambda: stage.service is not None, "the service is there", 30):
            return
        paths = [os.path.join(directory, name) for name in files(directory) if name.endswith(ending)]
        if not paths:
            stage.note(f"the service keeps no {ending} file")
            continue
        what = f"{harm.__name__} of its {ending} file"
        harm(paths[0])
        ask(stage, f"after {what}")
        stage.kill()
        stage.wait_until(lambda: stage.service is None, "a killed process ends")
        ask(stage, f"after {what} and a kill")


def files(directory):
    """The names of regular files there."""
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return []
    return [name for name in names if stat.S_ISREG(os.lstat(os.path.join(directory, name)).st_mode)]


def ask(stage, when):
    """Registers, posts, and sees that it matches, some times, so that the service writes, too."""
    for _ in range(20):
        held = {"suspension-behavior": GLib.Variant("s", "hold")}
        if stage.call("AddObserver", GLib.Variant("(ssa{sv})", (NAME, "", held))) is None:
            stage.note(f"a registration was refused {when}")
            return
        receivers = stage.call("Post", GLib.Variant("(ssa{sv}a{sv})", (NAME, "", {}, {})))
        if receivers is None or receivers[0] < 1:
            stage.note(f"a post reached {receivers} {when}")
            return
