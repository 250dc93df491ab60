// SPDX-License-Identifier: Apache-2.0
/// The work of one event so far that may concern all clients: many of them together get no more than one may (E8). The rest
/// follows with later events.
struct SpentInEvent {
    /// Notifications that were lost so that there is room for all together.
    var losses = 0
    /// The bytes of these.
    var lostBytes = 0
    /// Messages of what was held, and was sent at once.
    var flushed = 0

    /// Notifications that were taken out as their time was over, and values, each of which counts for ``stepsOfValue``.
    var expired = 0

    static let maxLosses = 16_384
    static let maxFlushed = 1024
    private static let maxExpired = 4096
    static let stepsOfValue = 4

    /// Whether more of what is over may be taken out.
    var mayExpire: Bool { expired < Self.maxExpired }
}
