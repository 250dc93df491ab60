import CGLib

/// The clock by which turns are measured: it does not go back, and goes on while nobody sets it.
package enum SteadyClock {
    /// Since some moment before the process began. Threads: any.
    package static func nanoseconds() -> Int64 {
        Int64(g_get_monotonic_time()) * 1_000
    }
}
