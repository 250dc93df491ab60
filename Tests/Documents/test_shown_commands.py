#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What shown_commands.py would let pass, or refuse, by mistake."""

import unittest

import blocks
import matching


class Blocks(unittest.TestCase):
    """What a document is read as."""

    def parse(self, *lines):
        return blocks.parse("page.md", "\n".join(lines))

    def test_info_string(self):
        document = self.parse("# One", "```console goes-on until=\"test -e x\" needs=a,b", "$ a", "b", "```")
        heading, step = document.steps
        self.assertEqual((heading.kind, step.kind, step.line), ("heading", "block", 2))
        self.assertTrue(step.goes_on)
        self.assertEqual(step.options, {"until": "test -e x", "needs": "a,b"})
        self.assertEqual(step.text, "$ a\nb\n")

    def test_a_reason_is_needed(self):
        self.assertEqual(self.parse("```sh no-run: as root", "a", "```").steps[0].no_run, "as root")
        for wrong in ("```sh no-run:", "```sh no-run", "```sh gos-on", "```sh until=x", "```sh status=x", "```sh file="):
            with self.assertRaises(blocks.DocumentError, msg=wrong):
                self.parse(wrong, "a", "```")
        with self.assertRaises(blocks.DocumentError):
            self.parse("<!-- differs: [0-9]+ -->")
        with self.assertRaises(blocks.DocumentError):
            self.parse("<!-- differs: [0-9: open -->")

    def test_an_open_block(self):
        with self.assertRaises(blocks.DocumentError):
            self.parse("```sh", "a")

    def test_a_heading_in_a_block_is_none(self):
        self.assertEqual([step.kind for step in self.parse("```sh", "# comment", "```").steps], ["block"])

    def test_commands(self):
        step = self.parse("```console", "$ a \\", "> b", "$ c <<END", "> d", "> END", "e", "```").steps[0]
        self.assertEqual(blocks.commands("page.md", step), [["a \\\nb", []], ["c <<END\nd\nEND", ["e"]]])
        step = self.parse("```console", "nothing before", "```").steps[0]
        with self.assertRaises(blocks.DocumentError):
            blocks.commands("page.md", step)


class Matching(unittest.TestCase):
    """Whether output is what is shown."""

    def test_lines(self):
        self.assertTrue(matching.matches(["a  b"], ["a b "]))
        self.assertFalse(matching.matches(["a b"], ["a c"]))
        self.assertFalse(matching.matches(["a"], ["a", "b"]))
        self.assertFalse(matching.matches(["a", "b"], ["a"]))
        self.assertFalse(matching.matches([], ["a"]))
        self.assertFalse(matching.matches(["a.c"], ["abc"]))

    def test_what_goes_on(self):
        self.assertTrue(matching.matches(["a"], ["a", "b"], is_over=False))
        self.assertFalse(matching.matches(["a", "b"], ["a"], is_over=False))

    def test_ellipsis(self):
        self.assertTrue(matching.matches(["a…c"], ["abbc"]))
        self.assertFalse(matching.matches(["a…c"], ["abbd"]))
        self.assertTrue(matching.matches(["a", "…", "b"], ["a", "x", "y", "b"]))
        self.assertTrue(matching.matches(["a", "…", "b"], ["a", "b"]))
        self.assertFalse(matching.matches(["a", "…", "b"], ["a", "x"]))

    def test_differs(self):
        import re

        differs = [re.compile(r"process [0-9]+")]
        self.assertTrue(matching.matches(["process 1, 2"], ["process 33, 2"], differs))
        self.assertFalse(matching.matches(["process 1, 2"], ["process 33, 4"], differs))
        self.assertTrue(matching.matches([":1.42 x"], [":1.7 x"]))
        self.assertFalse(matching.matches([":1.42 x"], [":1.7 y"]))


if __name__ == "__main__":
    unittest.main(verbosity=0)
