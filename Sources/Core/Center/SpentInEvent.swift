// SPDX-License-Identifier: Apache-2.0
/// The work of one event so far that may concern all clients. All clients together get no more work in one event than a
/// single client may (E8). The rest follows with later events.
struct SpentInEvent {
    /// Notifications that were lost for the total limit.
    var losses = 0
    /// The bytes of the lost notifications.
    var lostBytes = 0
    /// Notifications of flushed queues and replays that were sent at once.
    var flushed = 0

    /// Expired notifications that were removed, and expired values, each counted as ``stepsOfValue``.
    var expired = 0

    static let maxLosses = 16_384
    static let maxFlushed = 1024
    private static let maxExpired = 4096
    static let stepsOfValue = 4

    /// Whether the event may remove more expired notifications and values.
    var mayExpire: Bool { expired < Self.maxExpired }
}
