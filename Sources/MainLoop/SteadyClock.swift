// SPDX-License-Identifier: Apache-2.0
import CCarillonGLib

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// The monotonic clock of the machine: it never goes back, and is independent of changes of the time of day.
package enum SteadyClock {
    /// The time since an arbitrary moment before the process began. Threads: any.
    package static func nanoseconds() -> Int64 {
        Int64(g_get_monotonic_time()) * 1_000
    }
}

/// The processor time of the calling thread. Threads: any.
package enum ThreadClock {
    package static func nanoseconds() -> Int64 {
        var time = timespec()
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time)
        return Int64(time.tv_sec) * 1_000_000_000 + Int64(time.tv_nsec)
    }
}

/// The time of day, which may be set at any time.
package enum WallClock {
    /// The time since 1970 in UTC. Threads: any.
    package static func microseconds() -> Int64 { Int64(g_get_real_time()) }
}
