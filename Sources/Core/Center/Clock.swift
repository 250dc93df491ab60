// SPDX-License-Identifier: Apache-2.0
/// What time it is. There is no timer in the center: what is over is found to be so when somebody looks.
public struct Clock {
    /// Microseconds since 1970 in UTC.
    public var time: () -> Int64

    /// Microseconds since the machine started, also those in which it slept: by this the time of a notification is over.
    public var uptime: () -> Int64

    public init(time: @escaping () -> Int64, uptime: @escaping () -> Int64 = { 0 }) {
        self.time = time
        self.uptime = uptime
    }

    /// It is always 1970.
    public static var stopped: Clock { Clock(time: { 0 }) }

    /// When so many seconds are over.
    ///
    /// - Parameter now: ``uptime``.
    static func expiry(in seconds: UInt32, from now: Int64) -> Int64 { now + Int64(seconds) * 1_000_000 }
}
