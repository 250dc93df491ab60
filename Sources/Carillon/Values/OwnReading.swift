// SPDX-License-Identifier: Apache-2.0
/// Questions to the service for which no caller waits: one at a time, and one more where something has happened meanwhile.
enum OwnReading: Sendable {
    case none
    case underWay
    case underWayAndStale

    /// - Returns: whether the caller is to ask.
    mutating func begin() -> Bool {
        defer { self = self == .none ? .underWay : .underWayAndStale }
        return self == .none
    }

    /// The answer is there.
    ///
    /// - Returns: whether another reading is to begin.
    mutating func end() -> Bool {
        defer { self = .none }
        return self == .underWayAndStale
    }
}
