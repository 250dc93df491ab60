// SPDX-License-Identifier: Apache-2.0
/// The state of reads for which no caller waits. One read is in progress at a time, and another one follows if there
/// was a new reason meanwhile.
enum OwnReading: Sendable {
    case none
    case underWay
    case underWayAndStale

    /// - Returns: whether the caller has to start a read.
    mutating func begin() -> Bool {
        defer { self = self == .none ? .underWay : .underWayAndStale }
        return self == .none
    }

    /// Records the answer to a read.
    ///
    /// - Returns: whether another read has to start.
    mutating func end() -> Bool {
        defer { self = .none }
        return self == .underWayAndStale
    }
}
