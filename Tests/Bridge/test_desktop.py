#!/usr/bin/python3
# SPDX-FileCopyrightText: The Carillon authors
# SPDX-License-Identifier: Apache-2.0
"""A shell script with mosquitto_pub reaches the window of a GTK application, which knows of no broker."""

import os
import re
import shutil
import subprocess
import unittest

from case import BridgeTest, notifications
from programs import wait_until

WINDOW = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../Examples/windows/gtk.py")

SCRIPT = """\
set -e
for text in rain 'sun, at last'; do
    "$@" -t carillon/1/home/station/roof/n/News -m "{\\"text\\": \\"$text\\"}"
done
"""


def has_gtk(version):
    """Whether Python can show windows with that version here."""
    check = f"import gi; gi.require_version('Gtk', '{version}.0'); from gi.repository import Gtk"
    return subprocess.run(["/usr/bin/python3", "-c", check], capture_output=True, check=False).returncode == 0


@unittest.skipUnless(shutil.which("Xvfb"), "Xvfb is not installed (package xvfb)")
class Windows(BridgeTest):
    def display(self, host):
        """The number of a new X server without a screen."""
        server = host.start("display", "Xvfb", "-displayfd", "2", "-screen", "0", "400x300x24", "-nolisten", "tcp", "-noreset")
        wait_until(lambda: re.search(r"^\d+$", server.text(), re.M), lambda: f"Xvfb has started: {server.tail()}")
        return re.search(r"^\d+$", server.text(), re.M)[0]

    def script_reaches_window(self, version):
        if not has_gtk(version):
            self.skipTest(f"there is no GTK {version} for Python (python3-gi, gir1.2-gtk-{version}.0)")
        lab = self.lab()
        laptop = lab.host("laptop", imports="News")
        laptop.environment |= {
            "DISPLAY": f":{self.display(laptop)}", "GDK_BACKEND": "x11", "GSK_RENDERER": "cairo", "LIBGL_ALWAYS_SOFTWARE": "1",
        }  # fmt: skip
        window = laptop.start("window", "/usr/bin/python3", "-B", WINDOW, version)
        lab.broker.wait_subscribed("laptop", notifications("News"))
        script = lab.file("script.sh")
        with open(script, "w", encoding="utf-8") as file:
            file.write(SCRIPT)
        words = ["sh", script, *lab.broker.client_words("mosquitto_pub", "station"), "-q", "1"]
        subprocess.run(lab.network.command(lab.broker.name, words), env=lab.environment(), check=True, timeout=60)
        window.wait_for("News: sun, at last")
        lines = [line for line in window.text().splitlines() if line.startswith("News: ")]
        self.assertEqual(lines, ["News: rain", "News: sun, at last"])

    def test_gtk_3(self):
        self.script_reaches_window("3")

    def test_gtk_4(self):
        self.script_reaches_window("4")


if __name__ == "__main__":
    unittest.main()
