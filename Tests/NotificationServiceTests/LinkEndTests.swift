// SPDX-License-Identifier: Apache-2.0
import CarillonActivity
import CarillonBusNames
import CarillonCore
import CarillonDBus
import CarillonMainLoop
import CarillonTestLimits
import CarillonTestSupport
import CarillonWire
import Foundation
import Testing

@testable import CarillonService

/// When the bus has closed one of the service's connections, all that there was goes to the next pair of them. What
/// lies unread on the other is not served any more: it would not be kept, and its numbers would be given again.
///
/// The simulation found it (seed 300050 of `Tests/Simulation/seeds`). Here the connections are the test's.
@Suite("E5: bus connections that have ended", .limited)
struct LinkEndTests {
    /// A connection, at the bus's end: it answers what the bus is asked, and keeps the rest.
    private final class Line: MessageTransport {
        var onMessage: ((Message) -> Void)?
        var isConnected = true
        var maxReceivedBytes = 63 << 20
        var isPaused = false
        let socket: Int32? = nil
        let outgoingBytes = 0
        let name: UniqueName
        private(set) var sent: [Message] = []
        /// Whether the bus leaves unanswered who is behind connections.
        var leavesCredentials = false
        private var answers: [Message] = []
        private var lastSerial: UInt32 = 0

        init(number: Int) {
            name = UniqueName(unchecked: ":1.\(number)")
        }

        @discardableResult
        func send(_ message: Message) -> UInt32 {
            let serial = message.numbered {
                lastSerial += 1
                return lastSerial
            }
            guard isConnected else { return serial }
            if message.kind == .methodCall, message.destination == "org.freedesktop.DBus" {
                if leavesCredentials, message.member == "GetConnectionCredentials" { return serial }
                if !message.expectsNoReply { answers.append(answer(to: message, serial: serial)) }
            } else {
                sent.append(message)
            }
            return serial
        }

        func registered(as _: UniqueName) {}

        private func answer(to call: Message, serial: UInt32) -> Message {
            let reply = Message.forgedReply(to: name, serial: serial)
            var writer = MessageWriter(reply)
            switch call.member?.rawValue {
            case "Hello": writer.append(name.rawValue)
            case "GetId": writer.append("0123456789abcdef0123456789abcdef")
            case "RequestName": writer.append(UInt32(1))
            case "GetConnectionCredentials":
                writer.array(of: "{sv}") { writer in
                    writer.dictEntry { writer in
                        writer.append("ProcessID")
                        writer.variant(of: "u") { $0.append(UInt32(7)) }
                    }
                }
            default: break
            }
            return reply.carried(from: "org.freedesktop.DBus", serial: 1)
        }

        func handOnAnswers() {
            let ready = answers
            answers = []
            for answer in ready { onMessage?(answer) }
        }

        func close() {
            isConnected = false
            let signal = Message.signal(
                path: "/org/freedesktop/DBus/Local", interface: "org.freedesktop.DBus.Local", member: "Disconnected")
            onMessage?(signal.carried(from: nil, serial: 1))
        }

        func answer(toCall serial: UInt32) -> Message? { sent.first { $0.replySerial == serial } }
    }

    private final class Stage {
        let directory: TemporaryDirectory
        /// The service's connections: a main one and a control one, and again.
        private(set) var lines: [Line] = []
        private(set) var end: Service.End?
        private let context = MainContext()
        private(set) var service: Service!
        private var lastSerial: UInt32 = 0

        init() throws {
            directory = try TemporaryDirectory()
            let machine = Machine.simulated(
                address: "unix:path=/nowhere", runtimeDirectory: directory.path, files: SystemFiles(),
                processes: NoProcesses(), configuration: { .init() },
                connect: { [unowned self] context, _ throws(BusError) in
                    let line = Line(number: lines.count + 1)
                    lines.append(line)
                    return Connection(line, context: context)
                })
            service = try Service(on: machine, context: context) { [unowned self] reason in end = reason }
            service.start()
        }

        /// Has the loop go on until something is so.
        func run(until isDone: () -> Bool) throws {
            var wait = Wait(.event)
            while !isDone() {
                try wait.look(for: "what \(lines.count) connections lead to; the end is \(String(describing: end))")
                for line in lines { line.handOnAnswers() }
                context.iterate(mayBlock: false)
            }
        }

        /// A client calls. The service has read it when this returns; nothing else of the loop has run.
        @discardableResult
        func call(_ message: Message, from client: UniqueName = ":1.77", on line: Line) -> UInt32 {
            lastSerial += 1
            _ = line.onMessage?(message.carried(from: AnyBusName(client), serial: lastSerial))
            return lastSerial
        }

        /// Has the client registered with the service behind a connection.
        func register(on line: Line) throws {
            let serial = call(AddObserver(name: "Ding", object: "").message(), on: line)
            try run { line.answer(toCall: serial) != nil }
            #expect(line.answer(toCall: serial)?.kind == .methodReturn)
        }

        func post(wantsAnswer: Bool, on line: Line) throws -> UInt32 {
            let post = try PostCall(name: "Ding", object: "", userInfo: [:], options: PostOptions())
            return call(post.message(wantsAnswer: wantsAnswer), on: line)
        }

        /// One of each kind.
        func callEverything(on line: Line) throws {
            _ = try post(wantsAnswer: true, on: line)
            _ = try post(wantsAnswer: false, on: line)
            call(AddObserver(name: "Dong", object: "").message(), on: line)
            call(SetSuspended(true).message(), on: line)
            call(ListClients().message(), on: line)
        }

        /// What is on disk of the state.
        var state: [String: Data] {
            let files = FileManager.default.enumerator(atPath: directory.path)?.compactMap { $0 as? String } ?? []
            var state: [String: Data] = [:]
            for file in files { state[file] = FileManager.default.contents(atPath: directory.entry(file)) }
            return state
        }
    }

    @Test("E5: calls unread at the end of the control connection are not served, and the next connection has all state")
    func control() throws {
        let stage = try Stage()
        let (main, control) = (stage.lines[0], stage.lines[1])
        try stage.register(on: main)
        control.close()
        let (sent, state) = (main.sent.count, stage.state)
        #expect(state.count >= 2, "the state is kept: \(state.keys.sorted())")
        try stage.callEverything(on: main)
        #expect(main.sent.count == sent, "nothing is answered, and nothing sent")
        #expect(stage.state == state, "nothing is kept")
        #expect(stage.service.center?.statistics.posted == 0)

        try stage.run { stage.lines.count == 4 }
        let next = stage.lines[2]
        let serial = try stage.post(wantsAnswer: true, on: next)
        func delivered() -> NotificationSignal? {
            next.sent.lazy.compactMap { (try? NotificationSignal($0)) ?? nil }.first
        }
        try stage.run { next.answer(toCall: serial) != nil && delivered() != nil }
        let reply = try #require(next.answer(toCall: serial))
        #expect(try PostCall.reply(in: reply) == 1, "what was registered before is")
        #expect(delivered()?.sequence == 1)
        #expect(delivered()?.serial == 1, "the posts that nobody served have no numbers")
        #expect(stage.end == nil)
    }

    /// Seed 49080621485178 of `Tests/Simulation/seeds`.
    @Test("P2, E5: a call whose caller the bus could no longer identify is answered on the next connection")
    func unknownCaller() throws {
        let stage = try Stage()
        let (main, control) = (stage.lines[0], stage.lines[1])
        try stage.register(on: main)
        control.leavesCredentials = true
        let post = try PostCall(name: "Ding", object: "", userInfo: [:], options: PostOptions())
        let serial = stage.call(post.message(wantsAnswer: true), from: ":1.78", on: main)
        // The question fails before the news of the end is read.
        control.close()
        #expect(main.answer(toCall: serial) == nil)
        try stage.run { stage.lines.count == 4 }
        let next = stage.lines[2]
        try stage.run { next.answer(toCall: serial) != nil }
        #expect(next.answer(toCall: serial)?.kind == .methodReturn)
        #expect(main.answer(toCall: serial) == nil)
    }

    /// Seed 70086 of `Tests/Simulation/seeds`.
    @Test("S4, E5: a Ping answer that is read after a disconnection does not suppress the report of a possible loss")
    func answerBehindTheEnd() throws {
        let stage = try Stage()
        let (main, control) = (stage.lines[0], stage.lines[1])
        try stage.register(on: main)
        func ping() -> Message? { control.sent.first { $0.member == "Ping" } }
        // The bus carries the barriers, and with them the Ping goes out.
        for barrier in main.sent where barrier.member == "Barrier" {
            _ = control.onMessage?(barrier.carried(from: AnyBusName(main.name), serial: barrier.serial))
        }
        try stage.run { ping() != nil }
        let post = try stage.post(wantsAnswer: true, on: main)
        try stage.run { main.answer(toCall: post) != nil }

        main.close()
        _ = control.onMessage?(try #require(ping()).methodReturn().carried(from: ":1.77", serial: 99))
        try stage.run { stage.lines.count == 4 }
        let next = stage.lines[2]
        func told() -> DroppedSignal? { next.sent.lazy.compactMap { (try? DroppedSignal($0)) ?? nil }.first }
        try stage.run { told() != nil }
        #expect(told()?.count == 1)
        #expect(told()?.reason == "bus-disconnected")
    }

    @Test("E5: calls behind the signal NameLost are not served")
    func nameLost() throws {
        let stage = try Stage()
        let main = stage.lines[0]
        try stage.register(on: main)
        let lost = Message.signal(
            to: main.name, path: "/org/freedesktop/DBus", interface: "org.freedesktop.DBus", member: "NameLost")
        var writer = MessageWriter(lost)
        writer.append(Wire.busName.rawValue)
        _ = main.onMessage?(lost.carried(from: "org.freedesktop.DBus", serial: 2))
        guard case .nameLost? = stage.end else {
            Issue.record("it goes on: \(String(describing: stage.end))")
            return
        }
        let (sent, state) = (main.sent.count, stage.state)
        try stage.callEverything(on: main)
        #expect(main.sent.count == sent)
        #expect(stage.state == state)
    }

    @Test("E3: calls are not served after a service that shuts down has saved its state")
    func stopped() throws {
        let stage = try Stage()
        let main = stage.lines[0]
        try stage.register(on: main)
        var isStopped = false
        stage.service.stop { isStopped = true }
        try stage.run { isStopped }
        let (sent, state) = (main.sent.count, stage.state)
        try stage.callEverything(on: main)
        #expect(main.sent.count == sent)
        #expect(stage.state == state)
    }
}
