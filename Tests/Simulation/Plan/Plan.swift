// SPDX-License-Identifier: Apache-2.0
import CarillonCore

/// What happens in a run: all of it comes from the seed, and a part of the steps is a plan as well.
struct Plan {
    /// A client's nature.
    struct Role {
        enum Kind: String {
            /// A D-Bus client in any language.
            case plain
            /// One of the library, through the real `ServiceSession`.
            case library
        }

        var kind = Kind.plain
        /// Whether its library answers `Peer.Ping`.
        var answersPings = true
        /// Whether it only ever makes trouble.
        var isLiar = false
        /// The mode of all its observers; nil for one of each.
        var mode: RunLoopMode? = .default
        /// Whether it posts what belongs together in one call, and asks for its notifications together (F1); a library does
        /// that by itself.
        var hasBatches = false
        /// Whether it goes by a channel where it can have one (F2).
        var hasChannel = false
        /// How many bytes a plain client writes or reads on its channel with one call.
        var grain = 64 << 10
        /// Whether it asks to be told where notifications are from (G3).
        var wantsDetails = false
        /// Whether it follows what is wanted and what is kept, as bridges do (G4, G5), and in pieces of which size.
        var followsBy: UInt32?
        /// Whether it calls rarely, so that it is owed an answer soon whatever others do (E4).
        var callsRarely = false
        /// That its process belongs to; nil where nothing tells.
        var application: Application?
    }

    struct Step {
        let time: Int64
        /// Nil for what no client does.
        let actor: Int?
        let action: Action
    }

    let seed: UInt64
    let dials: Dials
    var manner = Bus.Manner()
    var limits = Limits()
    var roles: [Role] = []
    var steps: [Step] = []
    /// Whether something starts the service anew when it has died; otherwise the next call does.
    var isSupervised = false
    var hasStaleFiles = false
    /// What serving a call takes, in microseconds; 0 where no time passes while the service does something.
    var servingTime: Int64 = 0
    /// Whether bits of the log change.
    var hasFlips = false
    /// Whether the activity of applications suspends (A2).
    var suspendsAutomatically = false
    /// The other sessions of the machine, which are there where there are any.
    var neighbors: [Neighbor] = []
    /// What is in force at the beginning.
    var policy = PolicyFile()

    /// What the seed says.
    init(seed: UInt64, dials: Dials = Dials()) {
        self.seed = seed
        self.dials = dials
        var random = Random(seed: seed, stream: 1)
        manner.kind = random.happens(0.5) ? .daemon : .broker
        if random.happens(0.15 * dials.faults) { manner.maxRules = random.number(2...8) }
        if random.happens(0.4) { narrow(&random) }
        isSupervised = random.happens(0.5)
        hasStaleFiles = random.happens(0.2)
        for _ in 0..<dials.clients { roles.append(role(&random)) }
        fill(&random)
        if dials.faults > 0 { addFaults(&random) }
        if dials.hostility > 0 { addHostility() }
        // Out of a stream of their own, so that the rest of a plan is the same without them.
        var batches = Random(seed: seed, stream: 3)
        for actor in roles.indices where roles[actor].kind == .plain { roles[actor].hasBatches = batches.happens(0.4) }
        if dials.channels > 0 { addChannels() }
        if dials.values > 0 { addValues() }
        if dials.exits > 0 { addExits() }
        if dials.intervals > 0 { addIntervals() }
        if dials.outside > 0 { addOutside() }
        if dials.batches > 0 { addBatches() }
        if dials.policy > 0 { addPolicy() }
        if dials.probes > 0 { addProbes() }
        if dials.expiry > 0 { addExpiry() }
        if dials.damage > 0 { addDamage() }
        if dials.activity > 0 { addActivity() }
        if dials.sessions > 0 { addSessions() }
        if dials.moments > 0 { addMoments() }
        // Then the calm begins.
        let end = Int64(dials.seconds) * 1_000_000
        steps.removeAll { $0.time >= end }
        // Those of one moment stay as they were made.
        steps = steps.enumerated().sorted { ($0.element.time, $0.offset) < ($1.element.time, $1.offset) }.map(\.element)
    }

    /// Limits that a simulation reaches.
    private mutating func narrow(_ random: inout Random) {
        limits[.queuedPerClient] = UInt64(random.number(20...400))
        if random.happens(0.5) { limits[.queuedBytes] = UInt64(random.number(64...512)) << 10 }
        if random.happens(0.3) { limits[.inFlightBytes] = UInt64(random.number(64...256)) << 10 }
        if random.happens(0.3) { limits[.queuedPostsPerClient] = UInt64(random.number(5...50)) }
        if random.happens(0.3) { limits[.stateBytes] = UInt64(random.number(16...256)) << 10 }
        if random.happens(0.2) { limits[.observersPerClient] = 3 }
    }

    private func role(_ random: inout Random) -> Role {
        var role = Role()
        role.kind = random.happens(0.35) ? .library : .plain
        if role.kind == .plain {
            role.answersPings = !random.happens(0.15)
            role.isLiar = random.happens(0.08)
        }
        role.mode = random.happens(0.2) ? nil : random.happens(0.7) ? .default : random.pick(RunLoopMode.allCases)
        return role
    }

    /// What is not in the steps, for whoever reads a trace.
    var surroundings: String {
        var words = [manner.kind.rawValue, "\(manner.maxRules) match rules"]
        if isSupervised { words.append("the service is started anew") }
        for key in Limits.Key.allCases where limits[key] != Limits()[key] {
            words.append("\(key.rawValue) = \(limits[key])")
        }
        for (actor, role) in roles.enumerated() {
            words.append(
                "#\(actor) \(role.kind.rawValue) \(role.mode?.rawValue ?? "all modes")"
                    + (role.answersPings ? "" : " never answers") + (role.isLiar ? " lies" : "")
                    + (role.hasBatches ? " has batches" : "") + (role.hasChannel ? " has a channel" : "")
                    + (role.grain < 64 << 10 ? " by \(role.grain) bytes" : "")
                    + (role.followsBy.map { " follows by \($0)" } ?? "")
                    + (role.wantsDetails ? " is told origins" : "") + (role.callsRarely ? " calls rarely" : "")
                    + (role.application.map { $0.isSandboxed ? " in the sandbox of \($0.id)" : " of \($0.id)" } ?? ""))
        }
        for (session, neighbor) in neighbors.enumerated() {
            words.append("session \(session) of \(neighbor.user) wants \(neighbor.wants.joined(separator: ", "))")
        }
        if policy != PolicyFile() { words.append("\(policy)") }
        if servingTime > 0 { words.append("\(servingTime) µs to serve a call") }
        if let bytes = manner.maxIncomingBytes { words.append("the bus holds \(bytes) bytes of a sender") }
        return words.joined(separator: "; ")
    }

    // MARK: What clients do

    private mutating func fill(_ random: inout Random) {
        let end = Int64(dials.seconds) * 1_000_000
        for actor in roles.indices {
            var time = Int64(random.number(0...1_000_000))
            steps.append(Step(time: time, actor: actor, action: .join))
            for slot in 0..<random.number(0...3) {
                time += 1000
                steps.append(Step(time: time, actor: actor, action: observe(slot, roles[actor], &random)))
            }
        }
        for _ in 0..<dials.seconds * dials.rate {
            let time = Int64(random.next() % UInt64(end))
            let actor = random.number(0...max(0, roles.count - 1))
            for action in actions(of: roles[actor], &random) {
                steps.append(Step(time: time, actor: actor, action: action))
            }
        }
    }

    private func observe(_ slot: Int, _ role: Role, _ random: inout Random) -> Action {
        .observe(
            slot: slot, name: random.happens(0.2) ? nil : random.number(0...Names.nameCount - 1),
            object: random.happens(0.7) ? nil : random.number(0...Names.objectCount - 1),
            random.happens(0.4) ? .hold : random.pick(SuspensionBehavior.allCases),
            role.mode ?? random.pick(RunLoopMode.allCases))
    }

    private func post(_ random: inout Random) -> PostPlan {
        var post = PostPlan(
            name: random.number(0...Names.nameCount - 1),
            object: random.happens(0.5) ? nil : random.number(0...Names.objectCount - 1))
        post.wantsAnswer = random.happens(0.6)
        post.options.deliverImmediately = random.happens(0.1)
        if random.happens(0.3) { post.options.postingStyle = random.pick([.asap, .whenIdle]) }
        if random.happens(0.15) { post.options.coalescing = random.happens(0.5) ? [.name] : [.name, .object] }
        if random.happens(0.1) { post.byteCount = random.number(1...20_000) }
        return post
    }

    private func actions(of role: Role, _ random: inout Random) -> [Action] {
        if role.isLiar, random.happens(0.5) { return [.lie(random.pick(Lie.unaimed))] }
        switch random.number(0...99) {
        case 0..<55: return [.post(post(&random))]
        case 55..<60: return [.burst(post(&random), count: random.number(10...300))]
        case 60..<70: return [observe(random.number(0...4), role, &random)]
        case 70..<74: return [.unobserve(slot: random.number(0...4))]
        case 74..<75: return [.removeAll(name: random.happens(0.5) ? nil : random.number(0...Names.nameCount - 1))]
        case 75..<83: return [.suspend(true)]
        case 83..<91: return [.suspend(false)]
        case 91..<92: return [.follow]
        case 92..<95: return [.list]
        case 95..<98: return [.leave(abruptly: random.happens(0.5))]
        default: return [.join]
        }
    }

    // MARK: Faults

    private mutating func addFaults(_ random: inout Random) {
        let end = Int64(dials.seconds) * 1_000_000
        let isService = random.happens(0.5)
        let isBus = random.happens(0.3)
        let isDisk = random.happens(0.25)
        func add(_ action: Action, actor: Int? = nil, after delay: Int64 = 0, to time: Int64) -> Step {
            Step(time: time + delay, actor: actor, action: action)
        }
        for _ in 0..<max(1, Int(Double(dials.seconds) * dials.faults / 4)) {
            let time = Int64(random.next() % UInt64(end))
            let actor = random.number(0...max(0, roles.count - 1))
            // A client's process, in every run.
            if random.happens(0.7) {
                steps.append(add(.stopReading, actor: actor, to: time))
                steps.append(add(.readAgain, actor: actor, after: Int64(random.number(1...8_000)) * 1000, to: time))
            } else {
                steps.append(add(.slow(random.number(2...500)), actor: actor, to: time))
                steps.append(add(.slow(1), actor: actor, after: Int64(random.number(1...8_000)) * 1000, to: time))
            }
            let other = Int64(random.next() % UInt64(end))
            if isService {
                switch random.number(0...9) {
                case 0..<5: steps.append(add(.kill(afterOperations: random.number(0...60)), to: other))
                case 5..<7: steps.append(add(.terminate, to: other))
                case 7..<9: steps.append(add(.pause(milliseconds: random.number(1...3000)), to: other))
                default: steps.append(add(.startSecond, to: other))
                }
            }
            if isBus {
                switch random.number(0...9) {
                case 0..<3: steps.append(add(.cut(control: random.happens(0.4)), to: other))
                case 3..<6:
                    steps.append(add(.crowdBus(kilobytes: random.number(0...64)), to: other))
                    steps.append(
                        add(.crowdBus(kilobytes: 64 << 10), after: Int64(random.number(1...5_000)) * 1000, to: other))
                case 6..<9:
                    steps.append(add(.slowBus(random.number(2...300)), to: other))
                    steps.append(add(.slowBus(1), after: Int64(random.number(1...5_000)) * 1000, to: other))
                default: steps.append(add(.queueForName, to: other))
                }
            }
            if isDisk {
                if random.happens(0.5) {
                    steps.append(add(.fillDisk, to: other))
                    steps.append(add(.emptyDisk, after: Int64(random.number(1...8_000)) * 1000, to: other))
                } else {
                    steps.append(add(.damageDisk, to: other))
                }
            }
        }
    }
}
