// SPDX-License-Identifier: Apache-2.0
/// The state of the background reads of a value: reads from the service after a possible loss or a change, for which no
/// caller waits. One read is in progress at a time. Requests during a read are combined into one further read.
enum BackgroundRead: Sendable {
    /// No read is in progress.
    case none
    /// A read is in progress.
    case inProgress
    /// A read is in progress, and another one was requested since, so that its result may be out of date.
    case inProgressAndRequested

    /// Requests a read.
    ///
    /// - Returns: whether the caller has to start it; false while a read is in progress.
    mutating func begin() -> Bool {
        defer { self = self == .none ? .inProgress : .inProgressAndRequested }
        return self == .none
    }

    /// Records the answer to a read.
    ///
    /// - Returns: whether another read was requested meanwhile. The caller requests it again with ``begin()``.
    mutating func end() -> Bool {
        defer { self = .none }
        return self == .inProgressAndRequested
    }
}
