#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of files that others read or install: the manual pages, by both formatters, and the wheel of the Python package."""

import importlib.util
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = sorted((ROOT / "data/man").glob("*.1"))


def printed(*command):
    """What a formatter prints, as words without the header and the footer, which each makes in its own way."""
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    if result.stderr:
        raise AssertionError(result.stderr)
    lines = re.sub(r"\x1b\[[0-9;]*m|.\x08", "", result.stdout).strip().splitlines()
    # The dash behind the name is another one.
    return " ".join(lines[1:-1]).replace("—", "–").split()


class Manual(unittest.TestCase):
    def setUp(self):
        missing = [program for program in ("groff", "mandoc") if not shutil.which(program)]
        if missing:
            self.skipTest(f"no {' and no '.join(missing)}")

    def test_pages_are_there(self):
        self.assertEqual([page.name for page in PAGES], ["carillon-bridge.1", "carillon.1", "carillond.1"])

    def test_both_formatters_print_the_same_words_and_find_no_fault(self):
        for page in PAGES:
            with self.subTest(page=page.name):
                subprocess.run(["mandoc", "-T", "lint", "-W", "warning", page], check=True)
                # Without hyphens, and in lines that break nowhere else than between words.
                by_groff = printed("groff", "-ww", "-man", "-Tutf8", "-P-c", "-rHY=0", "-rLL=1000n", page)
                self.assertEqual(by_groff, printed("mandoc", "-T", "utf8", "-O", "width=1000", page))


class Wheel(unittest.TestCase):
    def test_it_is_built_and_can_be_imported(self):
        missing = [name for name in ("setuptools", "wheel", "jeepney") if not importlib.util.find_spec(name)]
        if missing:
            self.skipTest(f"no {' and no '.join(missing)}")
        with tempfile.TemporaryDirectory() as place:
            # It leaves its directories beside the source.
            shutil.copytree(ROOT / "python", f"{place}/python")
            subprocess.run(
                [sys.executable, "-c", f"from setuptools import build_meta; build_meta.build_wheel('{place}')"],
                cwd=f"{place}/python", capture_output=True, text=True, check=True)
            (wheel,) = pathlib.Path(place).glob("*.whl")
            self.assertRegex(wheel.name, r"^carillon-[0-9.]+-py3-none-any\.whl$")
            with zipfile.ZipFile(wheel) as archive:
                modules = {f"carillon/{path.name}" for path in (ROOT / "python/carillon").glob("*.py")}
                self.assertLessEqual(modules | {"carillon/py.typed"}, set(archive.namelist()))
                archive.extractall(f"{place}/installed")
            subprocess.run(
                [sys.executable, "-I", "-c",
                 f"import sys; sys.path.insert(0, '{place}/installed'); import carillon; carillon.Center; "
                 f"assert carillon.__file__.startswith('{place}/installed')"],
                check=True)


if __name__ == "__main__":
    unittest.main()
