import BusNames
import Collections
import DBus
import MainLoop

/// Sends answers as far as their receivers read them (A4, E4), and keeps the others in their order.
///
/// The core decides, and counts.
final class AnswerGate {
    /// Asks the core whether to send an answer of so many bytes to a connection now.
    var maySend: ((UniqueName, Int) -> Bool)!
    /// Called when an answer of so many bytes goes to a connection.
    var onSent: ((UniqueName, Int) -> Void)?
    private var kept: [UniqueName: Deque<(message: Message, bus: any MessageBus)>] = [:]

    /// What stands in the place of a bus for whatever answers the calls that came from there. It keeps the gate and the
    /// bus.
    func way(to bus: any MessageBus) -> any MessageBus { Way(gate: self, bus: bus) }

    private func send(_ message: Message, to bus: any MessageBus) {
        guard let caller = message.destination?.unique else { return bus.send(message) }
        let size = Self.size(of: message)
        if maySend(caller, size) {
            onSent?(caller, size)
            bus.send(message)
        } else {
            kept[caller, default: Deque()].append((message, bus))
        }
    }

    private func send(_ message: MarshalledMessage, to bus: any MessageBus) {
        let size = max(Self.smallSize, message.byteCount)
        if maySend(message.destination, size) {
            onSent?(message.destination, size)
            bus.send(message)
        } else {
            kept[message.destination, default: Deque()].append((Message(message), bus))
        }
    }

    /// Sends the oldest of the answers that are kept for a connection.
    func sendKept(for caller: UniqueName) {
        guard let (message, bus) = kept[caller]?.popFirst() else { return }
        if kept[caller]?.isEmpty == true { kept[caller] = nil }
        onSent?(caller, Self.size(of: message))
        bus.send(message)
    }

    /// Whether answers are kept for a connection.
    func keepsAny(for caller: UniqueName) -> Bool { kept[caller] != nil }

    /// The connection is gone.
    func forget(_ caller: UniqueName) {
        kept[caller] = nil
    }

    /// The answers that there are many of have a number, or nothing.
    private static func size(of message: Message) -> Int {
        ["", "u", "t"].contains(where: message.hasSignature) ? smallSize : message.byteCount
    }

    private static let smallSize = 128

    private final class Way: MessageBus {
        private let gate: AnswerGate
        private let bus: any MessageBus

        init(gate: AnswerGate, bus: any MessageBus) {
            self.gate = gate
            self.bus = bus
        }

        var context: MainContext { bus.context }

        func send(_ message: Message) {
            gate.send(message, to: bus)
        }

        func send(_ message: MarshalledMessage) {
            gate.send(message, to: bus)
        }

        func call(
            _ message: Message, timeout: ReplyTimeout, completion: @escaping (Result<Message, BusError>) -> Void
        ) {
            bus.call(message, timeout: timeout, completion: completion)
        }
    }
}
