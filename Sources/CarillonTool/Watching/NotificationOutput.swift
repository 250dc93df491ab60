// SPDX-License-Identifier: Apache-2.0
import CarillonWire

/// An output to which ``Observation`` passes each arriving notification: ``Printer``, ``Recorder``, ``CommandRunner``
/// or ``Popups``. An output may work asynchronously; then the observation waits for it before the command ends.
protocol NotificationOutput: AnyObject {
    /// Outputs or queues a notification.
    func take(_ arrival: Arrival)
    /// Outputs another event, such as a loss, if the format of the output has events.
    func take(_ event: ObservationEvent)
    /// Whether notifications are queued or being processed. When none are any more, the output calls the closure
    /// `onIdle` of its initializer.
    var isBusy: Bool { get }
    /// Discards the queued notifications, because the command ends.
    ///
    /// - Returns: the number of discarded notifications.
    func abandon() -> Int
    /// Whether the output of a notification has failed. The output has reported that on standard error.
    var hasFailed: Bool { get }
    /// Whether a full queue has dropped notifications. The output has reported that on standard error.
    var hasLost: Bool { get }
}

/// Defaults for synchronous outputs.
extension NotificationOutput {
    var isBusy: Bool { false }
    func abandon() -> Int { 0 }
    var hasFailed: Bool { false }
    var hasLost: Bool { false }
    /// Ignores events.
    func take(_ event: ObservationEvent) {}
}

/// The output that prints each notification on standard output.
final class Printer: NotificationOutput {
    private unowned let session: CommandSession
    private let format: NotificationFormat

    init(_ format: NotificationFormat, on session: CommandSession) {
        self.format = format
        self.session = session
    }

    func take(_ arrival: Arrival) { session.print(format.text(of: arrival)) }

    func take(_ event: ObservationEvent) {
        if format.isJSON { session.print(event.json) }
    }
}
