import DBus
import MainLoop
import NotificationCore

/// Has posts read at the pace of observers that are behind (A4, E4): the rest waits in the bus, which makes posters wait
/// where it bounds what it keeps.
///
/// Everything else on the connection waits with them, as the order of what a bus carries is not to be changed.
final class ReadingPace {
    /// Messages that are handed on in each pause however slow they are, which makes 3,200 in a second.
    private static let leastMessages = 32
    /// In milliseconds.
    private static let pause: UInt32 = 10

    private unowned let driver: CenterDriver
    private unowned let connection: Connection
    private var timer: EventSource?

    /// - Parameters:
    ///   - driver: that has it; an event there may begin the pace.
    ///   - connection: from which posts come.
    init(of driver: CenterDriver, on connection: Connection) {
        self.driver = driver
        self.connection = connection
        driver.onCrowded = { [unowned self] in begin() }
    }

    private func begin() {
        guard timer == nil else { return }
        connection.mostMessages = Self.leastMessages
        timer = .timer(milliseconds: Self.pause, on: connection.context, priority: .of(.control)) { [unowned self] in
            let sent = driver.center.checkCrowding()
            guard driver.center.isCrowded else {
                connection.mostMessages = nil
                timer = nil
                return .remove
            }
            connection.mostMessages = max(Self.leastMessages, sent)
            return .keep
        }
    }
}
