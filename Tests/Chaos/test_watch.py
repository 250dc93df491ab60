# SPDX-FileCopyrightText: The Carillon authors
# SPDX-License-Identifier: Apache-2.0
"""Tests of what is concluded from samples of the service and the bus."""

import unittest

import gi

gi.require_version("Gio", "2.0")

from answers import slowest  # noqa: E402
from watch import MOST_ON_THE_WAY, Samples  # noqa: E402


def samples(*unread):
    made = Samples(None)
    made.unread = list(unread)
    return made


def elsewhere(*unread, between=0.02, blocked=False):
    """The part of the time between samples: of each, what lies unread at the service and the bus, the times in which the
    loop ran and had no processor, and how often it slept."""
    found = samples(*((between * number, *sample, blocked) for number, sample in enumerate(unread)))
    return found.seconds_elsewhere(0, between * (len(unread) - 1)) / (between * (len(unread) - 1))


class Elsewhere(unittest.TestCase):
    def test_all_is_read(self):
        self.assertAlmostEqual(elsewhere((0, 0, 0, 0, 0), (0, 0, 0.002, 0, 0), (0, 0, 0.010, 0, 0)), 0.75)

    def test_only_the_time_within_counts(self):
        found = samples((0, 0, 0, 0, 0, 0, False), (0.04, 0, 0, 0, 0, 0, False)).seconds_elsewhere(0.03, 5)
        self.assertAlmostEqual(found, 0.01)

    def test_a_service_that_is_frozen_has_the_same_unread(self):
        self.assertEqual(elsewhere((200, 0, 0, 0, 5), (200, 0, 0, 0, 5), (200, 0, 0, 0, 5)), 0)

    def test_a_service_that_is_frozen_while_more_comes(self):
        self.assertEqual(elsewhere((200, 0, 0, 0, 5), (300, 0, 0, 0, 5)), 0)

    def test_a_service_that_reads_a_little(self):
        self.assertAlmostEqual(elsewhere((200, 0, 0, 0, 1), (300, 0, 0, 0, 2), (MOST_ON_THE_WAY + 1, 0, 0, 0, 3)), 0.5)

    def test_a_service_that_reads_much_as_it_comes(self):
        self.assertAlmostEqual(elsewhere((200_000, 0, 0, 0, 10), (180_000, 0, 0.006, 0.002, 15)), 0.7)

    def test_a_service_that_wakes_up_for_its_timers_only(self):
        self.assertEqual(elsewhere((200_000, 0, 0, 0, 10), (210_000, 0, 0, 0, 13)), 0)

    def test_a_service_that_does_not_read_and_wakes_up_often(self):
        self.assertEqual(elsewhere((200_000, 0, 0, 0, 10), (200_000, 0, 0, 0, 30)), 0)

    def test_a_service_that_hangs_while_more_comes(self):
        self.assertAlmostEqual(elsewhere((20_000, 0, 0, 0, 10), (180_000, 0, 0.004, 0.002, 11)), 0.1)

    def test_a_service_that_hangs_with_what_it_has_read(self):
        self.assertEqual(elsewhere((0, 0, 0, 0, 10), (0, 0, 0, 0, 10), blocked=True), 0)

    def test_samples_that_are_too_far_apart(self):
        self.assertEqual(elsewhere((0, 0, 0, 0, 10), (0, 0, 0, 0, 100), between=0.5), 0)

    def test_a_bus_that_does_not_read(self):
        self.assertEqual(elsewhere((0, 100, 0, 0, 0), (0, 100, 0, 0, 0)), 1)

    def test_a_bus_that_has_much_of_the_service_to_read(self):
        self.assertEqual(elsewhere((0, 90_000, 0, 0, 0), (0, 100_000, 0, 0, 9)), 0)

    def test_a_service_that_runs_has_something_to_do(self):
        self.assertAlmostEqual(elsewhere((0, 0, 0, 0, 0), (0, 0, 0.0201, 0, 2), (0, 0, 0.03, 0, 4)), 0.2525)

    def test_without_samples_nothing_is_known(self):
        self.assertEqual(samples().seconds_elsewhere(0, 1), 0)
        self.assertEqual(samples((0, 0, 0, 0, 0, 0, False)).seconds_elsewhere(0, 1), 0)

    def test_an_answer_of_the_bus_explains_no_more_than_the_time_that_both_took(self):
        bus = [(0, 10), (20, 1)]
        self.assertEqual(slowest(bus, 9, 3), 1)
        self.assertEqual(slowest(bus, 1, 3), 3)
        self.assertEqual(slowest(bus, 19, 5), 1)
        self.assertEqual(slowest(bus, 11, 3), 0)


class Memory(unittest.TestCase):
    def found(self, memory, held):
        made = samples()
        made.memory = memory
        return made.uncounted(held, 1.5, 10)

    def test_what_is_held_explains_it(self):
        self.assertEqual(self.found([(1, 160)], [(0.95, 1, 100)]), ([], 1))
        self.assertEqual(self.found([(1, 161)], [(0.95, 1, 100)]), ([(1, 161, 100)], 1))

    def test_what_was_held_long_ago_does_not(self):
        self.assertEqual(self.found([(3, 160)], [(0.9, 1, 100), (2.9, 3, 10)]), ([], 1))
        self.assertEqual(self.found([(5, 160)], [(0.9, 1, 100), (4.9, 5, 10)]), ([(5, 160, 10)], 1))

    def test_what_is_held_later_does_not(self):
        self.assertEqual(self.found([(1, 160)], [(0.9, 1, 10), (1.5, 1.6, 100)]), ([(1, 160, 10)], 1))

    def test_where_nothing_was_said_nothing_is_judged(self):
        self.assertEqual(self.found([(1, 999)], [(0.1, 0.2, 10), (2, 2.1, 10)]), ([], 0))

    def test_a_late_answer_is_of_any_moment_until_then(self):
        self.assertEqual(self.found([(1, 160)], [(0.5, 2.5, 100)]), ([], 1))


if __name__ == "__main__":
    unittest.main()
