// SPDX-License-Identifier: Apache-2.0
import CCarillonGLib

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// The clock by which turns are measured: it does not go back, and goes on while nobody sets it.
package enum SteadyClock {
    /// Since some moment before the process began. Threads: any.
    package static func nanoseconds() -> Int64 {
        Int64(g_get_monotonic_time()) * 1_000
    }
}

/// The time that the calling thread has had of a processor. Threads: any.
package enum ThreadClock {
    package static func nanoseconds() -> Int64 {
        var time = timespec()
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time)
        return Int64(time.tv_sec) * 1_000_000_000 + Int64(time.tv_nsec)
    }
}

/// The time of day, which somebody may set.
package enum WallClock {
    /// Since 1970 in UTC. Threads: any.
    package static func microseconds() -> Int64 { Int64(g_get_real_time()) }
}
