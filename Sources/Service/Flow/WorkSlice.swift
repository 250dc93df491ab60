// SPDX-License-Identifier: Apache-2.0
/// How much of many posts that came together is taken before it is others' turn (E4): few of them, and for no longer than a
/// moment, as those with many observers take long. One is taken in any case.
///
/// Time is told from outside: there is no clock in here.
struct WorkSlice {
    typealias Instant = SuspendingClock.Instant

    /// Some hundreds of microseconds, where few observe.
    private static let most = 32
    /// The same while an observer that reads is behind.
    private static let maxInCrowd = 8
    private static let time = Duration.microseconds(500)

    private let most: Int
    private let end: Instant?
    private(set) var count = 0

    /// - Parameter isCrowded: whether an observer that reads is behind.
    init(isUnderBackpressure: Bool, at now: Instant) {
        most = isUnderBackpressure ? Self.maxInCrowd : Self.most
        end = now + Self.time
    }

    /// Where nobody's turn is waited for.
    init(most: Int) {
        self.most = most
        end = nil
    }

    /// Whether another one may be taken.
    func hasRoom(at now: @autoclosure () -> Instant) -> Bool {
        guard count < most else { return false }
        guard count > 0, let end else { return true }
        return now() < end
    }

    mutating func take() { count += 1 }
}
