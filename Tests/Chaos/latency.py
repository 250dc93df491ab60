# SPDX-FileCopyrightText: The Carillon authors
# SPDX-License-Identifier: Apache-2.0
"""Percentiles of how long answers took."""

import math


def corrected(answers, interval):
    """The seconds of these answers, which are pairs of moment and seconds, corrected for coordinated omission.

    An answer after L seconds counts as L, L - interval, L - 2 * interval and so on, for calls not made meanwhile."""
    for _, seconds in answers:
        yield seconds
        yield from (seconds - skipped * interval for skipped in range(1, math.ceil(seconds / interval)))


def percentile(ordered, share):
    """The least value that this share of the values does not exceed; 0 where there are none."""
    return ordered[max(0, math.ceil(len(ordered) * share) - 1)] if ordered else 0.0


def summary(seconds):
    """Count, percentiles and maximum of so many seconds."""
    ordered = sorted(seconds)
    return {
        "count": len(ordered), "p50": percentile(ordered, 0.5), "p99": percentile(ordered, 0.99),
        "p99.9": percentile(ordered, 0.999), "max": ordered[-1] if ordered else 0.0,
    }


def worst(answers, count=5):
    """The answers that took longest."""
    return sorted(answers, key=lambda answer: -answer[1])[:count]
