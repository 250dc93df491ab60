// SPDX-License-Identifier: Apache-2.0
/// The source of time of a center. The center has no timers for expiry: expired state is found when an event looks at
/// it.
public struct Clock {
    /// Microseconds since 1970 in UTC.
    public var time: () -> Int64

    /// Microseconds since the machine started, including its sleep. Expiry is measured by this time.
    public var uptime: () -> Int64

    public init(time: @escaping () -> Int64, uptime: @escaping () -> Int64 = { 0 }) {
        self.time = time
        self.uptime = uptime
    }

    /// A clock that stands at 1970.
    public static var stopped: Clock { Clock(time: { 0 }) }

    /// Returns the expiry after a number of seconds.
    ///
    /// - Parameter now: the time by ``uptime``.
    static func expiry(in seconds: UInt32, from now: Int64) -> Int64 { now + Int64(seconds) * 1_000_000 }
}
