# SPDX-FileCopyrightText: The Carillon authors
# SPDX-License-Identifier: Apache-2.0
"""Tests of what is computed from answers, and of how messages are read and made from their bytes."""

import unittest

import gi

gi.require_version("Gio", "2.0")
from gi.repository import GLib  # noqa: E402

from hostile.templates import NUMBER, numbered, with_number  # noqa: E402
from latency import corrected, percentile, summary  # noqa: E402
from wire import (  # noqa: E402
    MEMBER, REPLY_SERIAL, answer, asked, asking, fields_of, message, parsed, post, serial_of, size_of, values_of
)


class LatencyTests(unittest.TestCase):
    def test_a_late_answer_counts_for_the_calls_that_were_not_made(self):
        found = [round(seconds, 3) for seconds in corrected([(0, 0.005), (1, 0.001)], 0.002)]
        self.assertEqual(found, [0.005, 0.003, 0.001, 0.001])

    def test_percentiles(self):
        values = list(range(1, 1001))
        self.assertEqual([percentile(values, share) for share in (0.5, 0.99, 0.999, 1)], [500, 990, 999, 1000])
        self.assertEqual(percentile([], 0.5), 0)
        self.assertEqual(summary([3, 1, 2])["max"], 3)


class BytesTests(unittest.TestCase):
    def test_fields_of_a_header(self):
        contents = post("org.example.Name", "object")
        self.assertEqual(size_of(contents[:16]), len(contents))
        self.assertEqual(fields_of(contents)[MEMBER], b"Post")
        self.assertEqual(fields_of(answer(":1.5", 77))[REPLY_SERIAL], 77)

    def test_numbers_in_the_place_of_the_placeholder(self):
        contents = numbered(post("org.example.Name", NUMBER), range(7, 9))
        second = contents[size_of(contents[:16]) :]
        self.assertEqual([values_of(each)[1] for each in (contents[: -len(second)], second)], ["00000007", "00000008"])
        call = message("RemoveObserver", GLib.Variant("(t)", (0,)))
        self.assertEqual(values_of(with_number(call, 2**40)), (2**40,))

    def test_calls_with_numbers_of_their_own(self):
        call = message("ListClients", answer=True)
        contents = asked([call], 2)
        first, second = contents[: len(call)], contents[len(call) :]
        self.assertEqual(serial_of(first) + 1, serial_of(second))
        self.assertEqual(asking(message("ListClients"), 1), call)
        self.assertEqual(parsed(second).get_member(), "ListClients")


if __name__ == "__main__":
    unittest.main()
