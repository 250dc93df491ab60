import DBus
import FuzzSupport
import NotificationService
import NotificationWire

/// The object of the service, a few clients on a bus that is not there, and what must hold between them.
final class World {
    private let bus = FakeBus()
    private let object: CenterObject
    private let observer: BusObserver
    private var serial: UInt32 = 0
    private var configuration: UInt8

    private static let clients = (1...6).map { ":1.\($0)" }
    /// Asks at the end; a client like any other, but none of those above.
    private static let auditor = ":1.99"

    init(configuration: UInt8) {
        self.configuration = configuration
        ConfigurationFile.write(Configurations.text(configuration))
        object = CenterObject(bus: bus)
        observer = BusObserver()
        observe()
    }

    /// Takes one event from the input.
    func step(_ input: inout ByteSource) {
        switch input.byte() % 16 {
        case 0: arrive(input.bytes(Int(input.byte()) << 8 | Int(input.byte())), from: client(&input))
        case 1, 2: deliver(Calls.addObserver(&input), from: client(&input))
        case 3, 4: deliver(Calls.post(&input), from: client(&input))
        case 5: deliver(input.flag() ? Calls.postMany(&input) : Calls.post(&input), from: client(&input))
        case 6: post(times: input.choice(of: [2, 8, 70, 140]), Calls.post(&input), from: client(&input))
        case 7: deliver(Calls.setSuspended(&input), from: client(&input))
        case 8: deliver(Calls.remove(&input), from: client(&input))
        case 9: deliver(Calls.standard(&input), from: client(&input))
        case 10: deliver(Calls.anything(&input), from: client(&input))
        case 11: leave(client(&input))
        case 12: answer(&input)
        case 13: answerAll()
        case 14:
            bus.letTimePass()
            observer.timePassed()
            observe()
        default: reconfigure(input.byte(), from: client(&input))
        }
    }

    /// The end of an input: everything is answered, and nothing may be missing.
    func finish() {
        for client in observer.clients { deliver(Calls.resume(), from: client) }
        // What is due, what is queued and what the clients confirm make one another ready.
        for _ in 0..<20_000 {
            answerAll()
            if bus.calls.isEmpty, statistics("queued") == 0, statistics("queued-posts") == 0 { break }
            bus.letTimePass()
            observe()
        }
        Fuzzer.expect(bus.calls.isEmpty, "\(bus.calls.count) calls of the service are never done")
        audit()
        observer.expectAllAnswered()
    }

    private func client(_ input: inout ByteSource) -> String { input.choice(of: Self.clients) }

    // MARK: Events

    private func deliver(_ message: WireMessage, from sender: String) {
        var message = message
        serial += 1
        message.serial = serial
        arrive(message.bytes, from: sender)
    }

    private func post(times: Int, _ message: WireMessage, from sender: String) {
        for _ in 0..<times { deliver(message, from: sender) }
    }

    private func arrive(_ bytes: [UInt8], from sender: String) {
        guard let message = Message.arriving(bytes, from: sender) else { return }
        observer.arrived(message, from: sender)
        let isHandled = object.handle(message)
        bus.identifyCallers()
        if message.kind == .methodCall {
            Fuzzer.expect(isHandled, "a method call was taken by nobody")
        } else if message.kind == .signal {
            Fuzzer.expect(!isHandled, "took a signal that only the bus may send, from \(sender)")
        }
        observe()
    }

    private func leave(_ client: String) {
        var message = WireMessage()
        message.kind = .signal
        message.path = "/org/freedesktop/DBus"
        message.interface = "org.freedesktop.DBus"
        message.member = "NameOwnerChanged"
        message.arguments = [.string(client), .string(client), .string("")]
        serial += 1
        message.serial = serial
        guard let signal = Message.arriving(message, from: "org.freedesktop.DBus") else {
            Fuzzer.fail("the harness made a bad signal")
        }
        Fuzzer.expect(object.handle(signal), "did not take NameOwnerChanged")
        observe()
        observer.left(client)
    }

    private func answer(_ input: inout ByteSource) {
        guard !bus.calls.isEmpty else { return }
        let index = input.number(below: bus.calls.count)
        let call = bus.calls[index].message
        switch input.byte() % 8 {
        case 0: bus.answer(at: index, with: BusError(name: BusError.nameHasNoOwnerName, message: "it is gone"))
        case 1: bus.answer(at: index, with: BusError(name: BusError.limitsExceededName, message: "the queue is full"))
        case 2: bus.answer(at: index, with: .failed("no"))
        default: bus.answer(at: index)
        }
        observer.answered(call)
        observe()
    }

    private func answerAll() {
        for _ in 0..<bus.calls.count where !bus.calls.isEmpty {
            let call = bus.calls[0].message
            bus.answer(at: 0)
            observer.answered(call)
            observe()
        }
        bus.runWhatIsReady()
        observe()
    }

    private func reconfigure(_ configuration: UInt8, from sender: String) {
        if Configurations.text(configuration) != Configurations.text(self.configuration) {
            self.configuration = configuration
            ConfigurationFile.write(Configurations.text(configuration))
        }
        deliver(Calls.method("ReloadConfiguration"), from: sender)
    }

    // MARK: Looking

    private func observe() {
        for message in bus.takeSent() { observer.sent(message) }
    }

    private func statistics(_ key: String) -> UInt64? { statistics()[key] }

    private func statistics() -> Statistics {
        var call = Calls.method("Get")
        call.interface = "org.freedesktop.DBus.Properties"
        call.arguments = [.string(Wire.interface.rawValue), .string("Statistics")]
        serial += 1
        call.serial = serial
        // What was ready is sent before the answer.
        guard let message = Message.arriving(call, from: Self.auditor), object.handle(message) else {
            Fuzzer.fail("no statistics")
        }
        bus.identifyCallers()
        let sent = bus.takeSent()
        for message in sent.dropLast() { observer.sent(message) }
        guard let reply = sent.last, let statistics = try? Statistics(reply) else { Fuzzer.fail("no statistics") }
        return statistics
    }

    /// The counters of the service against what was seen on the bus.
    private func audit() {
        let statistics = statistics()
        Fuzzer.expect(
            statistics["delivered"] == observer.notifications,
            "delivered \(statistics["delivered"] ?? 0), seen \(observer.notifications)")
        // Everybody was resumed and has answered: nothing waits any more.
        Fuzzer.expect(statistics["queued"] == 0, "\(statistics["queued"] ?? 0) still wait")
        Fuzzer.expect(statistics["queued-posts"] == 0, "\(statistics["queued-posts"] ?? 0) posts still wait")
        Fuzzer.expect(statistics["queued-post-bytes"] == 0, "posts that do not wait take room")
        Fuzzer.expect(statistics["queued-bytes"] == 0, "\(statistics["queued-bytes"] ?? 0) bytes still wait")
        Fuzzer.expect(
            (statistics["dropped"] ?? 0) >= observer.announcedLosses, "more losses were announced than there were")
        Fuzzer.expect(
            (statistics["clients"] ?? 0) <= UInt64(Self.clients.count), "\(statistics["clients"] ?? 0) clients")
    }
}

/// The property `Statistics`.
private struct Statistics {
    private var counters: [String: UInt64] = [:]

    init(_ reply: Message) throws(BusError) {
        var reader = MessageReader(reply)
        var value = try reader.readContainer(.variant)
        var entries = try value.readContainer(.array)
        while !entries.isAtEnd {
            var entry = try entries.readContainer(.dictEntry)
            let key = try entry.readString()
            counters[key] = try entry.read(UInt64.self)
        }
    }

    subscript(key: String) -> UInt64? { counters[key] }
}

private enum Configurations {
    /// Small limits, so that short inputs reach them.
    private static let texts: [String?] = [
        """
        [Limits]
        queued-per-client=6
        queued-bytes-per-client=4096
        queued-bytes=8192
        queued-posts-per-client=5
        queued-post-bytes=4096
        observers-per-client=8
        observers=16
        clients=4
        name-length=32
        object-length=16
        user-info-bytes=512
        user-info-depth=3
        """,
        nil,
        """
        [Limits]
        queued-per-client=100000
        queued-bytes=3000
        """,
        "[Limits]\nqueued-per-client=many\n",
    ]

    static func text(_ selector: UInt8) -> String? { texts[Int(selector) % texts.count] }
}
