// SPDX-License-Identifier: Apache-2.0
/// The source of time of a center. The driver passes the system's clocks, and tests pass virtual ones.
///
/// The center has no timers for expiry: an event that looks at expired state removes it.
public struct Clock {
    /// Microseconds since 1970 in UTC.
    public var time: () -> Int64

    /// Microseconds since the machine started, including its sleep. Expiry is measured by this time.
    public var uptime: () -> Int64

    public init(time: @escaping () -> Int64, uptime: @escaping () -> Int64 = { 0 }) {
        self.time = time
        self.uptime = uptime
    }

    /// A clock whose times are always 0.
    public static var stopped: Clock { Clock(time: { 0 }) }

    /// Returns the time of expiry, as ``uptime``, after a number of seconds.
    ///
    /// - Parameter now: the present ``uptime``.
    static func expiry(in seconds: UInt32, from now: Int64) -> Int64 { now + Int64(seconds) * 1_000_000 }
}
