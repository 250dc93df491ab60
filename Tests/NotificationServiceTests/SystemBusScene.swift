// SPDX-License-Identifier: Apache-2.0
import CarillonActivity
import CarillonBusNames
import CarillonDBus
import CarillonMainLoop
import CarillonWire

@testable import CarillonCore
@testable import CarillonService

/// A system bus that knows users.
final class UsersBus: BusConnection {
    let context: MainContext
    let uniqueName: UniqueName? = ":1.1"
    var onMessage: ((Message) -> Bool)?
    var onDisconnect: (() -> Void)?
    let carriesDescriptors = false
    var users: [String: UInt32] = [:]
    /// Answers nothing about anybody.
    var isMute = false
    private(set) var sent: [Message] = []
    private(set) var questions = 0
    var answersLater = false
    private var later: [EventSource] = []
    private let clock = StageClock()

    init() {
        context = MainContext(clock: clock)
    }

    func hello(completion: @escaping (Result<UniqueName, BusError>) -> Void) { completion(.success(":1.1")) }
    func send(_ message: Message) { sent.append(message) }
    func send(_ message: MarshalledMessage) { sent.append(Message(message) { 1 }) }

    func call(_ call: Message, timeout _: ReplyTimeout, completion: @escaping (Result<Message, BusError>) -> Void) {
        guard call.hasMember("GetConnectionCredentials") else { return completion(.success(QuietBus.done)) }
        questions += 1
        guard !isMute else {
            return completion(.failure(BusError(name: "org.freedesktop.DBus.Error.NoReply", message: "in time")))
        }
        var reader = MessageReader(call)
        guard let user = (try? reader.readString()).flatMap({ users[$0] }) else {
            return completion(.failure(BusError(name: BusError.nameHasNoOwnerName, message: "it left")))
        }
        let reply = Wire.methodCall("Reply")
        var writer = MessageWriter(reply)
        writer.array(of: "{sv}") { $0.entry("UnixUserID", user) }
        guard answersLater else { return completion(.success(reply)) }
        later.append(.once(milliseconds: 5, on: context) { completion(.success(reply)) })
    }

    func pass(milliseconds: Int64) {
        let end = clock.microseconds + milliseconds * 1000
        while clock.goOn(until: end, { context.iterate(mayBlock: false) }) {}
        clock.microseconds = end
    }
}

/// What is kept, and who is told, as a center would.
final class StageCenter: Sessions.Center {
    var newestSerial: UInt64 = 0
    var bytesForSessions = 0
    var isWriting = false
    /// Those of this session that others may have, in the order of their serials.
    var own: [(value: ExportedNotification, serial: UInt64)] = []
    private(set) var kept: [NotificationKey: DistributedCenter.Kept] = [:]
    private(set) var lost: [LostSignal.Entry] = []

    var valuesFromSessions: [DistributedCenter.Kept] { Array(kept.values) }

    func valueForSessions(after: UInt64, through: UInt64) -> (value: ExportedNotification, serial: UInt64)? {
        own.first { $0.serial > after && $0.serial <= through }
    }

    func value(of kind: NotificationKey) -> DistributedCenter.Kept? { kept[kind] }
    func remove(_ kinds: ArraySlice<NotificationKey>) { for kind in kinds { kept[kind] = nil } }
    func lose(_ entries: [LostSignal.Entry]) { lost += entries }

    func keep(_ imported: Sessions.Imported) {
        guard let retention = imported.options.retention else { return }
        newestSerial += 1
        let notification = Notification(
            name: imported.notification.name, object: imported.notification.object,
            userInfo: imported.notification.userInfo, poster: ":1.1", identity: imported.identity, time: 0,
            retention: retention, serial: newestSerial)
        kept[notification.key] = .init(notification: notification, retention: retention, expiryTime: nil)
    }
}

/// A service among sessions that send what a test says, on a bus that answers at once.
final class SystemBusScene {
    static let user: UInt32 = 1001
    let bus = UsersBus()
    let sessions: Sessions
    private(set) var systemBusSession: SystemBusSession!
    private(set) var posted: [String] = []
    let center = StageCenter()

    init() {
        let machine = Machine.simulated(
            address: "", runtimeDirectory: "", files: SystemFiles(), processes: NoProcesses(),
            configuration: { .init() },
            connect: { _, _ throws(BusError) in throw .failed("nobody connects") },
            connectToSystemBus: { [bus] _, _ throws(BusError) in bus })
        sessions = Sessions(on: machine, context: bus.context)
        var rules = SessionRules()
        rules.imports = [Self.user: [NamePattern("Ding")!]]
        sessions.use(rules)
        sessions.post = { [unowned self] in
            posted.append($0.notification.name)
            center.keep($0)
        }
        sessions.center = center
        sessions.begin()
        systemBusSession = sessions.systemBusSession
    }

    /// A connection says that it is a session.
    func join(_ name: UniqueName, user: UInt32? = user) {
        bus.users[name.rawValue] = user
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

    /// - Parameter option: one more, of a later version.
    func send(_ number: UInt64, _ name: String = "Ding", option: String? = nil, from session: UniqueName) {
        let signal = Self.message(number, name, "") { writer in
            guard let option else { return }
            writer.dictEntry { writer in
                writer.append(option)
                writer.variant(of: "as") { writer in
                    writer.array(of: "s") { $0.append("a later version's") }
                }
            }
        }
        arrive(signal, from: session)
    }

    private static func message(
        _ number: UInt64, _ name: String, _ object: String, _ padding: String = "",
        option: (inout MessageWriter) -> Void = { _ in }
    ) -> Message {
        let signal = Message.signal(
            to: ":1.1", path: SessionsWire.path, interface: SessionsWire.interface, member: SessionNotification.member)
        var writer = MessageWriter(signal)
        writer.append(name)
        writer.append(object)
        writer.array(of: "{sv}") { writer in
            if !padding.isEmpty { writer.entry("padding", padding) }
        }
        writer.array(of: "{sv}") { writer in
            option(&writer)
            writer.entry("number", number)
        }
        return signal
    }

    /// That of a post.
    static func userInfo(_ name: String, _ object: String, _ padding: String = "") -> WireUserInfo {
        let message = message(1, name, object, padding).carried(from: ":1.9", serial: 1)
        return try! SessionNotification(message, limits: Limits(), checking: { _, _ in }).userInfo
    }

    /// A value of another session.
    ///
    /// - Parameters:
    ///   - padding: what it has besides.
    ///   - kept: whether it is told again.
    ///   - whileConnected: whether it goes with its poster.
    func value(
        _ number: UInt64, object: String, padding: String = "", kept: Bool = false, whileConnected: Bool = false,
        from session: UniqueName
    ) {
        var options = SessionNotification.Options()
        options.number = number
        options.isRetained = true
        (options.isKept, options.whileConnected) = (kept, whileConnected)
        let userInfo = Self.userInfo("Ding", object, padding)
        let message = SessionNotification.message(to: ":1.1", userInfo, options, serial: 1)
        _ = bus.onMessage?(Message(message) { 1 }.carried(from: AnyBusName(session), serial: 1))
    }

    /// The last number that a session was sent.
    func lastNumber(to session: UniqueName) -> UInt64 {
        bus.sent.last { $0.hasMember(SessionNotification.member) && $0.destination == AnyBusName(session) }
            .flatMap { try? SessionNotification.place(of: $0).number } ?? 0
    }

    func arrive(_ message: Message, from session: UniqueName) {
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
