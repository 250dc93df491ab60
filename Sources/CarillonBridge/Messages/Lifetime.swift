// SPDX-License-Identifier: Apache-2.0

/// The comparison of expiry times, to find out whether two copies of a retained value are the same. The times are in
/// microseconds since 1970; nil stands for never.
enum Lifetime {
    /// The tolerance, in microseconds. A lifetime in MQTT has whole seconds, and the transmission takes time.
    private static let tolerance: Int64 = 5_000_000

    /// Whether both times are nil, or differ by at most the tolerance.
    static func isSame(_ one: Int64?, _ other: Int64?) -> Bool {
        guard let one, let other else { return one == nil && other == nil }
        let (difference, isTooMuch) = one.subtractingReportingOverflow(other)
        return !isTooMuch && (-tolerance...tolerance).contains(difference)
    }
}
