// SPDX-License-Identifier: Apache-2.0
/// A token bucket: a rate limit that allows a burst at once, and from then on an amount per second. The service limits
/// its exchange with other sessions by it: messages, bytes, and questions.
///
/// All times are microseconds since a fixed moment. An unused bucket is full.
public struct RateLimit {
    private let perSecond: Double
    private let burst: Double
    /// The available amount at ``time``.
    private var left: Double
    /// The time at which ``left`` was computed; nil before the first use.
    private var time: Int64?

    /// - Parameters:
    ///   - perSecond: the amount that becomes available each second.
    ///   - burst: the maximum that can be available.
    public init(perSecond: Int, burst: Int) {
        self.perSecond = Double(perSecond)
        self.burst = Double(burst)
        left = Double(burst)
    }

    /// Whether the whole burst is available.
    public func isFull(at now: Int64) -> Bool { remaining(at: now) >= burst }

    /// The amount that is available, rounded down.
    public func left(at now: Int64) -> Int { Int(remaining(at: now)) }

    /// The time until an amount is available, in microseconds; 0 when it is available now. The amount is at most the
    /// burst.
    public func time(until amount: Int, at now: Int64) -> Int64 {
        let missing = Double(amount) - remaining(at: now)
        return missing <= 0 ? 0 : Int64((missing / perSecond * 1_000_000).rounded(.up))
    }

    /// The available amount at a time, as a fraction.
    private func remaining(at now: Int64) -> Double {
        guard let time, now > time else { return left }
        return min(burst, left + Double(now - time) / 1_000_000 * perSecond)
    }

    /// Takes an amount if all of it is available; otherwise takes nothing.
    ///
    /// - Returns: whether it was available.
    public mutating func take(_ amount: Int = 1, at now: Int64) -> Bool {
        left = remaining(at: now)
        time = now
        guard left >= Double(amount) else { return false }
        left -= Double(amount)
        return true
    }
}
