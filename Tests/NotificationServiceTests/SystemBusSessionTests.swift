// SPDX-License-Identifier: Apache-2.0
import CarillonActivity
import CarillonBusNames
import CarillonCore
import CarillonDBus
import CarillonMainLoop
import CarillonTestLimits
import CarillonTestSupport
import CarillonWire
import Testing

@testable import CarillonService

/// A service among sessions that send what a test says, on a bus that answers at once.
@Suite("G1: the service's session on the system bus", .limited)
struct SystemBusSessionTests {
    private typealias Scene = SystemBusScene

    /// A connection to a bus that answers when a test says so.
    private final class QuietTransport: MessageTransport {
        var onMessage: ((Message) -> Void)?
        var maxReceivedBytes = 0
        var isPaused = false
        let socket: Int32? = nil
        let outgoingBytes = 0
        let isConnected = true

        private var calls: [Message] = []
        private var lastSerial: UInt32 = 0

        func send(_ message: Message) -> UInt32 {
            if message.kind == .methodCall { calls.append(message) }
            lastSerial += 1
            return message.numbered { lastSerial }
        }
        func send(_: MarshalledMessage) {}
        func registered(as _: UniqueName) {}

        /// To the oldest call, if it is read.
        func answer() {
            guard !isPaused, !calls.isEmpty else { return }
            let call = calls.removeFirst()
            let reply = call.methodReturn()
            if call.hasMember("Hello") {
                var writer = MessageWriter(reply)
                writer.append(":1.1")
            }
            onMessage?(reply.carried(from: "org.freedesktop.DBus", serial: 1))
        }
    }

    @Test("Without a session bus no message is read from the system bus, even if that connects meanwhile")
    func paused() {
        let transport = QuietTransport()
        let context = MainContext(clock: StageClock())
        let machine = Machine.simulated(
            address: "", runtimeDirectory: "", files: SystemFiles(), processes: NoProcesses(),
            configuration: { .init() },
            connect: { _, _ throws(BusError) in throw .failed("nobody connects") },
            connectToSystemBus: { context, _ throws(BusError) in Connection(transport, context: context) })
        let sessions = Sessions(on: machine, context: context)
        var rules = SessionRules()
        rules.export = [NamePattern("Ding")!]
        sessions.use(rules)
        sessions.pause(true)
        sessions.begin()
        // It gets there all the same: by Hello and by AddMatch.
        for _ in 0..<2 { transport.answer() }
        #expect(sessions.shown["state"] == .string("joined"))
        #expect(transport.isPaused)
        sessions.pause(false)
        #expect(!transport.isPaused)
    }

    @Test("A refused notification is confirmed like others and does not count as lost")
    func refused() {
        let scene = Scene()
        scene.join(":1.2")
        scene.send(1, String(repeating: "x", count: 5000), from: ":1.2")
        scene.send(2, from: ":1.2")
        scene.bus.pass(milliseconds: 1)
        #expect(scene.posted == ["Ding"])
        #expect(scene.confirmed(to: ":1.2") == [2])
        #expect(scene.sessions.counts.refused == 1 && scene.sessions.counts.lost == 0)
        // Its sender would wait otherwise, as it does for a session that does not read.
        for number in 3...70 { scene.send(UInt64(number), String(repeating: "x", count: 5000), from: ":1.2") }
        scene.bus.pass(milliseconds: 1)
        #expect(scene.confirmed(to: ":1.2").last == 70)
        #expect(scene.sessions.counts.refused == 69 && scene.sessions.counts.lost == 0)
    }

    @Test("A notification of a user without imports, or of a later version, is confirmed like others")
    func unread() {
        let scene = Scene()
        scene.join(":1.2", user: 1002)
        scene.join(":1.3")
        for number in 1...100 {
            scene.send(UInt64(number), from: ":1.2")
            scene.send(UInt64(number), option: number.isMultiple(of: 2) ? "color" : nil, from: ":1.3")
        }
        scene.bus.pass(milliseconds: 1)
        #expect(scene.confirmed(to: ":1.2").last == 100 && scene.confirmed(to: ":1.3").last == 100)
        #expect(scene.posted.count == 50)
        #expect(scene.sessions.counts.refused == 150 && scene.sessions.counts.lost == 0)
    }

    @Test("G1: each session is sent the names wanted from its user, and every change, also to an empty list")
    func wants() {
        let scene = Scene()
        var heard: [UniqueName: Int] = [:]
        /// The names of each signal since the last look.
        func told(_ session: UniqueName) -> [[String]] {
            let all = scene.sent(WantsSignal.member, to: session).compactMap { (try? WantsSignal($0))?.names }
            defer { heard[session] = all.count }
            return Array(all.dropFirst(heard[session] ?? 0))
        }
        func use(_ imports: [UInt32: [String]]) {
            var rules = SessionRules()
            rules.imports = imports.mapValues { $0.compactMap { NamePattern($0) } }
            rules.export = [NamePattern("Dang")!]
            scene.sessions.use(rules)
            scene.systemBusSession.rulesChanged()
        }
        scene.join(":1.2")
        #expect(told(":1.2") == [["Ding"]])
        // Nobody has asked for anything of this one, so nothing is taken back.
        scene.join(":1.3", user: 1002)
        #expect(told(":1.3") == [])
        let (one, other): (UInt32, UInt32) = (Scene.user, 1002)
        for (imports, first, second) in [
            ([one: ["Ding"], other: ["Dong"]], [], [["Dong"]]),
            ([one: ["Ding", "Bell.*"], other: ["Dong"]], [["Ding", "Bell.*"]], []),
            ([other: ["Dong"]], [[]], []),
            ([one: ["Ding"], other: ["Dong"]], [["Ding"]], []),
            ([:], [[]], [[]]),
        ] as [([UInt32: [String]], [[String]], [[String]])] {
            use(imports)
            #expect(told(":1.2") == first, "\(imports)")
            #expect(told(":1.3") == second, "\(imports)")
        }
    }

    @Test("A user does not gain a higher rate by leaving and joining again")
    func allowance() {
        let scene = Scene()
        func flood(_ session: UniqueName) -> Int {
            let before = scene.posted.count
            scene.join(session)
            for number in 1...3000 { scene.send(UInt64(number), from: session) }
            scene.leave(session)
            return scene.posted.count - before
        }
        // With the windows of all sessions that it may have.
        #expect(flood(":1.2") == 2512)
        #expect(flood(":1.3") == 0)
        scene.bus.pass(milliseconds: 2000)
        #expect(flood(":1.4") == 1000)
        // After that nothing of the user is kept.
        scene.bus.pass(milliseconds: 10_000)
        #expect(scene.systemBusSession.kept.allSatisfy { $0.count == 0 }, "\(scene.systemBusSession.kept)")
        #expect(flood(":1.5") == 2512)
    }

    @Test("A session passed over because its user has too many gets a slot as soon as one is free")
    func passedOver() {
        let scene = Scene()
        let names = (2...SessionSlots.maxPeersOfUser + 2).map { UniqueName(rawValue: ":1.\($0)")! }
        for name in names { scene.join(name) }
        #expect(scene.systemBusSession.shown.count == SessionSlots.maxPeersOfUser)
        scene.send(1, from: names.last!)
        #expect(scene.posted.isEmpty)
        scene.leave(names[0])
        #expect(scene.systemBusSession.shown.count == SessionSlots.maxPeersOfUser)
        scene.send(2, from: names.last!)
        #expect(scene.posted == ["Ding"])
        #expect(scene.sent(HereSignal.member, to: nil).count == 1, "nobody is asked again")
    }

    @Test(
        "E4: hundreds of connections of one user that announce themselves repeatedly cost one bus query each"
    )
    func manyOfOneUser() {
        let scene = Scene()
        let names = (0..<200).map { UniqueName(rawValue: ":2.\($0)")! }
        for _ in 0..<10 { for name in names { scene.join(name, user: 7) } }
        #expect(scene.bus.questions == 200)
        scene.join(":1.2")
        scene.send(1, from: ":1.2")
        #expect(scene.posted == ["Ding"])
        #expect(scene.systemBusSession.shown.count == SessionSlots.maxPeersOfUser + 1)
        for name in names { scene.leave(name) }
        scene.leave(":1.2")
        scene.bus.pass(milliseconds: 10_000)
        #expect(scene.systemBusSession.kept.allSatisfy { $0.count == 0 }, "\(scene.systemBusSession.kept)")
    }

    @Test(
        "E4: a user with ever new connections does not prevent the discovery of another user's session within seconds")
    func newConnections() {
        let scene = Scene()
        var number = 0
        scene.bus.answersLater = true
        func flood() {
            for _ in 0..<150 {
                number += 1
                scene.join(UniqueName(rawValue: ":2.\(number)")!, user: 7)
            }
        }
        for _ in 0..<20 { flood() }
        var turns = 0
        while scene.posted.isEmpty, turns < 100 {
            turns += 1
            flood()
            if turns % 10 == 1 { scene.join(":1.2") }
            scene.bus.pass(milliseconds: 100)
            scene.send(UInt64(turns), from: ":1.2")
        }
        #expect(turns < 50, "\(turns) tenths of a second")
    }

    @Test("E4: users who fill all slots lose one for each user with fewer sessions")
    func manyUsers() {
        let scene = Scene()
        for user in 0..<8 as Range<UInt32> {
            for number in 0..<8 { scene.join(UniqueName(rawValue: ":3.\(user)\(number)")!, user: 2000 + user) }
        }
        #expect(scene.systemBusSession.shown.count == SessionSlots.maxPeers)
        scene.join(":1.2")
        scene.join(":1.3")
        for number in 1...2 as ClosedRange<UInt64> {
            for name in [":1.2", ":1.3"] as [UniqueName] { scene.send(number, from: name) }
        }
        #expect(scene.posted.count == 4 && scene.systemBusSession.shown.count == SessionSlots.maxPeers)
        // They had places by giving up of the same user, who has one back now.
        scene.leave(":1.2")
        scene.leave(":1.3")
        #expect(scene.systemBusSession.shown.count == SessionSlots.maxPeers)
    }

    @Test("E4: a flood of a user without imports does not pause reading")
    func strangersFlood() {
        let scene = Scene()
        scene.join(":1.2")
        scene.join(":1.9", user: 7)
        for number in 1...50_000 as ClosedRange<UInt64> { scene.send(number, from: ":1.9") }
        #expect(!scene.systemBusSession.isResting)
        scene.send(1, from: ":1.2")
        #expect(scene.posted == ["Ding"])
    }

    @Test("E4: reading from the system bus pauses while much waits to be written in this session")
    func writing() {
        let scene = Scene()
        scene.join(":1.2")
        scene.send(1, from: ":1.2")
        #expect(!scene.systemBusSession.isResting)
        scene.center.isWriting = true
        scene.send(2, from: ":1.2")
        #expect(scene.systemBusSession.isResting)
        scene.bus.pass(milliseconds: 1000)
        #expect(scene.systemBusSession.isResting)
        scene.center.isWriting = false
        scene.bus.pass(milliseconds: 10)
        #expect(!scene.systemBusSession.isResting && scene.posted.count == 2)
    }

    @Test("A session whose user the bus does not report is asked for again; one that has left is not")
    func unknown() {
        let scene = Scene()
        scene.bus.isMute = true
        scene.join(":1.2")
        #expect(scene.systemBusSession.shown.isEmpty)
        expectQuestion(scene)
        scene.bus.isMute = false
        let asked = scene.sent(HereSignal.member, to: nil).count
        scene.join(":1.3", user: nil)
        scene.bus.pass(milliseconds: 60_000)
        #expect(scene.sent(HereSignal.member, to: nil).count == asked)
    }

    @Test("The pause before sessions are asked again doubles up to a minute, and is short again after a calm period")
    func pauses() {
        let scene = Scene()
        scene.bus.isMute = true
        var number = 10
        /// Until all are asked, after one is passed over.
        func pause() -> Int64 {
            scene.join(UniqueName(rawValue: ":1.\(number)")!)
            number += 1
            let asked = scene.sent(HereSignal.member, to: nil).count
            var milliseconds: Int64 = 0
            while scene.sent(HereSignal.member, to: nil).count == asked, milliseconds < 100_000 {
                scene.bus.pass(milliseconds: 500)
                milliseconds += 500
            }
            return milliseconds
        }
        #expect((1...8).map { _ in pause() } == [1000, 2000, 4000, 8000, 16_000, 32_000, 60_000, 60_000])
        scene.bus.pass(milliseconds: 50_000)
        #expect(pause() == 60_000)
        scene.bus.pass(milliseconds: 121_000)
        #expect(pause() == 1000)
    }

    /// Everybody is asked again, within a minute.
    private func expectQuestion(_ scene: Scene) {
        let asked = scene.sent(HereSignal.member, to: nil).count
        scene.bus.pass(milliseconds: 60_000)
        #expect(scene.sent(HereSignal.member, to: nil).count == asked + 1)
    }
}
