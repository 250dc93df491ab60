// SPDX-License-Identifier: Apache-2.0
/// Counts the elementary steps of each event of a center (E8): an observer that a post matches, an entry of a queue that
/// is moved or looked at, a value that is compared, a cache line that is copied.
///
/// A step takes some tens of nanoseconds, so steps tell what an event costs on any machine. Every loop over state that
/// clients can make grow counts. Cheap work counts by the lot: eight comparisons of a sort are a step, and a cache line. What
/// is dear counts more: a system call is twenty steps. Debug builds count, and so does a build with `CARILLON_METER`; in any
/// other build the meter is empty, and costs no more than to know what it would count.
///
/// A meter belongs to one center, and is used on its thread only.
#if DEBUG || CARILLON_METER
    package final class StepMeter {
        /// Whether this build counts.
        package static let isCounting = true
        /// The most steps that one event may take with state at the standard limits. In a release build these are
        /// about 5 ms of processor time, and at most 16 ms (`docs/testing.md`, "The cost of an event").
        package static let budget = 100_000

        /// Called at the end of each event with its function and its steps.
        package var eventEnded: ((StaticString, Int) -> Void)?
        private var steps = 0

        package init() {}

        /// Counts `count` steps of the event that is under way.
        package func count(_ count: Int = 1) { steps += count }

        /// Counts the comparisons of a sort of `count` elements.
        package func countSort(of count: Int) {
            steps += count * (Int.bitWidth - count.leadingZeroBitCount) / 8
        }

        /// Counts the copy of `byteCount` bytes, by cache lines.
        package func countCopy(of byteCount: Int) { steps += byteCount / 64 }

        /// Counts system calls, about a microsecond each.
        package func countSystemCalls(_ count: Int) { steps += count * 20 }

        /// The event is over, and the next one begins with no steps.
        package func endEvent(_ event: StaticString) {
            eventEnded?(event, steps)
            steps = 0
        }

        /// Forgets the steps of checks, which are no part of an event.
        func forget() { steps = 0 }
    }
#else
    package struct StepMeter {
        package static let isCounting = false
        package static let budget = 0
        package var eventEnded: ((StaticString, Int) -> Void)? {
            get { nil }
            nonmutating set {}
        }
        package init() {}
        // No autoclosures: a build for use evaluates what one for tests does.
        @inline(__always) package func count(_ count: Int = 1) {}
        @inline(__always) package func countSort(of count: Int) {}
        @inline(__always) package func countCopy(of byteCount: Int) {}
        @inline(__always) package func countSystemCalls(_ count: Int) {}
        @inline(__always) package func endEvent(_ event: StaticString) {}
        @inline(__always) func forget() {}
    }
#endif
