// SPDX-License-Identifier: Apache-2.0
/// The work in one event that may concern all clients, such as the removal of expired state, with its limits (E8).
///
/// All clients together get no more of this work in one event than a single client may. The remaining work continues
/// with later events. The counts begin again at 0 when an event ends.
struct SpentInEvent {
    /// Notifications that were lost because all queues together exceeded their limit.
    var losses = 0
    /// The bytes of the lost notifications.
    var lostBytes = 0
    /// Notifications of resumed clients and of replays of values that were sent at once.
    var flushed = 0

    /// Expired notifications and values that were removed. A value counts as ``stepsOfValue``, as its removal costs
    /// more.
    var expired = 0

    /// The maximum of ``losses``. It is exceeded while too few bytes have been freed for a large notification.
    static let maxLosses = 16_384
    /// The maximum of ``flushed``.
    static let maxFlushed = 1024
    /// The maximum of ``expired``.
    private static let maxExpired = 4096
    /// The count of one removed value in ``expired``.
    static let stepsOfValue = 4

    /// Whether the event may remove more expired notifications and values.
    var mayExpire: Bool { expired < Self.maxExpired }
}
