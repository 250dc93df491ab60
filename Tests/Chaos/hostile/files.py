# SPDX-FileCopyrightText: The Carillon authors
# SPDX-License-Identifier: Apache-2.0
"""Trouble with the files that the service reads."""

import os

from wire import asked, message


def configuration(scene):
    """Has the configuration read all the time while it is damaged, endless, a pipe, a link, or away."""
    path = configuration_path(os.environ)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    connection = scene.connect()
    reload = message("ReloadConfiguration", answer=True)
    while scene.going():
        put(path, scene.random)
        if not scene.send(connection, asked([reload], 30)):
            connection = scene.connect()
        connection.discard(0.05)


def configuration_path(environment):
    """The user's file, which comes before that of the run."""
    return os.path.join(environment["XDG_CONFIG_HOME"], "carillon", "carillon.conf")


def remove_configuration(environment):
    """Leaves the configuration of the run alone."""
    remove(configuration_path(environment))


def put(path, random):
    """Puts something there that is no good configuration."""
    remove(path)
    kind = random.randrange(6)
    if kind == 0:
        os.mkfifo(path)
    elif kind == 1:
        os.symlink("/dev/zero", path)
    elif kind == 2:
        os.mkdir(path)
    elif kind == 3:
        with open(path, "w", encoding="utf-8") as file:
            file.write("# a comment\n" * 80_000 + "mistake\n")
    elif kind == 4:
        with open(path, "wb") as file:
            file.write(b"[Limits]\nclients=\xff\0\n" + random.randbytes(5000))
    # else nothing


def remove(path):
    """Removes whatever is there."""
    try:
        os.rmdir(path) if os.path.isdir(path) and not os.path.islink(path) else os.remove(path)
    except FileNotFoundError:
        pass
