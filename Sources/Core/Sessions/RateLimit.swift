// SPDX-License-Identifier: Apache-2.0
/// A token bucket: it lets a burst through at once, and from then on a number per second.
public struct RateLimit {
    private let perSecond: Double
    private let burst: Double
    private var left: Double
    /// The time at which ``left`` was computed, in microseconds.
    private var time: Int64?

    public init(perSecond: Int, burst: Int) {
        self.perSecond = Double(perSecond)
        self.burst = Double(burst)
        left = Double(burst)
    }

    /// Whether the whole burst is available.
    ///
    /// - Parameter now: microseconds since a fixed moment.
    public func isFull(at now: Int64) -> Bool { remaining(at: now) >= burst }

    /// The amount that is available now.
    public func left(at now: Int64) -> Int { Int(remaining(at: now)) }

    /// The time until an amount is available, in microseconds; 0 when it is.
    public func time(until amount: Int, at now: Int64) -> Int64 {
        let missing = Double(amount) - remaining(at: now)
        return missing <= 0 ? 0 : Int64((missing / perSecond * 1_000_000).rounded(.up))
    }

    private func remaining(at now: Int64) -> Double {
        guard let time, now > time else { return left }
        return min(burst, left + Double(now - time) / 1_000_000 * perSecond)
    }

    /// Takes an amount if it is available.
    ///
    /// - Parameter now: microseconds since a fixed moment.
    /// - Returns: whether it was available.
    public mutating func take(_ amount: Int = 1, at now: Int64) -> Bool {
        left = remaining(at: now)
        time = now
        guard left >= Double(amount) else { return false }
        left -= Double(amount)
        return true
    }
}
