// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCore
import CarillonDBus
import CarillonWire

/// The system bus, and the other sessions of the machine that meet there (G1).
final class Neighborhood {
    let bus: Bus
    private let world: World
    private let ledger: Ledger
    private let host: ServiceHost
    private let plan: Plan
    /// By their places in the plan; those that left are kept for the end.
    private var current: [Int: OtherSession] = [:]
    private var all: [OtherSession] = []
    private var crowd: [Peer] = []
    /// Connections that services have or had.
    private var services: [Peer] = []
    private var lastProcessID: UInt32 = 9000
    /// Whether nobody can connect.
    private(set) var isUnreachable = false

    init(_ world: World, _ ledger: Ledger, _ host: ServiceHost, _ plan: Plan, id: String) {
        self.world = world
        self.ledger = ledger
        self.host = host
        self.plan = plan
        bus = Bus(world, id: id, manner: Bus.Manner())
    }

    private var present: [OtherSession] {
        current.sorted { $0.key < $1.key }.map(\.value).filter(\.peer.isOpen)
    }

    /// A new connection of the service.
    func connect(processID: UInt32) throws(BusError) -> Peer {
        guard !isUnreachable else { throw .disconnected("there is no system bus") }
        ledger.imports.noteStay()
        let peer = bus.connect(processID: processID)
        peer.userID = SessionsFile.ownUser
        services.append(peer)
        return peer
    }

    // MARK: Steps

    func carryOut(_ deed: SessionDeed) {
        switch deed {
        case .join(let session): join(session)
        case .leave(let session, let abruptly): current[session]?.leave(abruptly: abruptly)
        case .post(let session, let post): current[session].map { $0.post(arriving(post, from: $0)) }
        case .flood(let session, let post, let count):
            guard let session = current[session] else { return }
            let post = arriving(post, from: session)
            ledger.imports.noteFlood(of: session.user)
            for _ in 0..<count { session.post(post, isFlood: true) }
        case .stop(let session, let isStopped): current[session]?.setStopped(isStopped)
        case .mute(let session, let isMute): current[session]?.setMute(isMute)
        case .lie(let session, let lie):
            guard let session = current[session] else { return }
            session.tell(lie) { [unowned self] in arriving($0, from: session) }
        case .crowd(let user, let count, let milliseconds): crowd(user: user, count: count, milliseconds)
        case .cut: host.cutSystem(bus)
        case .unreachable(let isUnreachable): self.isUnreachable = isUnreachable
        case .slow(let factor): bus.manner.slowness = Int64(factor)
        }
    }

    private func join(_ session: Int) {
        guard current[session]?.peer.isOpen != true else { return }
        lastProcessID += 1
        let joined = OtherSession(world, bus, ledger, plan.neighbors[session], processID: lastProcessID) {
            [unowned self] name in services.contains { $0.name == name }
        }
        current[session] = joined
        all.append(joined)
    }

    private func crowd(user: UInt32?, count: Int, _ milliseconds: Int) {
        let peers = (0..<count).map { number in
            let peer = bus.connect(processID: 9999)
            peer.userID = user ?? 4_000_100 + UInt32(number % 10)
            OtherSession.register(peer)
            _ = peer.send(HereSignal().message(to: nil))
            return peer
        }
        crowd += peers
        world.after(Int64(milliseconds) * 1000) { for peer in peers { peer.close(losing: false) } }
    }

    /// The post in this session that comes from a post of another one.
    private func arriving(_ post: PostPlan, from session: OtherSession) -> PostPlan {
        var post = post
        post.user = session.user
        post.options.origin = .from(host: nil, user: SessionsFile.name(of: session.user))
        let mayStay = post.isSentRetained && plan.sessionsFiles.contains { $0.keeps(post.nameText, of: session.user) }
        post.options.retention = mayStay ? Retention() : nil
        return post
    }

    // MARK: The calm, and the end

    func beginCalm() {
        bus.manner.slowness = 1
        isUnreachable = false
        for peer in crowd { peer.close(losing: false) }
        for session in present {
            session.setStopped(false)
            session.setMute(false)
        }
    }

    /// In the calm everything goes through, in both directions.
    func post(by poster: PlainClient) {
        let file = ledger.policy.sessions
        for name in 0..<Names.nameCount where file.exports(Names.name(name)) {
            var post = PostPlan(name: name)
            post.options.goesToAllSessions = true
            poster.post(post)
        }
        for session in present {
            for name in 0..<Names.nameCount where file.imports(Names.name(name), of: session.user) {
                session.post(arriving(PostPlan(name: name), from: session))
            }
        }
    }

    /// - Parameter marker: the first post that was made in the calm.
    func judge(from marker: Int) {
        let file = ledger.policy.sessions
        let isConfigured = Set(plan.sessionsFiles.map(\.text)).count == 1
        guard file != SessionsFile() else { return }
        judgeValues()
        for session in present {
            session.judge(from: marker, isConfigured: isConfigured)
            judgeLink(of: session, file, isConfigured: isConfigured)
        }
    }

    /// The values of the service's session are everywhere, as far as they are wanted.
    func judgeValues() {
        let file = ledger.policy.sessions
        var expected: [NotificationKey: Int] = [:]
        for value in host.valuesForSessions where value.expiry == nil && file.exports(value.name) {
            guard let userInfo = value.userInfo as? WireUserInfo,
                let content = Receipt.content(ofCommonBody: userInfo.commonBody)
            else { continue }
            expected[NotificationKey(name: value.name, object: value.object)] = content.number
        }
        for session in present { session.judgeValues(expected) }
    }

    /// The service knows the session, by whatever service it was before, and counts what went there.
    private func judgeLink(of session: OtherSession, _ file: SessionsFile, isConfigured: Bool) {
        guard let link = session.link else {
            return world.violate("convergence", "the session of \(session.user) and the service do not know each other")
        }
        if link.wantsThere != file.imports[session.user] ?? [] {
            world.violate("G1", "the session of \(session.user) is asked for \(link.wantsThere), by \(file.text)")
        }
        guard let name = session.peer.name, let shown = host.shownSession(name) else {
            return world.violate("convergence", "the service does not show the session of \(session.user)")
        }
        var expected: [String: PropertyList] = [
            "uid": .uint32(session.user), "state": .string("open"), "queued": .uint32(0),
            "wants": .array(session.wants.map { .string($0) }), "sent": .uint64(link.lastReceived),
        ]
        // The word of a user of whom nothing is taken does not count.
        let reported = file.imports[session.user] == nil ? 0 : link.reported
        if isConfigured {
            var lost = link.lost + reported
            if case .uint64(let told)? = shown["lost"], told > lost { lost = min(told, lost + link.sentBeforeAsked) }
            expected["lost"] = .uint64(lost)
        }
        for (key, value) in expected.sorted(by: { $0.key < $1.key }) where shown[key] != value {
            world.violate(
                "E4", "the session of \(session.user) has \(key) \(shown[key].map { "\($0)" } ?? "-"), not \(value)")
        }
    }

    func leave() {
        for session in all where session.peer.isOpen { session.leave(abruptly: false) }
    }
}
