// SPDX-License-Identifier: Apache-2.0
import CarillonWire

/// An output for arriving notifications: a command, a file, the desktop.
protocol NotificationOutput: AnyObject {
    func take(_ arrival: Arrival)
    /// Takes another event that readers of the output have to know.
    func take(_ event: ObservationEvent)
    /// Whether notifications are not done yet. Afterwards the output calls the closure that it was given for that.
    var isBusy: Bool { get }
    /// Discards the notifications that are not done.
    ///
    /// - Returns: the number of these notifications.
    func abandon() -> Int
    /// Whether the output of a notification has failed, which the output has reported.
    var hasFailed: Bool { get }
    /// Whether notifications exceeded the queue, which the output has reported.
    var hasLost: Bool { get }
}

extension NotificationOutput {
    var isBusy: Bool { false }
    func abandon() -> Int { 0 }
    var hasFailed: Bool { false }
    var hasLost: Bool { false }
    func take(_ event: ObservationEvent) {}
}

/// An output that prints a line for each notification.
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
