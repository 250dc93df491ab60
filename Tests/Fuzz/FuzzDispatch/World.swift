// SPDX-License-Identifier: Apache-2.0
import CarillonDBus
import CarillonFuzzSupport
@testable import CarillonService
import CarillonWire

/// The object of the service, a few clients on a bus that is not there, and what must hold between them.
final class World {
    private let bus = FakeBus()
    private let object: CenterObject
    private let observer: BusObserver
    private var serial: UInt32 = 0
    private var configuration: UInt8
    private let clock: VirtualClock

    private static let clients = (1...6).map { ":1.\($0)" }
    /// Asks at the end; a client like any other, but none of those above.
    private static let auditor = ":1.99"

    init(configuration: UInt8) {
        self.configuration = configuration
        ConfigurationFile.write(Configurations.text(configuration))
        let clock = VirtualClock()
        var machine = Machine.own(address: "")
        machine.uptime = { clock.uptime }
        self.clock = clock
        object = CenterObject(bus: bus, on: machine, configuration: nil, sessions: nil)
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
            letTimePass()
            observer.timePassed()
        default: reconfigure(input.byte(), from: client(&input))
        }
    }

    /// The end of an input: everything is answered, and nothing may be missing.
    func finish() {
        for client in observer.clients {
            // Whatever was said of it, by itself or by others.
            deliver(Calls.followAgain(client), from: client)
            deliver(Calls.resume(), from: client)
        }
        settle()
        if statistics("queued-posts") != 0 {
            // These wait for their posters, who leave, or take them back.
            for (index, client) in Self.clients.enumerated() {
                if index.isMultiple(of: 2) { leave(client) } else { deliver(Calls.withdrawPosts(), from: client) }
            }
            settle()
        }
        Fuzzer.expect(bus.calls.isEmpty, "\(bus.calls.count) calls of the service are never done")
        auditValues()
        audit()
        observer.expectAllAnswered()
    }

    /// Turns after which what waits does not wait for the service to be idle: it is taken for that after 40.
    private static let patience = 64

    /// Goes on until nothing waits, or until nothing comes of that but posts that wait for an exit.
    private func settle() {
        var (waiting, unchanged) = (UInt64(0), 0)
        // What is due, what is queued and what the clients confirm make one another ready.
        for _ in 0..<20_000 {
            answerAll()
            let posts = statistics("queued-posts") ?? 0
            unchanged = posts == waiting ? unchanged + 1 : 0
            waiting = posts
            // Answers wait until their callers have read what is on its way to them.
            let isServed = bus.calls.isEmpty && statistics("queued") == 0 && statistics("answer-bytes") == 0
            if isServed, posts == 0 || unchanged >= Self.patience { break }
            letTimePass()
        }
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
        case 0:
            bus.answer(at: index, with: BusError(name: BusError.nameHasNoOwnerName, message: "it is gone"))
            // Of a name that nobody has a bus says so to everybody: nothing that it is owed comes any more.
            if let gone = clientAsked(in: call) { return leave(gone) }
        case 1: bus.answer(at: index, with: BusError(name: BusError.limitsExceededName, message: "the queue is full"))
        case 2: bus.answer(at: index, with: .failed("no"))
        default: bus.answer(at: index)
        }
        observer.answered(call)
        observe()
    }

    /// The client whose owner or process the service asks the bus for; nil where it asks for another thing.
    private func clientAsked(in call: Message) -> String? {
        guard call.signature == "s", call.destination?.rawValue == "org.freedesktop.DBus" else { return nil }
        var reader = MessageReader(call)
        return (try? reader.readString()).flatMap { Self.clients.contains($0) ? $0 : nil }
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

    private func letTimePass() {
        clock.uptime += 400_000
        bus.letTimePass()
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
        var call = Calls.method("Get", [.string(Wire.interface.rawValue), .string("Statistics")])
        call.interface = "org.freedesktop.DBus.Properties"
        guard let statistics = try? Statistics(ask(call)) else { Fuzzer.fail("no statistics") }
        return statistics
    }

    /// What the service answers to the auditor.
    private func ask(_ call: WireMessage) -> Message {
        var call = call
        serial += 1
        call.serial = serial
        // What was ready is sent before the answer.
        guard let message = Message.arriving(call, from: Self.auditor), object.handle(message) else {
            Fuzzer.fail("did not take \(call.member)")
        }
        bus.identifyCallers()
        let sent = bus.takeSent()
        for message in sent.dropLast() { observer.sent(message) }
        guard let reply = sent.last else { Fuzzer.fail("no answer to \(call.member)") }
        return reply
    }

    /// What is kept, and that nothing is when it is removed (R1, R3).
    private func auditValues() {
        let everything: [WireValue] = [.string(""), .string("")]
        guard let values = try? Get.reply(in: ask(Calls.method("Get", everything))) else { Fuzzer.fail("no values") }
        let kept = statistics("retained") ?? 0
        Fuzzer.expect(values.count == kept, "\(values.count) values, of \(kept) that are kept")
        let serials = values.compactMap(\.serial)
        Fuzzer.expect(
            serials.count == values.count && zip(serials, serials.dropFirst()).allSatisfy(<), "values out of order")
        let places = Set(
            values.map { value in
                [value.name, value.object, value.host ?? "", value.user ?? ""].map { Array($0.utf8) }
            })
        Fuzzer.expect(places.count == values.count, "two values of one name, object and origin")
        let removed = try? RemoveRetained.reply(in: ask(Calls.method("RemoveRetained", everything)))
        Fuzzer.expect(removed == values.count, "removed \(removed ?? -1) of \(values.count) values")
        Fuzzer.expect(statistics("retained") == 0, "\(statistics("retained") ?? 0) values are still kept")
        Fuzzer.expect(statistics("retained-bytes") == 0, "values that are not kept take room")
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
            (statistics["dropped"] ?? 0) >= max(observer.announcedLosses, observer.largestBound),
            "more losses were announced than there were")
        Fuzzer.expect(
            (statistics["clients"] ?? 0) <= UInt64(Self.clients.count), "\(statistics["clients"] ?? 0) clients")
    }
}

/// What expires does by this clock.
private final class VirtualClock {
    var uptime: Int64 = 0
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
        retained=5
        retained-per-client=3
        retained-bytes=2048
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
