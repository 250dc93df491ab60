// SPDX-License-Identifier: Apache-2.0
/// So much at once, and so much a second from then on.
public struct RateLimit {
    private let perSecond: Double
    private let burst: Double
    private var left: Double
    /// When that was so, in microseconds.
    private var time: Int64?

    public init(perSecond: Int, burst: Int) {
        self.perSecond = Double(perSecond)
        self.burst = Double(burst)
        left = Double(burst)
    }

    /// Whether it lets as much through at once as it ever does.
    ///
    /// - Parameter now: microseconds since some moment.
    public func isFull(at now: Int64) -> Bool { remaining(at: now) >= burst }

    /// How much it lets through now.
    public func left(at now: Int64) -> Int { Int(remaining(at: now)) }

    /// How long it is until there is as much, in microseconds; 0 when there is.
    public func time(until amount: Int, at now: Int64) -> Int64 {
        let missing = Double(amount) - remaining(at: now)
        return missing <= 0 ? 0 : Int64((missing / perSecond * 1_000_000).rounded(.up))
    }

    private func remaining(at now: Int64) -> Double {
        guard let time, now > time else { return left }
        return min(burst, left + Double(now - time) / 1_000_000 * perSecond)
    }

    /// Takes an amount, where there is as much.
    ///
    /// - Parameter now: microseconds since some moment.
    /// - Returns: whether there was.
    public mutating func take(_ amount: Int = 1, at now: Int64) -> Bool {
        left = remaining(at: now)
        time = now
        guard left >= Double(amount) else { return false }
        left -= Double(amount)
        return true
    }
}
