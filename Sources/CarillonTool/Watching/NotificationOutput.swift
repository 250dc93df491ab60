// SPDX-License-Identifier: Apache-2.0
import CarillonWire

/// One of the places to which what arrives goes: a program, a file, the desktop.
protocol NotificationOutput: AnyObject {
    func take(_ arrival: Arrival)
    /// Something else that whoever reads the output has to know.
    func take(_ event: ObservationEvent)
    /// Whether something that it took is not done yet. When it is, the output calls what it was given for that.
    var isBusy: Bool { get }
    /// Gives up what is not done.
    ///
    /// - Returns: how many notifications that were.
    func abandon() -> Int
    /// Whether something that it took came to nothing, which it has told.
    var hasFailed: Bool { get }
    /// Whether there was more than it can keep, which it has told.
    var hasLost: Bool { get }
}

extension NotificationOutput {
    var isBusy: Bool { false }
    func abandon() -> Int { 0 }
    var hasFailed: Bool { false }
    var hasLost: Bool { false }
    func take(_ event: ObservationEvent) {}
}

/// Prints a line for each.
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
