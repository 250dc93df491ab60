# SPDX-License-Identifier: Apache-2.0
"""Arguments of the programs that tools/bench runs: what is wrong with them is one line, as of the tools themselves."""

import argparse


class Parser(argparse.ArgumentParser):
    def __init__(self, **rest):
        super().__init__(allow_abbrev=False, **rest)

    def error(self, message):
        message = message.removeprefix("argument ").replace("unrecognized arguments: -", "unknown option -")
        self.exit(2, f"bench: {' '.join(message.split())}; try --help\n")


def whole(least, most):
    """A type of arguments: whole numbers within bounds."""

    def read(text):
        if not (text.isascii() and text.isdigit() and least <= int(text) <= most):
            raise argparse.ArgumentTypeError(f"needs a whole number from {least} to {most}, not {text!r}")
        return int(text)

    return read
