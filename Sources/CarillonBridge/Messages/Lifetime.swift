// SPDX-License-Identifier: Apache-2.0

/// The comparison of ends of lifetimes, in microseconds since 1970; nil for never.
enum Lifetime {
    /// The tolerance, in microseconds: lifetimes of messages are whole seconds, and messages need some time on their
    /// way.
    private static let tolerance: Int64 = 5_000_000

    static func isSame(_ one: Int64?, _ other: Int64?) -> Bool {
        guard let one, let other else { return one == nil && other == nil }
        let (difference, isTooMuch) = one.subtractingReportingOverflow(other)
        return !isTooMuch && (-tolerance...tolerance).contains(difference)
    }
}
