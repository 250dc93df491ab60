# SPDX-FileCopyrightText: The Carillon authors
# SPDX-License-Identifier: Apache-2.0
"""A process of one hostile kind, or of one case of the suite.

    hostile_client.py KIND SEED SECONDS SCALE [VICTIM …]

On standard output a case says how far it is: `reached`, `failed` and `acting`, each with a JSON array of the rest.
"""

import os
import resource
import sys
import time

import gi

gi.require_version("Gio", "2.0")

from contract import now  # noqa: E402
from hostile import KINDS  # noqa: E402
from hostile.cases import CASES  # noqa: E402
from hostile.scene import Scene  # noqa: E402
from wire import Closed  # noqa: E402


def main():
    kind, seed, seconds, scale, *victims = sys.argv[1:]
    # What is measured is the service, and not which process gets the processor.
    os.nice(5)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    scene = Scene(kind, seed, float(seconds), victims, float(scale))
    if kind in KINDS:
        scene.act()
    else:
        scene.prepare()
    while scene.going():
        try:
            CASES[kind](scene)
        except Closed as problem:
            # Thrown out, or not read from: a hostile client comes again.
            scene.fail(str(problem))
            time.sleep(0.05)
    # With its connections open it waits until it is ended, so that what it made the service hold stays a while.
    while now() < scene.end + 2:
        time.sleep(0.1)


if __name__ == "__main__":
    main()
