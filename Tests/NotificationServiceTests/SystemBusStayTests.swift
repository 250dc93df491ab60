// SPDX-License-Identifier: Apache-2.0
import BusNames
import DBus
import DesktopActivity
import MainLoop
import NotificationCore
import NotificationWire
import TestSupport
import Testing

@testable import NotificationService

/// A service among sessions that send what a test says, on a bus that answers at once.
@Suite("G1: among the sessions on the system bus", .timeLimit(.minutes(20)))
struct SystemBusStayTests {
    private final class UsersBus: BusConnection {
        let context: MainContext
        let uniqueName: UniqueName? = ":1.1"
        var onMessage: ((Message) -> Bool)?
        var onDisconnect: (() -> Void)?
        let carriesDescriptors = false
        var users: [String: UInt32] = [:]
        private(set) var sent: [Message] = []
        private let clock = StageClock()

        init() {
            context = MainContext(clock: clock)
        }

        func hello(completion: @escaping (Result<UniqueName, BusError>) -> Void) { completion(.success(":1.1")) }
        func send(_ message: Message) { sent.append(message) }
        func send(_ message: MarshalledMessage) { sent.append(Message(message) { 1 }) }

        func call(_ call: Message, timeout _: ReplyTimeout, completion: @escaping (Result<Message, BusError>) -> Void) {
            guard call.hasMember("GetConnectionCredentials") else { return completion(.success(QuietBus.done)) }
            var reader = MessageReader(call)
            guard let user = (try? reader.readString()).flatMap({ users[$0] }) else {
                return completion(.failure(BusError(name: BusError.nameHasNoOwnerName, message: "it left")))
            }
            let reply = Wire.methodCall("Reply")
            var writer = MessageWriter(reply)
            writer.array(of: "{sv}") { $0.entry("UnixUserID", user) }
            completion(.success(reply))
        }

        func pass(milliseconds: Int64) {
            let end = clock.microseconds + milliseconds * 1000
            while clock.goOn(until: end, { context.iterate(mayBlock: false) }) {}
            clock.microseconds = end
        }
    }

    /// A connection of which nothing is read.
    private final class QuietTransport: MessageTransport {
        var onMessage: ((Message) -> Void)?
        var mostReceivedBytes = 0
        var isPaused = false
        let socket: Int32? = nil
        let outgoingBytes = 0
        let isConnected = true

        func send(_ message: Message) -> UInt32 { message.numbered { 1 } }
        func send(_: MarshalledMessage) {}
        func registered(as _: UniqueName) {}
    }

    private final class Scene {
        static let user: UInt32 = 1001
        let bus = UsersBus()
        let sessions: Sessions
        private(set) var stay: SystemBusStay!
        private(set) var posted: [String] = []

        init() {
            let machine = Machine.simulated(
                address: "", runtimeDirectory: "", files: SystemFiles(), processes: NoProcesses(),
                configuration: { () throws(KeyFile.Fault) in Configuration.standard },
                connect: { _, _ throws(BusError) in throw .failed("nobody connects") })
            sessions = Sessions(on: machine, context: bus.context)
            var rules = SessionRules()
            rules.imports = [Self.user: [NamePattern("Ding")!]]
            sessions.use(rules)
            sessions.post = { [unowned self] in posted.append($0.notification.name) }
            stay = SystemBusStay(bus, of: sessions) { _ in }
            stay.start()
        }

        /// A connection of the user says that it is a session.
        func join(_ name: UniqueName) {
            bus.users[name.rawValue] = Self.user
            arrive(HereSignal().message(to: nil), from: name)
        }

        func leave(_ name: UniqueName) {
            bus.users[name.rawValue] = nil
            let signal = Message.signal(
                path: "/org/freedesktop/DBus", interface: "org.freedesktop.DBus", member: "NameOwnerChanged")
            var writer = MessageWriter(signal)
            for text in [name.rawValue, name.rawValue, ""] { writer.append(text) }
            _ = bus.onMessage?(signal.carried(from: "org.freedesktop.DBus", serial: 1))
        }

        func send(_ number: UInt64, _ name: String = "Ding", from session: UniqueName) {
            let signal = Message.signal(
                to: ":1.1", path: SessionsWire.path, interface: SessionsWire.interface,
                member: SessionNotification.member)
            var writer = MessageWriter(signal)
            writer.append(name)
            writer.append("")
            writer.array(of: "{sv}") { _ in }
            writer.array(of: "{sv}") { $0.entry("number", number) }
            arrive(signal, from: session)
        }

        private func arrive(_ message: Message, from session: UniqueName) {
            _ = bus.onMessage?(message.carried(from: AnyBusName(session), serial: 1))
        }

        /// The number up to which a session was told that its notifications were taken.
        func confirmed(to session: UniqueName) -> [UInt64] {
            sent(TakenSignal.member, to: session).compactMap { (try? TakenSignal($0))?.number }
        }

        func sent(_ member: MemberName, to session: UniqueName?) -> [Message] {
            bus.sent.filter { $0.hasMember(member) && $0.destination == session.map { AnyBusName($0) } }
        }
    }

    @Test("Without a session bus nothing is taken, also when the system bus comes meanwhile")
    func paused() {
        let transport = QuietTransport()
        let context = MainContext(clock: StageClock())
        let machine = Machine.simulated(
            address: "", runtimeDirectory: "", files: SystemFiles(), processes: NoProcesses(),
            configuration: { () throws(KeyFile.Fault) in Configuration.standard },
            connect: { _, _ throws(BusError) in throw .failed("nobody connects") },
            connectToSystemBus: { context, _ throws(BusError) in Connection(transport, context: context) })
        let sessions = Sessions(on: machine, context: context)
        var rules = SessionRules()
        rules.export = [NamePattern("Ding")!]
        sessions.use(rules)
        sessions.pause(true)
        sessions.begin()
        #expect(transport.isPaused)
        sessions.pause(false)
        #expect(!transport.isPaused)
    }

    @Test("A refused notification is confirmed as others are, and does not count as lost")
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

    @Test("A user may send no more by leaving and coming again")
    func allowance() {
        let scene = Scene()
        func flood(_ session: UniqueName) -> Int {
            let before = scene.posted.count
            scene.join(session)
            for number in 1...2500 { scene.send(UInt64(number), from: session) }
            scene.leave(session)
            return scene.posted.count - before
        }
        #expect(flood(":1.2") == 2000)
        #expect(flood(":1.3") == 0)
        scene.bus.pass(milliseconds: 2000)
        #expect(flood(":1.4") == 1000)
        // After that nothing of the user is kept.
        scene.bus.pass(milliseconds: 10_000)
        #expect(scene.stay.kept.allSatisfy { $0.count == 0 }, "\(scene.stay.kept)")
        #expect(flood(":1.5") == 2000)
    }

    @Test("A session that was passed over, as its user has too many, is found when there is room")
    func passedOver() {
        let scene = Scene()
        let names = (2...SystemBusStay.mostPeersOfUser + 2).map { UniqueName(rawValue: ":1.\($0)")! }
        for name in names { scene.join(name) }
        #expect(scene.stay.shown.count == SystemBusStay.mostPeersOfUser)
        scene.leave(names[0])
        let asked = scene.sent(HereSignal.member, to: nil).count
        scene.bus.pass(milliseconds: 60_000)
        #expect(scene.sent(HereSignal.member, to: nil).count > asked)
    }
}
