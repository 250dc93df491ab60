// SPDX-License-Identifier: Apache-2.0

/// When a value is over, in microseconds since 1970; nil for never.
enum Lifetime {
    /// Messages have whole seconds, and take some on their way.
    private static let tolerance: Int64 = 5_000_000

    static func isSame(_ one: Int64?, _ other: Int64?) -> Bool {
        guard let one, let other else { return one == nil && other == nil }
        let (difference, isTooMuch) = one.subtractingReportingOverflow(other)
        return !isTooMuch && (-tolerance...tolerance).contains(difference)
    }
}
