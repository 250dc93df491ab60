import BusNames
import Collections
import DBus
import MainLoop

/// Sends answers as far as their receivers read them (A4, E4), and keeps the others in their order.
///
/// It stands in the place of the bus for whatever answers calls. The core decides, and counts.
final class AnswerGate: MessageBus {
    private unowned let bus: any MessageBus
    /// Asks the core whether to send an answer of so many bytes to a connection now.
    var maySend: ((UniqueName, Int) -> Bool)!
    private var kept: [UniqueName: Deque<Message>] = [:]

    /// - Parameter bus: the caller keeps it.
    init(bus: any MessageBus) {
        self.bus = bus
    }

    var context: MainContext { bus.context }

    func send(_ message: Message) {
        guard let caller = message.destination?.unique else { return bus.send(message) }
        if maySend(caller, Self.size(of: message)) {
            bus.send(message)
        } else {
            kept[caller, default: Deque()].append(message)
        }
    }

    func call(
        _ message: Message, timeout: ReplyTimeout, completion: @escaping (Result<Message, BusError>) -> Void
    ) {
        bus.call(message, timeout: timeout, completion: completion)
    }

    /// Sends the oldest of the answers that are kept for a connection.
    func sendKept(for caller: UniqueName) {
        guard let message = kept[caller]?.popFirst() else { return }
        if kept[caller]?.isEmpty == true { kept[caller] = nil }
        bus.send(message)
    }

    /// The connection is gone.
    func forget(_ caller: UniqueName) {
        kept[caller] = nil
    }

    /// The answers that there are many of have a number, or nothing.
    private static func size(of message: Message) -> Int {
        ["", "u", "t"].contains(where: message.hasSignature) ? smallSize : message.byteCount
    }

    private static let smallSize = 128
}
