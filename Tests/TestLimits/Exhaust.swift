// SPDX-License-Identifier: Apache-2.0
import Testing

/// Does something again and again as long as it returns true, and fails when that has no end: a loop that always has
/// something ready.
///
/// - Parameters:
///   - what: names it in the failure.
///   - most: times that it may return true. A loop that settles does so after some thousands.
public func exhaust(
    _ what: String, most: Int = 1_000_000, sourceLocation: SourceLocation = #_sourceLocation,
    _ step: () throws -> Bool
) rethrows {
    for _ in 0...most {
        guard try step() else { return }
    }
    Issue.record("\(what) has no end: it went on \(most) times", sourceLocation: sourceLocation)
}
