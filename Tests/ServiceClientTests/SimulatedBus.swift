// SPDX-License-Identifier: Apache-2.0
import CCarillonDBus
import CarillonBusNames
import CarillonCore
import CarillonMainLoop
import CarillonWire

@testable import CarillonDBus
@testable import CarillonClient

/// A bus with a service on it, played by a test: no socket, and a clock that goes when the test says so.
final class SimulatedBus: SessionBus {
    /// The service's word to a call; nil = it does not answer yet.
    var answer: ((Message) -> Result<Message, BusError>?) = { _ in nil }
    /// Why there is no bus.
    var failure: BusError?
    private(set) var connections: [SimulatedConnection] = []
    /// Milliseconds.
    private(set) var time: Int64 = 0
    /// The pauses that were asked for.
    private(set) var pauses: [UInt32] = []
    private var timers: [Timer] = []
    private let start = ContinuousClock.now

    private final class Timer {
        let due: Int64
        let action: () -> Void

        init(due: Int64, action: @escaping () -> Void) {
            self.due = due
            self.action = action
        }
    }

    /// Held by whoever asked for a timer, and weakly by nobody: gone means called off.
    private final class Handle {
        let timer: Timer
        weak var bus: SimulatedBus?

        init(_ timer: Timer, _ bus: SimulatedBus) {
            self.timer = timer
            self.bus = bus
        }

        deinit {
            bus?.timers.removeAll { $0 === timer }
        }
    }

    /// The lines of the channels that were opened, and why the next one can't be.
    private(set) var lines: [SimulatedLine] = []
    var carriesDescriptors = true
    /// Of all connections.
    var directSender: DirectSender?

    func channelStream(in reply: Message) throws(BusError) -> any ClientStream {
        lines.append(SimulatedLine())
        return lines.last!
    }

    var connection: SimulatedConnection { connections.last! }
    var now: ContinuousClock.Instant { start + .milliseconds(time) }

    func connect() throws(BusError) -> any BusConnection {
        if let failure { throw failure }
        let connection = SimulatedConnection(number: connections.count + 1, bus: self)
        connections.append(connection)
        return connection
    }

    func once(milliseconds: UInt32, _ action: @escaping () -> Void) -> AnyObject {
        if milliseconds > 0 { pauses.append(milliseconds) }
        let timer = Timer(due: time + Int64(milliseconds), action: action)
        timers.append(timer)
        return Handle(timer, self)
    }

    /// From now on only the session keeps the connections that there were.
    func forgetConnections() { connections = [] }

    /// Lets time pass.
    func pass(milliseconds: Int64) {
        let end = time + milliseconds
        while let next = timers.filter({ $0.due <= end }).min(by: { $0.due < $1.due }) {
            time = max(time, next.due)
            timers.removeAll { $0 === next }
            next.action()
        }
        time = end
    }
}

/// A connection to a ``SimulatedBus``.
final class SimulatedConnection: BusConnection {
    let context = MainContext()
    private(set) var uniqueName: UniqueName?
    var onMessage: ((Message) -> Bool)?
    var onDisconnect: (() -> Void)?
    private let number: Int
    private unowned let bus: SimulatedBus
    /// The members of everything that was sent, calls with a question mark.
    private(set) var sent: [String] = []
    /// Whether the word about batches is among them, which every program with observers says.
    var showsOptions = false
    /// Calls that wait for an answer.
    private(set) var pending: [(message: Message, completion: (Result<Message, BusError>) -> Void)] = []

    init(number: Int, bus: SimulatedBus) {
        self.number = number
        self.bus = bus
    }

    var carriesDescriptors: Bool { bus.carriesDescriptors }
    /// By which other threads send.
    var directSender: DirectSender? { bus.directSender }

    func hello(completion: @escaping (Result<UniqueName, BusError>) -> Void) {
        let name = UniqueName(rawValue: ":1.\(number)")!
        uniqueName = name
        completion(.success(name))
    }

    func send(_ message: Message) {
        sent.append(message.member?.rawValue ?? "")
    }

    func call(_ message: Message, timeout _: ReplyTimeout, completion: @escaping (Result<Message, BusError>) -> Void) {
        sent.append((message.member?.rawValue ?? "") + "?")
        if let answer = bus.answer(message) { completion(answer) } else { pending.append((message, completion)) }
    }

    /// Answers what has waited longest.
    /// All that waits for an answer fails, as when the bus closes the connection.
    func failPending() {
        while !pending.isEmpty { answerFirst(.failure(BusError(name: BusError.disconnectedName, message: "closed"))) }
    }

    /// Answers all that waits.
    func answerPending(_ answer: (Message) -> Result<Message, BusError>?) {
        while let (message, completion) = pending.first {
            pending.removeFirst()
            if let answer = answer(message) { completion(answer) }
        }
    }

    func answerFirst(_ answer: Result<Message, BusError>) {
        pending.removeFirst().completion(answer)
    }

    func takeSent() -> [String] {
        defer { sent = [] }
        return showsOptions ? sent : sent.filter { $0 != "SetClientOptions?" }
    }
}

// MARK: Messages as a bus would carry them

extension Message {
    /// This message as it comes from `sender`.
    func carried(from sender: String) -> Message {
        check(dbus_message_set_sender(pointer, sender))
        return self
    }

    /// The service's answer to this call.
    func answered(_ body: (inout MessageWriter) -> Void = { _ in }) -> Message {
        _ = numbered { 1 }
        let reply = methodReturn()
        var writer = MessageWriter(reply)
        body(&writer)
        return reply.carried(from: ":1.100")
    }

    /// The bus says that a name has another owner.
    static func ownerChange(_ name: String, to owner: String) -> Message {
        let message = Message.signal(
            path: "/org/freedesktop/DBus", interface: "org.freedesktop.DBus", member: "NameOwnerChanged")
        var writer = MessageWriter(message)
        for text in [name, "", owner] { writer.append(text) }
        return message.carried(from: "org.freedesktop.DBus")
    }
}
