// SPDX-License-Identifier: Apache-2.0
/// A counter of the elementary steps of each event of a center (E8). Tests use it to show that no event takes too long,
/// as one call of a client must not delay the others.
///
/// A step takes some tens of nanoseconds: a matching observer, a visited or moved entry of a queue, a compared value,
/// or a copied cache line. The number of steps shows the cost of an event on any machine. Every loop over state that
/// clients can make grow counts its steps. Cheap work counts in groups: eight comparisons of a sort are a step. A
/// system call counts as twenty steps.
///
/// Debug builds and builds with `CARILLON_METER` count. In any other build the meter is empty, and costs no more than
/// the computation of its arguments.
///
/// A meter belongs to one center, and is used on the thread of the center only.
#if DEBUG || CARILLON_METER
    package final class StepMeter {
        /// Whether this build counts.
        package static let isCounting = true
        /// The maximum number of steps of one event, with state at the standard limits. In a release build so many
        /// steps take about 5 ms of processor time, and at most 16 ms (`docs/testing.md`, "The cost of an event").
        package static let budget = 100_000

        /// Called at the end of each event with the name of its function and its number of steps.
        package var eventEnded: ((StaticString, Int) -> Void)?
        private var steps = 0

        package init() {}

        /// Counts steps of the present event.
        package func count(_ count: Int = 1) { steps += count }

        /// Counts the comparisons of a sort of `count` elements.
        package func countSort(of count: Int) {
            steps += count * (Int.bitWidth - count.leadingZeroBitCount) / 8
        }

        /// Counts the copy of `byteCount` bytes, by cache lines of 64 bytes.
        package func countCopy(of byteCount: Int) { steps += byteCount / 64 }

        /// Counts system calls, each of which takes about a microsecond.
        package func countSystemCalls(_ count: Int) { steps += count * 20 }

        /// Ends the present event; the next one begins with no steps.
        package func endEvent(_ event: StaticString) {
            eventEnded?(event, steps)
            steps = 0
        }

        /// Discards the steps of invariant checks, which are no part of an event.
        func forget() { steps = 0 }
    }
#else
    /// The empty meter of other builds, with the same members.
    package struct StepMeter {
        package static let isCounting = false
        package static let budget = 0
        package var eventEnded: ((StaticString, Int) -> Void)? {
            get { nil }
            nonmutating set {}
        }
        package init() {}
        // The arguments are no autoclosures, so that a release build evaluates the same ones as a test build.
        @inline(__always) package func count(_ count: Int = 1) {}
        @inline(__always) package func countSort(of count: Int) {}
        @inline(__always) package func countCopy(of byteCount: Int) {}
        @inline(__always) package func countSystemCalls(_ count: Int) {}
        @inline(__always) package func endEvent(_ event: StaticString) {}
        @inline(__always) func forget() {}
    }
#endif
