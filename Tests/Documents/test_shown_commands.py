#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What shown_commands.py would let pass, or refuse, by mistake."""

import contextlib
import io
import os
import re
import signal
import unittest
import unittest.mock

import blocks
import matching
import record_terminal
import shown_commands
import stage


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
        differs = [re.compile(r"process [0-9]+")]
        self.assertTrue(matching.matches(["process 1, 2"], ["process 33, 2"], differs))
        self.assertFalse(matching.matches(["process 1, 2"], ["process 33, 4"], differs))
        self.assertTrue(matching.matches([":1.42 x"], [":1.7 x"]))
        self.assertFalse(matching.matches([":1.42 x"], [":1.7 y"]))


class Runs(unittest.TestCase):
    """What becomes of a document that shows something else than what happens."""

    def run_document(self, *lines, waits_in_vain=False):
        """Passed, failed and skipped of a document. One that waits for what never comes need not do so for long, but what
        comes before that has to have its time."""
        report = shown_commands.Report(False)
        with contextlib.redirect_stdout(io.StringIO()), stage.Stage(os.environ["CARILLON_BIN_DIR"], "") as where, \
                contextlib.ExitStack() as patience:
            if waits_in_vain:
                for name in ("PATIENCE", "COMMAND_PATIENCE"):
                    patience.enter_context(unittest.mock.patch.object(stage, name, 15))
            shown_commands.Runner(where, blocks.parse("page.md", "\n".join(lines)), report).run()
        return report.passed, report.failed, report.skipped

    def test_output(self):
        for shown, counts in (("one", (1, 0, 0)), ("two", (0, 1, 0))):
            self.assertEqual(self.run_document("```console", "$ echo one", shown, "```"), counts)

    def test_output_that_is_not_shown(self):
        self.assertEqual(self.run_document("```console", "$ echo one", "```"), (0, 1, 0))

    def test_status(self):
        self.assertEqual(self.run_document("```console", "$ false", "```"), (0, 1, 0))
        self.assertEqual(self.run_document("```console status=1", "$ false", "```"), (1, 0, 0))
        self.assertEqual(self.run_document("```console status=1", "$ true", "```"), (0, 1, 0))
        self.assertEqual(self.run_document("```console", "$ false", "$ echo $?", "1", "```"), (1, 0, 0))
        self.assertEqual(self.run_document("```sh", "false", "true", "```"), (0, 1, 0))

    def test_what_never_ends(self):
        self.assertEqual(self.run_document("```sh", "sleep 1000", "```", waits_in_vain=True), (0, 1, 0))

    def test_two_terminals(self):
        observer = ("```console goes-on", "$ carillon observe A", "observing A", "A  {\"n\": 1}", "```")
        for post, counts in (("n=1", (2, 0, 0)), ("n=2", (1, 1, 0))):
            self.assertEqual(
                self.run_document(*observer, "```sh", f"carillon post A {post}", "```", waits_in_vain=post == "n=2"), counts)
        # One notification too many.
        self.assertEqual(
            self.run_document(
                *observer, "```sh", "carillon post A n=1", "carillon post A n=1", "```", waits_in_vain=True), (1, 1, 0))

    def test_a_failure_ends_its_section_only(self):
        failed = ("```sh", "false", "```", "```sh", "true", "```")
        self.assertEqual(self.run_document(*failed, "# Next", "```sh", "true", "```"), (1, 1, 1))

    def test_skips(self):
        self.assertEqual(self.run_document("```sh no-run: as root", "false", "```"), (0, 0, 1))
        self.assertEqual(self.run_document("```sh needs=no-such-program", "false", "```", "# B", "```sh", "true", "```"), (1, 0, 1))

    def test_a_check(self):
        self.assertEqual(self.run_document("<!-- check: true -->"), (1, 0, 0))
        self.assertEqual(self.run_document("<!-- check: false -->"), (0, 1, 0))

    def test_a_part_of_a_file(self):
        path = "Tests/Documents/stage.py"
        self.assertEqual(self.run_document(f"```python part-of={path}", "class StageError(Exception):", "```"), (1, 0, 0))
        self.assertEqual(self.run_document(f"```python part-of={path}", "class StageMistake(Exception):", "```"), (0, 1, 0))
        self.assertEqual(self.run_document(f"```python same-as={path}", "class StageError(Exception):", "```"), (0, 1, 0))

    def test_nothing_is_left_running(self):
        with stage.Stage(os.environ["CARILLON_BIN_DIR"], "") as where:
            where.run(["bash", "-c", "setsid sleep 1000 </dev/null >/dev/null 2>&1 &"])
            strays = list(where._strays())
            self.assertTrue(strays)
        self.assertEqual(list(where._strays()), [])


class Picture(unittest.TestCase):
    """Whether two pictures show the same."""

    def test_same(self):
        one = record_terminal.picture({"a": ["$ b", "c :1.7 \x1b[31md\x1b[0m"]})
        self.assertTrue(record_terminal.is_same(one, record_terminal.picture({"a": ["$ b", "c :1.42 d"]})))
        self.assertFalse(record_terminal.is_same(one, record_terminal.picture({"a": ["$ b", "c :1.7 e"]})))
        self.assertFalse(record_terminal.is_same(one, record_terminal.picture({"a": ["$ b"]})))
        self.assertFalse(record_terminal.is_same(one, record_terminal.picture({"b": ["$ b", "c :1.7 d"]})))


if __name__ == "__main__":
    # unittest takes any other exception for an error of the test, and goes on.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    unittest.main(verbosity=0)
