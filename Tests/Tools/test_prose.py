# SPDX-License-Identifier: Apache-2.0
"""Tests of what tools/check-prose counts."""

import importlib.util
import pathlib
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SPEC = importlib.util.spec_from_file_location("prose", ROOT / "Tests/Documents/prose.py")
prose = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(prose)


def kinds(text, kind="paragraph"):
    return [found for found, _ in prose.findings_of(prose.Text("a.md", 1, text, kind))]


class Findings(unittest.TestCase):
    def test_openings(self):
        self.assertIn("openings", kinds("Who has much to post can have a channel."))
        self.assertIn("openings", kinds("The queue is full. So the oldest goes."))
        self.assertEqual(kinds("Who posts most? The bridge does."), [])
        self.assertEqual(kinds("Programs with high volume open a channel."), [])

    def test_clauses_without_a_noun(self):
        for text in (
            "It counts what was sent.", "The service asks those that wait.", "It is sent to who has read it.",
            "The client gets whatever comes.",
        ):
            self.assertEqual(kinds(text), ["noun-less"], text)
        for text in ("A client that reads gets it.", "A user who posts is named.", "The service counts sent messages."):
            self.assertEqual(kinds(text), [], text)

    def test_long_sentences(self):
        self.assertEqual(kinds(" ".join(["The"] + ["word"] * 34) + "."), [])
        self.assertEqual(kinds(" ".join(["The"] + ["word"] * 35) + "."), ["long"])
        self.assertEqual(kinds("It is " + "`a long piece of code` " * 20 + "here."), [], "code is one word")

    def test_titles(self):
        self.assertEqual(kinds("What it costs", "title"), ["titles"])
        self.assertEqual(kinds("Does it cost much?", "title"), [])
        self.assertEqual(kinds("Performance", "title"), [])

    def test_stale(self):
        self.assertEqual(kinds("Not yet there: a lock."), ["stale"])
        self.assertEqual(kinds("It is not yet open."), [])


class Readers(unittest.TestCase):
    def texts(self, read, text):
        return [(found.line, found.kind, found.text) for found in read("file", text.split("\n"))]

    def test_markdown(self):
        text = "# Title\n\nOne\nline.\n\n```sh\nWhat is it\n```\n- item\n\n| a | b |\n|---|---|\n"
        self.assertEqual(self.texts(prose.markdown, text), [
            (1, "title", "Title"), (3, "paragraph", "One line."), (9, "paragraph", "item"), (11, "paragraph", "a"),
            (11, "paragraph", "b")])

    def test_swift(self):
        text = '/// A queue\n/// of posts.\n///\n/// - Parameter post: the post.\nlet a = "// no"  // a reason\n// MARK: Posts\n'
        self.assertEqual(self.texts(prose.swift, text), [
            (1, "paragraph", "A queue of posts."), (4, "paragraph", "the post."), (5, "paragraph", "a reason"),
            (6, "title", "Posts")])

    def test_manual(self):
        text = ".Sh SYNOPSIS\n.Nm carillon\n.Sh DESCRIPTION\nIt posts.\n.Pp\nSee\n.Xr carillond 1 .\n.Bd -literal\ncode\n.Ed\n"
        self.assertEqual([found[2] for found in self.texts(prose.manual, text)], ["It posts.", "See CODE."])

    def test_interface(self):
        text = "<node><!--\n  Posts.\n\n  @name: the name.\n  @object: the object.\n--></node>"
        self.assertEqual(len(self.texts(prose.xml, text)), 3)


if __name__ == "__main__":
    unittest.main()
