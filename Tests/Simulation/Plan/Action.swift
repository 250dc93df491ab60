// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonDBus
import CarillonWire

/// What a step does: an actor's deed, or a fault.
enum Action {
    // A client
    case join
    case leave(abruptly: Bool)
    /// `values`: it wants those that there are, too (R2). `interval`: in milliseconds (R5).
    case observe(
        slot: Int, name: Int?, object: Int?, SuspensionBehavior, RunLoopMode, values: Bool = false, interval: UInt32 = 0
    )
    case unobserve(slot: Int)
    case removeAll(name: Int?)
    case post(PostPlan)
    case burst(PostPlan, count: Int)
    /// In one call (F1).
    case postMany([PostPlan])
    case suspend(Bool)
    case follow
    case list
    /// Values that the service keeps (R3, R6); nil for those of all names.
    case read(name: Int?)
    case forget(name: Int?)
    case forgetOne(ValueKind)
    /// Takes back what it has queued of a name (Q3); nil for all.
    case withdraw(name: Int?)
    case pester(count: Int)
    case trespass(Trespass)
    /// Says of another client that it is suspended (B3), or takes that back.
    case override(of: Int, Bool?)
    /// What a source of activity reports of its application (A1).
    case activity(Activity)
    case lie(Lie)
    case openChannel
    case closeChannel(abruptly: Bool)
    case lieOnChannel(ChannelLie)
    case hogChannels(Int)

    // A client's process
    case stopReading
    case readAgain
    case slow(Int)

    // The service's process
    case kill(afterOperations: Int)
    case terminate
    case pause(milliseconds: Int)
    case startSecond
    case allowChannels(Bool)
    case changePolicy(PolicyFile)
    /// Somebody makes a mistake in the configuration, and mends it.
    case mistakePolicy
    case descriptors(Streams.Trouble?)

    // The bus
    case cut(control: Bool)
    case accident(Accident)
    case crowdBus(kilobytes: Int)
    case slowBus(Int)
    case queueForName
    case refuseCalls(Bus.Refusals?)
    case delayBarriers(milliseconds: Int)
    /// The bus reads the service's main connection so many times later than others.
    case slowService(Int)
    /// A client that is not watched leaves as the service asks for a rule for all.
    case leaveAtRule

    // Other sessions
    case session(SessionDeed)

    // The disk
    case fillDisk
    case emptyDisk
    case damageDisk
    /// So many bits of the service's log change.
    case flipBits(Int)
}

/// A notification to be posted.
struct PostPlan: Equatable {
    var name: Int
    var object: Int?
    var options = PostOptions()
    var wantsAnswer = true
    /// Of payload.
    var byteCount = 0
    var flaw: Flaw?
    /// The user of the other session that sends it; nil for a post of this session (G1).
    var user: UInt32?
    /// Whether the other session says that it keeps it.
    var isSentRetained = false
    /// Why nobody takes it from another session, whoever sends it.
    var lie: SessionLie?

    /// Why it is refused, whoever posts it.
    enum Flaw: String, CaseIterable {
        /// More bytes of name than any notification has (E1).
        case longName = "with too long a name"
        case longObject = "with too long an object"
        /// R4: a value that is to be kept while its poster is connected, and posted when that leaves.
        case contradiction = "with options that contradict each other"
    }
}

/// What there is one value of (R1, G3).
struct ValueKind: Hashable {
    var name: Int
    var object: Int?
    /// Nil for this session.
    var origin: OutsideOrigin?
}

extension ValueKind {
    init(_ listed: FollowValues.Listed) {
        self.init(
            name: Names.number(listed.name, Names.name),
            object: listed.object.isEmpty ? nil : Names.number(listed.object, Names.object),
            origin: .from(host: listed.host, user: listed.user))
    }
}

extension PostPlan {
    var kind: ValueKind { ValueKind(name: name, object: object, origin: options.origin) }
    /// On the bus.
    var nameText: String { Names.name(name) + (flaw == .longName ? Self.padding : "") }
    /// On the bus; empty for none.
    var objectText: String { (object.map(Names.object) ?? "") + (flaw == .longObject ? Self.padding : "") }

    private static let padding = String(repeating: "x", count: 5000)
}

/// What befalls the service when it next sends some signal, before the bus has read that.
struct Accident {
    let member: MemberName
    /// Its process dies; otherwise the bus closes its main connection.
    let isDeath: Bool

    /// Whether a signal is such a one; notifications may come together.
    func isMet(by signal: Message) -> Bool {
        signal.hasMember(member)
            || member == NotificationSignal.member && signal.hasMember(NotificationsSignal.member)
    }
}

/// What a liar tells (E2, E6).
enum Lie {
    /// Replies to calls that the service made of others.
    case repliesToService
    /// The same for a client of the service.
    case repliesToClient
    /// Signals as the service sends them.
    case signalsToClient
    /// That a connection left, or that the service's name has another owner.
    case departures
    /// A barrier to the service's control connection.
    case barriers
    /// Calls with arguments of wrong types, of methods that do not exist.
    case nonsense
    /// Answers to what the service asked of others and those have not answered, its Pings above all. The numbers are
    /// the right ones: they are small, follow one another, and stand in every message of the service to the liar.
    case answersForOthers
    /// Answers to what the service asks of the bus in the next time, and barriers ahead of its own. Each is sent as the
    /// question is, so that about half of them come first: what somebody reaches who sends them without end.
    case ambush

    /// Those that hit by chance.
    static let unaimed: [Lie] = [
        .repliesToService, .repliesToClient, .signalsToClient, .departures, .barriers, .nonsense,
    ]
}

extension Action: CustomStringConvertible {
    var description: String {
        switch self {
        case .join: "joins"
        case .leave(let abruptly): abruptly ? "is killed" : "leaves"
        case .observe(let slot, let name, let object, let behavior, let mode, let values, let interval):
            "observes \(name.map(Names.name) ?? "any") from \(object.map(Names.object) ?? "any") as #\(slot), "
                + "\(behavior.rawValue), \(mode.rawValue)" + (values ? ", with the values" : "")
                + (interval > 0 ? ", each \(interval) ms" : "")
        case .unobserve(let slot): "removes #\(slot)"
        case .removeAll(let name): "removes all for \(name.map(Names.name) ?? "any")"
        case .post(let post): "posts \(post)"
        case .burst(let post, let count): "posts \(count) times \(post)"
        case .postMany(let posts): "posts together: " + posts.map(\.description).joined(separator: "; ")
        case .suspend(let isSuspended): isSuspended ? "is suspended" : "is resumed"
        case .follow: "follows activity"
        case .list: "lists"
        case .read(let name): "reads the values of \(name.map(Names.name) ?? "all")"
        case .forget(let name): "removes the values of \(name.map(Names.name) ?? "all")"
        case .forgetOne(let kind): "removes the value of \(kind)"
        case .withdraw(let name): "withdraws its posts of \(name.map(Names.name) ?? "all names")"
        case .pester(let count): "lists \(count) times"
        case .trespass(let trespass): trespass.rawValue
        case .override(let other, let isSuspended):
            "says that #\(other) is " + (isSuspended.map { $0 ? "suspended" : "active" } ?? "what it is by itself")
        case .activity(let activity): "has an application that is \(activity)"
        case .lie(let lie): "lies: \(lie)"
        case .openChannel: "wants a channel"
        case .closeChannel(let abruptly): abruptly ? "closes its channel" : "ends its channel"
        case .lieOnChannel(let lie): "lies on its channel: \(lie)"
        case .hogChannels(let count): "has \(count) connections that want channels"
        case .stopReading: "stops"
        case .readAgain: "goes on"
        case .slow(let factor): "is \(factor) times slower"
        case .kill(let count): "service: killed after \(count) operations"
        case .terminate: "service: SIGTERM"
        case .pause(let milliseconds): "service: stopped for \(milliseconds) ms"
        case .startSecond: "service: another one starts"
        case .allowChannels(let isAllowed): "configuration: channels=\(isAllowed)"
        case .changePolicy(let file): "configuration: \(file)"
        case .mistakePolicy: "configuration: with a mistake"
        case .descriptors(let trouble): trouble.map { "descriptors: \($0)" } ?? "descriptors: as usual"
        case .cut(let control): "bus: closes the service's \(control ? "control" : "main") connection"
        case .accident(let accident):
            "\(accident.isDeath ? "service: killed" : "bus: closes the service's main connection") at its next "
                + accident.member.rawValue
        case .crowdBus(let kilobytes): "bus: keeps \(kilobytes) KiB for a connection"
        case .slowBus(let factor): "bus: \(factor) times slower"
        case .refuseCalls(let refusals):
            refusals.map {
                "bus: refuses \($0.share) of" + ($0.ofPings ? " Pings" : "") + ($0.ofBarriers ? " barriers" : "")
            } ?? "bus: refuses no calls"
        case .delayBarriers(let milliseconds): "bus: barriers take \(milliseconds) ms"
        case .slowService(let factor): "bus: reads the service \(factor) times later"
        case .leaveAtRule: "a client leaves at the next rule for all"
        case .queueForName: "somebody queues for the service's name"
        case .session(let deed): "\(deed)"
        case .fillDisk: "disk: full"
        case .emptyDisk: "disk: has room"
        case .damageDisk: "disk: damaged"
        case .flipBits(let count): "disk: \(count) bits of the log change"
        }
    }
}

extension ValueKind: CustomStringConvertible {
    var description: String {
        let object = object.map { " from \(Names.object($0))" } ?? ""
        return Names.name(name) + object + (origin == nil ? "" : ", brought from \(Names.place(origin))")
    }
}

extension PostPlan: CustomStringConvertible {
    var description: String {
        var words = [kind.description]
        if options.postingStyle != .now { words.append(options.postingStyle.rawValue) }
        if !options.coalescing.isEmpty {
            words.append("coalescing on " + options.coalescing.map(\.rawValue).sorted().joined(separator: ", "))
        }
        if let retention = options.retention {
            words.append(retention.whileConnected ? "retained while connected" : "retained")
        }
        if let seconds = options.expiresAfter { words.append("for \(seconds) s") }
        if options.goesToAllSessions { words.append("to all sessions") }
        if options.deliverImmediately { words.append("immediately") }
        if !wantsAnswer { words.append("without answer") }
        if byteCount > 0 { words.append("\(byteCount) bytes") }
        if let flaw { words.append(flaw.rawValue) }
        return words.joined(separator: " ")
    }
}

/// The few names and objects that there are, so that much matches.
enum Names {
    static let nameCount = 4
    static let objectCount = 3
    /// Names that are observed, and of which nothing is posted.
    static let unposted = [nameCount, nameCount + 1]
    /// The same, and only in the calm.
    static let late = [nameCount + 2, nameCount + 3]

    static func name(_ number: Int) -> String { "com.example.Name\(number)" }
    static func object(_ number: Int) -> String { "object\(number)" }

    /// Which one a name or an object is; -1 for none.
    static func number(_ text: String, _ names: (Int) -> String) -> Int {
        (0...max(nameCount, objectCount)).first { names($0) == text } ?? -1
    }

    /// Places outside of the session: some of one machine, some of one user.
    static let origins: [OutsideOrigin] = [("castle", nil), ("castle", "ann"), (nil, "ann"), ("harbour", "ann")]
        .compactMap { OutsideOrigin.from(host: $0, user: $1) }

    static func place(_ origin: OutsideOrigin?) -> String {
        guard let origin else { return "here" }
        return [origin.user, origin.host].compactMap(\.self).joined(separator: "@")
    }
}

extension OutsideOrigin {
    /// Nil for this session, and for what is no name of a place.
    static func from(host: String?, user: String?) -> OutsideOrigin? { try? OutsideOrigin(host: host, user: user) }
}
