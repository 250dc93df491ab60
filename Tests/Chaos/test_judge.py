# SPDX-FileCopyrightText: The Carillon authors
# SPDX-License-Identifier: Apache-2.0
"""The judge sees what is broken: a run in which nothing is found proves nothing otherwise."""

import unittest

import gi

gi.require_version("Gio", "2.0")

from contract import END, matches, registrations  # noqa: E402
from judge import Meanings, Stream, check_lanes  # noqa: E402
from stage import OBSERVERS, plan  # noqa: E402

LANE = "0 now"


def stream(*received):
    """A stream of pairs of sequence and number, and of counts that were dropped."""
    made = Stream("observer", [("", "")])
    for each in received:
        if isinstance(each, int):
            made.take_dropped(each, "queue-full")
        else:
            made.take_own(0, each[0], 100 + each[0], "name", LANE, each[1])
    return made


def faults(made, accepted=0):
    """What the judge says when the posts 1, 2 … of the lane were accepted."""
    posts = {LANE: {number: ("name", "") for number in range(1, accepted + 1)}}
    return [text for _, text in made.faults + check_lanes(made, posts)[0]]


class Judgement(unittest.TestCase):
    def test_nothing_wrong(self):
        self.assertEqual(faults(stream((1, 1), (2, 2), (3, 3)), 3), [])

    def test_hole(self):
        self.assertEqual(
            faults(stream((1, 1), (3, 2))), ["observer: 1 numbers are missing before 3, and 0 were announced"]
        )
        self.assertEqual(faults(stream((1, 1), 1, (3, 2))), [])
        self.assertEqual(faults(stream((1, 1), 5, (3, 2))), [], "what was announced is an upper bound")
        self.assertEqual(len(faults(stream((1, 1), 1, (2, 2), (4, 3)))), 1, "it was announced for another hole")

    def test_sequence_goes_back(self):
        self.assertIn("observer: the sequence went from 2 to 2", faults(stream((1, 1), (2, 2), (2, 3))))

    def test_loss_without_a_hole(self):
        self.assertIn(
            "observer: 1 accepted posts of 0 now are missing between 1 and 3, 0 announced",
            faults(stream((1, 1), (2, 3)), 3),
        )
        self.assertTrue(faults(stream((1, 1), (2, 2)), 3), "the last one is missing")
        self.assertEqual(faults(stream((1, 1), 1, (3, 3)), 3), [])
        self.assertTrue(faults(stream(1, (2, 1), (3, 3)), 3), "it was announced before another")

    def test_twice_and_out_of_order(self):
        self.assertIn("observer: 0 now 1 came twice", faults(stream((1, 1), (2, 1))))
        self.assertIn("observer: 0 now 1 came after 2", faults(stream((1, 2), (2, 1))))

    def test_serial_with_two_meanings(self):
        meanings = Meanings()
        meanings.add(0, 7, "one", "a")
        meanings.add(0, 7, "one", "b")
        self.assertEqual(meanings.faults, [])
        meanings.add(0, 7, "another", "b")
        self.assertEqual(len(meanings.faults), 1)


class Agreement(unittest.TestCase):
    def test_everyone_hears_the_end(self):
        for number in range(OBSERVERS):
            self.assertTrue(matches(registrations(number), END, ""))

    def test_a_seed_is_a_plan(self):
        kinds = [str(number) for number in range(10)]
        bouts, kills = plan("1", 60, kinds, 5)
        self.assertEqual((bouts, kills), plan("1", 60, kinds, 5))
        self.assertNotEqual((bouts, kills), plan("2", 60, kinds, 5))
        self.assertEqual({bout.kind for bout in bouts}, set(kinds))
        self.assertTrue(kills and all(bout.end <= 60 for bout in bouts))


if __name__ == "__main__":
    unittest.main()
