// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCollections
import CarillonCore
import CarillonDBus
import CarillonWire

/// The service of another session, on the system bus (G1). It speaks the protocol of docs/security.md with the simulated
/// service alone, and keeps what it needs to judge that.
final class OtherSession {
    /// The stay of a process of the service on the system bus, as this session sees it.
    final class Link {
        let name: UniqueName
        /// Patterns of the names that the service takes of this session's user.
        var wantsThere: [String] = []

        // To the service

        var lastSent: UInt64 = 0
        /// Sent within the window, and not confirmed. What comes before the service has said that it wants something it may
        /// refuse, as it does not know yet whose it is, and confirm with what comes behind that.
        var onTheWay = Deque<(number: UInt64, post: Int, isAsked: Bool)>()
        var waiting = Deque<Int>()
        /// Whether the service has said that it wants something, and so knows whose session this is.
        var isAsked = false
        /// Sent before that: the service may not have known who sends it, and then misses the number.
        var sentBeforeAsked: UInt64 = 0
        /// It is to be tried whether the window is still full.
        var isDoubted = false
        /// Lost for want of room, and not reported yet; reported.
        var unreported: UInt64 = 0
        var reported: UInt64 = 0
        /// Notifications that were sent before the service surely knew the wants of this session.
        var sentBeforeWants: UInt64 = 0
        /// Whether each answer to an announcement is one to an announcement behind `Wants`.
        let provesWants: Bool

        // From the service

        /// Since when the service surely knows what this session wants.
        var knownSince: Int64?
        var lastReceived: UInt64 = 0
        var confirmed: UInt64 = 0
        /// Losses that the service reported.
        var lost: UInt64 = 0
        var received: Set<Int> = []
        var lastOfPoster: [UniqueName: (stretch: Int, post: Int)] = [:]
        /// The values of the service's session, without those whose time ends by itself.
        var values: [NotificationKey: Int] = [:]
        /// Those of them that have not been told again, while all are.
        var untold: Set<NotificationKey> = []

        init(_ name: UniqueName, provesWants: Bool) {
            self.name = name
            self.provesWants = provesWants
        }
    }

    let user: UInt32
    let peer: Peer
    let wants: [String]
    let understandsValues: Bool
    let world: World
    let ledger: Ledger
    /// Whether a connection is the simulated service's.
    private let isService: (UniqueName) -> Bool
    /// The newest last.
    private(set) var links: [Link] = []
    private(set) var isStopped = false
    /// Since when it confirms nothing, or reads nothing.
    private var silentSince: Int64?
    private var isMute = false
    private var isReadingScheduled = false
    private var announcements = 0
    private var lastMessage: (link: UniqueName, message: () -> Message)?

    /// Of what may be on the way, and wait, to the service.
    private static let window = 64
    private static let maxWaiting = 512
    private static let messagesPerIteration = 16
    /// In microseconds, until a session announces itself again, to learn that the service has read what it wants.
    private static let pause: Int64 = 100_000
    /// After so many microseconds without a confirmation the service tries one more, and after the double time another.
    private static let doubtTime: Int64 = 10_000_000

    init(
        _ world: World, _ bus: Bus, _ ledger: Ledger, _ neighbor: Plan.Neighbor, processID: UInt32,
        isService: @escaping (UniqueName) -> Bool
    ) {
        self.world = world
        self.ledger = ledger
        self.isService = isService
        user = neighbor.user
        wants = neighbor.wants
        understandsValues = neighbor.understandsValues
        peer = bus.connect(processID: processID)
        peer.userID = user
        peer.onReadable = { [weak self] in self?.scheduleReading() }
        Self.register(peer)
        Self.call(peer, "AddMatch") { $0.append(SessionsWire.matchRule) }
        announce()
    }

    static func register(_ peer: Peer) { call(peer, "Hello") }

    private static func call(_ peer: Peer, _ member: MemberName, _ body: (inout MessageWriter) -> Void = { _ in }) {
        let message = Message.methodCall(
            to: AnyBusName("org.freedesktop.DBus"), path: "/org/freedesktop/DBus", interface: "org.freedesktop.DBus",
            member: member)
        var writer = MessageWriter(message)
        body(&writer)
        _ = peer.send(message)
    }

    /// As a poster that the ledger knows.
    var poster: UniqueName { UniqueName(unchecked: ":9.\(peer.number)") }

    /// The link to the service that is there.
    var link: Link? { links.last { peer.bus.peers[$0.name] != nil } }

    func wants(_ name: String) -> Bool { wants.contains { PolicyFile.matches($0, name) } }

    // MARK: Its deeds

    /// Says to all that it is a session.
    func announce() {
        guard peer.isOpen else { return }
        announcements += 1
        send(HereSignal().message(to: nil))
    }

    func leave(abruptly: Bool) {
        ledger.leave(poster)
        peer.close(losing: abruptly)
    }

    func setStopped(_ isStopped: Bool) {
        guard isStopped != self.isStopped else { return }
        self.isStopped = isStopped
        if isStopped { noteSilence() } else { scheduleReading() }
    }

    func setMute(_ isMute: Bool) {
        guard isMute != self.isMute else { return }
        self.isMute = isMute
        if isMute { return noteSilence() }
        for link in links { confirm(link) }
    }

    private func noteSilence() { silentSince = silentSince ?? world.now }

    /// Posts something in its session, which goes to the service as far as there is room.
    func post(_ plan: PostPlan, isFlood: Bool = false) {
        guard let link, peer.isOpen else { return }
        let number = ledger.post(plan, from: poster)
        world.note("the session of \(user) has post \(number): \(plan)")
        if isFlood {
            // Behind what waits: who floods keeps its own order all the same (D4).
            while let waiting = link.waiting.popFirst() { send(waiting, on: link, within: false) }
            return send(number, on: link, within: false)
        }
        link.waiting.append(number)
        if link.waiting.count > Self.maxWaiting {
            _ = link.waiting.popFirst()
            link.unreported += 1
        }
        pump(link)
    }

    private func pump(_ link: Link) {
        while link.onTheWay.count < Self.window, let number = link.waiting.popFirst() {
            send(number, on: link, within: true)
        }
        doubt(link)
    }

    /// While the window is full and nothing is confirmed one more is tried now and then: what came before the service knew
    /// whose session this is was refused, and is confirmed with what comes behind it.
    private func doubt(_ link: Link) {
        guard !link.isDoubted, !link.waiting.isEmpty, let first = link.onTheWay.first else { return }
        link.isDoubted = true
        world.after(Self.doubtTime) { [weak self, weak link] in
            guard let self, let link else { return }
            link.isDoubted = false
            guard peer.isOpen, self.link === link else { return }
            if link.onTheWay.first?.number == first.number, let number = link.waiting.popFirst() {
                send(number, on: link, within: true)
            }
            doubt(link)
        }
    }

    private func send(_ post: Int, on link: Link, within window: Bool) {
        link.lastSent += 1
        let (number, lost) = (link.lastSent, link.unreported)
        link.unreported = 0
        link.reported += lost
        if !link.isAsked { link.sentBeforeAsked += 1 }
        if window { link.onTheWay.append((number, post, isAsked: link.isAsked)) }
        ledger.imports.noteSent(by: user)
        let make = { [ledger] in Self.message(to: link.name, ledger.posts[post].plan, post, number, lost) }
        lastMessage = (link.name, make)
        send(make())
    }

    private static func message(
        to name: UniqueName?, _ plan: PostPlan, _ post: Int, _ number: UInt64, _ lost: UInt64
    ) -> Message {
        let signal = Message.signal(
            to: name, path: SessionsWire.path, interface: SessionsWire.interface, member: SessionNotification.member)
        var writer = MessageWriter(signal)
        writer.append(plan.nameText)
        writer.append(plan.objectText)
        writer.array(of: "{sv}") { writer in
            writer.entry(Ledger.numberKey, UInt64(post))
            if plan.byteCount > 0 {
                writer.dictEntry { writer in
                    writer.append("x")
                    writer.variant(of: "ay") { writer in
                        writer.append(fixedArray: [UInt8](repeating: 7, count: plan.byteCount))
                    }
                }
            }
            guard plan.lie == .wrongTypes else { return }
            writer.dictEntry { writer in
                writer.append("y")
                writer.variant(of: "o") { $0.append(SessionsWire.path) }
            }
        }
        writer.array(of: "{sv}") { writer in
            if number > 0 { writer.entry("number", number) }
            if lost > 0 { writer.entry("lost", lost) }
            if plan.options.deliverImmediately { writer.entry("deliver-immediately", true) }
            if plan.isSentRetained { writer.entry("retain", true) }
            if let seconds = plan.options.expiresAfter { writer.entry("expires-after", seconds) }
            if plan.lie == .claim { writer.entry("uid", SessionsFile.root) }
        }
        return signal
    }

    private func send(_ message: Message) { _ = peer.send(message) }

    // MARK: Its lies

    /// - Parameter post: makes a post of this session out of a plan.
    func tell(_ lie: SessionLie, _ post: (PostPlan) -> PostPlan) {
        guard let link, peer.isOpen else { return }
        var plan = post(PostPlan(name: world.now.isMultiple(of: 2) ? 0 : 1))
        plan.lie = lie
        switch lie {
        case .replay:
            if let lastMessage, lastMessage.link == link.name { send(lastMessage.message()) }
        case .unnumbered: send(Self.message(to: link.name, plan, ledger.post(plan, from: poster), 0, 0))
        case .claim, .wrongTypes, .tooLarge:
            if lie == .tooLarge { plan.byteCount = 2 << 20 }
            link.lastSent += 1
            ledger.imports.noteSent(by: user)
            send(Self.message(to: link.name, plan, ledger.post(plan, from: poster), link.lastSent, 0))
        case .stranger:
            let stranger = peer.bus.connect(processID: peer.processID)
            stranger.userID = user
            Self.register(stranger)
            _ = stranger.send(Self.message(to: link.name, plan, ledger.post(plan, from: poster), 1, 0))
            world.after(1_000_000) { stranger.close(losing: false) }
        case .broadcast: send(Self.message(to: nil, plan, ledger.post(plan, from: poster), link.lastSent + 1, 0))
        case .confirmsMore: send(TakenSignal(upTo: link.lastReceived + 1_000_000).message(to: link.name))
        case .wantsTooMuch:
            let names = (0...SessionsWire.maxWanted).map { "com.example.Other\($0)" } + ["com.example.*"]
            send(WantsSignal(names).message(to: link.name))
        case .presence: for _ in 0..<20 { announce() }
        }
    }

    // MARK: What arrives

    private func scheduleReading() {
        guard !isReadingScheduled, !isStopped, peer.isOpen else { return }
        isReadingScheduled = true
        world.after(5) { [weak self] in self?.read() }
    }

    private func read() {
        isReadingScheduled = false
        guard !isStopped, peer.isOpen else { return }
        judgeWindow()
        for _ in 0..<Self.messagesPerIteration {
            guard let message = peer.receive() else { break }
            handle(message)
        }
        if !isMute { for link in links { confirm(link) } }
        if peer.hasMessage { return scheduleReading() }
        if !isMute { silentSince = nil }
    }

    /// G1: at most a window lies unread or unconfirmed, and what the service has tried since it got no confirmation.
    private func judgeWindow() {
        guard let silentSince else { return }
        let doubts = Int((world.now - silentSince) / Self.doubtTime) + 1
        for link in links {
            let unread = peer.inbox.lazy.map(\.message).count {
                $0.sender == link.name && $0.hasMember(SessionNotification.member)
            }
            let unconfirmed = unread + Int(link.lastReceived - link.confirmed)
            guard unconfirmed > Self.window + doubts else { continue }
            world.violate("G1", "\(unconfirmed) are on the way to the session of \(user), which does not confirm")
        }
    }

    private func confirm(_ link: Link) {
        guard link.confirmed < link.lastReceived, peer.isOpen else { return }
        link.confirmed = link.lastReceived
        send(TakenSignal(upTo: link.lastReceived).message(to: link.name))
    }

    private func handle(_ message: Message) {
        guard message.kind == .signal, message.hasInterface(SessionsWire.interface), let sender = message.sender,
            isService(sender)
        else { return }
        if message.hasMember(HereSignal.member) { return hear(of: sender, isBroadcast: message.destination == nil) }
        guard let link = links.last(where: { $0.name == sender }) else {
            return world.violate("G1", "\(sender) sends to the session of \(user), and has not said that it is one")
        }
        if message.hasMember(SessionNotification.member) { return take(message, from: link) }
        do throws(BusError) {
            if try takeValues(message, from: link) { return }
            if message.hasMember(WantsSignal.member) {
                link.wantsThere = try WantsSignal(message).names
                link.isAsked = true
            } else if message.hasMember(TakenSignal.member) {
                confirmed(upTo: try TakenSignal(message).number, by: link)
            }
        } catch {
            world.violate("G1", "the session of \(user) is sent what it cannot read: \(error)")
        }
    }

    private func hear(of sender: UniqueName, isBroadcast: Bool) {
        let known = links.last { $0.name == sender }
        let isNew = known == nil
        if isNew { links.append(Link(sender, provesWants: !isBroadcast && announcements == 1)) }
        if let known, known.provesWants, !isBroadcast { noteKnown(known) }
        if isBroadcast { send(HereSignal().message(to: sender)) }
        guard isNew || isBroadcast else { return }
        if understandsValues {
            send(UnderstandsSignal([UnderstandsSignal.values, UnderstandsSignal.losses]).message(to: sender))
        }
        send(WantsSignal(wants).message(to: sender))
        if let link = links.last(where: { $0.name == sender }), link.knownSince == nil {
            link.sentBeforeWants = link.lastSent
        }
        if isNew { world.after(Self.pause) { [weak self] in self?.announce() } }
    }

    private func confirmed(upTo number: UInt64, by link: Link) {
        guard number <= link.lastSent else {
            return world.violate("G1", "\(link.name) confirms \(number), and \(link.lastSent) were sent")
        }
        if number > link.sentBeforeWants { noteKnown(link) }
        while let first = link.onTheWay.first, first.number <= number {
            _ = link.onTheWay.popFirst()
            guard first.isAsked, ledger.imports.isSurelyTaken(first.post) else { continue }
            ledger.settle(first.post, .accepted(receivers: 0, at: world.now))
        }
        pump(link)
    }

    private func note(_ number: UInt64, on link: Link) {
        if number != link.lastReceived + 1 {
            world.violate(
                "G1", "the session of \(user) gets number \(number) behind \(link.lastReceived) of \(link.name)")
        }
        link.lastReceived = number
    }

    /// What is told of values, and of losses, beside notifications.
    ///
    /// - Returns: whether it is that.
    private func takeValues(_ message: Message, from link: Link) throws(BusError) -> Bool {
        if message.hasMember(RemovedSignal.member) {
            let removed = try RemovedSignal(message)
            note(removed.number, on: link)
            let kind = NotificationKey(name: removed.name, object: removed.object)
            (link.values[kind], _) = (nil, link.untold.remove(kind))
        } else if message.hasMember(ValuesSignal.member) {
            let values = try ValuesSignal(message)
            note(values.number, on: link)
            if values.isBeginning {
                link.untold = Set(link.values.keys)
            } else {
                for kind in link.untold { link.values[kind] = nil }
                link.untold = []
            }
        } else if message.hasMember(LostSignal.member) {
            let lost = try LostSignal(message)
            note(lost.number, on: link)
            link.lost += lost.entries.reduce(0) { $0 + $1.count }
        } else {
            return false
        }
        if !understandsValues { world.violate("R8", "the session of \(user) is told what it does not understand") }
        return true
    }

    private func noteKnown(_ link: Link) { link.knownSince = link.knownSince ?? world.now }

    private func take(_ message: Message, from link: Link) {
        do throws(BusError) {
            let notification = try SessionNotification(message, limits: Limits()) { _, _ in }
            let options = notification.options
            noteKnown(link)
            note(options.number, on: link)
            link.lost += options.lost
            judge(notification, on: link)
            guard options.isRetained else { return }
            let kind = NotificationKey(name: notification.name, object: notification.object)
            link.untold.remove(kind)
            let number = Receipt.content(ofCommonBody: notification.userInfo.commonBody)?.number
            link.values[kind] = options.expiresAfter == nil ? number : nil
        } catch {
            world.violate("G1", "the session of \(user) is sent what is no notification: \(error)")
        }
    }
}
