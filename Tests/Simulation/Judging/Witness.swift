// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCore
import CarillonWire

/// What one client has asked for and has received, held against the rules as it comes.
final class Witness {
    struct Registration {
        let name: Int?
        let object: Int?
        let behavior: SuspensionBehavior
        let mode: RunLoopMode
        /// Whether it asked for the values that there are (R2).
        let wantsValues: Bool
        /// In milliseconds (R5); 0 for none.
        let interval: UInt32
        let asked: Int64
        /// When it was known to be there; nil before, and where nobody said.
        var acknowledged: Int64?
        var removed: Int64?
        /// When it was known not to be there any more; nil before, and where nobody said.
        var gone: Int64?
        var id: ObserverID?

        func matches(_ post: PostPlan) -> Bool {
            (name == nil || name == post.name) && (object == nil || object == post.object)
        }
    }

    private struct Key: Hashable {
        let lane: Int
        let isImmediate: Bool
    }

    private struct Stretch: Hashable {
        let poster: UniqueName
        let number: Int
        let key: Key
    }

    let client: UniqueName
    private let ledger: Ledger
    private let world: World
    private let mode: RunLoopMode?
    private(set) var registrations: [Registration] = []
    /// How often each post arrived, and with which serial.
    private(set) var receipts: [Int: UInt64] = [:]
    /// Which post of a kind an observer got last, of those with intervals; its serial.
    private var lastOfObserver: [ObserverKind: UInt64] = [:]
    private struct ObserverKind: Hashable {
        let observer: ObserverID
        let kind: ValueKind
    }
    /// When it asked to be told where notifications are from, and when that was known to be so.
    private var detailsWanted: (asked: Int64, acknowledged: Int64)?
    /// How often each came that is kept.
    private var copies: [Int: Int] = [:]
    private var lastSequence: UInt64 = 0
    private var excused: UInt64 = 0
    /// What it was told to have lost.
    private(set) var announced: UInt64 = 0
    private(set) var hadBounds = false
    /// The processes of the service during which it closed a channel and left something unread, and was not told of it.
    private var discardedIn: Set<Int> = []
    private(set) var delivered: UInt64 = 0
    private var lastSerials: [Key: UInt64] = [:]
    private var lastOfPoster: [Stretch: Int] = [:]
    /// Its own word; nil when it gave none.
    private(set) var word: Bool?
    /// Whether it was told last that it is suspended.
    private(set) var isToldSuspended = false
    /// Whether it has to be told whether it is.
    var expectsWord = false
    /// Whether its process reads.
    var isReading: () -> Bool = { true }
    /// When it said that, and when that was known to be so.
    private(set) var words: [(isSuspended: Bool?, asked: Int64, acknowledged: Int64?)] = []
    /// Numbers that it asked to remove and that may have been given again, with the last time.
    private var reused: [ObserverID: Int64] = [:]
    /// What else decides whether it is suspended.
    var outside = OutsideSuspension()
    var hasLeft = false
    let joined: Int64
    private var incarnation: Int
    /// Whether its library passes over what it has seen, and counts holes itself.
    private let isLibrary: Bool

    init(_ client: UniqueName, ledger: Ledger, mode: RunLoopMode?, isLibrary: Bool) {
        self.client = client
        self.ledger = ledger
        world = ledger.world
        self.mode = mode
        self.isLibrary = isLibrary
        joined = ledger.world.now
        incarnation = ledger.incarnations
    }

    // MARK: What it asks for

    /// - Returns: the number of the registration.
    func register(
        name: Int?, object: Int?, _ behavior: SuspensionBehavior, _ mode: RunLoopMode, values: Bool = false,
        interval: UInt32 = 0
    ) -> Int {
        registrations.append(
            Registration(
                name: name, object: object, behavior: behavior, mode: mode, wantsValues: values,
                interval: interval, asked: world.now))
        return registrations.count - 1
    }

    func acknowledge(_ number: Int, id: ObserverID? = nil) {
        registrations[number].acknowledged = world.now
        registrations[number].id = id
        if let id, let time = reused[id], time >= registrations[number].asked { remove(number) }
    }

    func remove(_ number: Int) {
        if registrations[number].removed == nil { registrations[number].removed = world.now }
    }

    /// Policy has taken these observers from it (P3).
    ///
    /// - Returns: the registrations.
    func revoked(_ ids: [ObserverID]) -> [Int] {
        world.note("\(client) is told that policy took \(ids.map { String($0.rawValue) }.joined(separator: ", "))")
        let numbers = registrations.indices.filter { number in
            registrations[number].id.map(ids.contains) == true && registrations[number].removed == nil
        }
        for number in numbers {
            if !ledger.wasStateLost(since: joined) {
                ledger.policy.judgeRevocation(of: registrations[number], of: client)
            }
            remove(number)
            acknowledgeRemoval(number)
        }
        return numbers
    }

    func acknowledgeRemoval(_ number: Int) {
        if registrations[number].gone == nil { registrations[number].gone = world.now }
    }

    /// It asks for the removal of a number that it was given.
    ///
    /// docs/recovery.md: after a loss of the state numbers begin anew, so one from before may be that of another of its
    /// registrations by now.
    func remove(everythingWith id: ObserverID) {
        guard ledger.wasStateLost(since: joined) else { return }
        reused[id] = world.now
        for number in registrations.indices where registrations[number].id == id { remove(number) }
    }

    /// Registrations that were acknowledged, were not removed, and did not go with a loss of the state.
    var kept: [Registration] {
        registrations.filter { registration in
            guard let acknowledged = registration.acknowledged, registration.removed == nil,
                ledger.policy.surelyObserves(registration.name, client, since: registration.asked)
            else { return false }
            return !ledger.wasStateLost(since: acknowledged)
        }
    }

    /// The names for which it surely had observers all the time since then; nil for any.
    func wanted(since time: Int64) -> [String?] {
        guard !hasLeft else { return [] }
        return kept.filter { $0.acknowledged! <= time }.map { $0.name.map(Names.name) }
    }

    /// Those for which it may have had some at some time since then. A service without a past may know older ones.
    func possiblyWanted(since time: Int64) -> [String?] {
        registrations.filter { registration in
            let isGone = registration.gone.map { $0 <= time } ?? false
            return !isGone || ledger.wasStateLost(since: registration.asked)
        }.map { $0.name.map(Names.name) }
    }

    /// Whether it knows that the service has its word.
    var isWordKnown: Bool { words.last.map { $0.acknowledged != nil } ?? true }

    func say(_ word: Bool?) -> Int {
        self.word = word
        words.append((word, world.now, nil))
        return words.count - 1
    }

    /// It is told whether it is suspended.
    func told(isSuspended: Bool, cause: String) {
        if !outside.mayCause(cause) {
            world.violate("S1", "\(client) is told of its suspension by \(cause), and there was nothing of that")
        }
        world.note("\(client) is told that it is \(isSuspended ? "suspended" : "active")")
        isToldSuspended = isSuspended
        expectsWord = false
    }

    func acknowledgeWord(_ number: Int) {
        words[number].acknowledged = world.now
    }

    /// It is told where notifications are from, from now on (G3).
    ///
    /// - Parameter asked: when it asked for that.
    func acknowledgeDetails(asked: Int64) {
        detailsWanted = (asked, world.now)
    }

    func detailsAreRefused() { detailsWanted = nil }

    // MARK: What it receives

    func received(_ signal: Receipt) {
        guard let number = ledger.identify(signal) else { return }
        world.note("\(client) gets post \(number), serial \(signal.serial), sequence \(signal.sequence)")
        delivered += 1
        ledger.policy.judgeArrival(of: number, at: client)
        checkSequence(signal)
        checkObservers(signal, number)
        ledger.judgeOrigin(signal.origin, of: number, mayOmit: !signal.hasDetails || !isToldOrigin(number))
        if mayComeAsValue(number) { return countValue(signal, number) }
        if mayComeLate(number) { return checkLate(signal, number) }
        if let before = receipts.updateValue(signal.serial, forKey: number) {
            let post = ledger.posts[number].plan
            // docs/recovery.md: one that waited in its poster's queue may be posted again, with another serial.
            let isExcused = post.options.postingStyle != .now && before != signal.serial && ledger.incarnations > 1
            if !isExcused, !ledger.wasStateLost(since: 0) {
                world.violate(
                    "D6", "\(client) gets post \(number) twice, serials \(before) and \(signal.serial)")
            }
        }
        checkOrder(signal, number)
    }

    /// R2: who asks for values gets each once more for each observer that does, out of the order of the rest; R5: and for each
    /// that has an interval.
    private func mayComeAsValue(_ number: Int) -> Bool {
        let post = ledger.posts[number].plan
        return post.options.retention != nil && registrations.contains { $0.wantsValues && $0.matches(post) }
    }

    /// R5: whether somebody with an interval matches it: then it may come more than once, for others each time.
    private func mayComeLate(_ number: Int) -> Bool {
        let post = ledger.posts[number].plan
        return registrations.contains { $0.interval > 0 && $0.matches(post) }
    }

    /// Whether it surely had asked to be told where they are from when a post was made. A service without a past knows
    /// nothing of that.
    private func isToldOrigin(_ number: Int) -> Bool {
        guard let detailsWanted, detailsWanted.acknowledged <= ledger.posts[number].time else { return false }
        return !ledger.wasStateLost(since: detailsWanted.asked)
    }

    private func checkLate(_ signal: Receipt, _ number: Int) {
        receipts[number] = signal.serial
        let post = ledger.posts[number].plan
        // What was sent when the service was killed may be sent again. What is immediate overtakes.
        guard ledger.incarnations == 1, !ledger.wasStateLost(since: 0), !post.options.deliverImmediately,
            !registrations.contains(where: { $0.behavior == .deliverImmediately }), post.options.coalescing.isEmpty,
            mode != nil
        else { return }
        for observer in signal.observers {
            let kind = ObserverKind(observer: observer, kind: post.kind)
            if let last = lastOfObserver.updateValue(signal.serial, forKey: kind), last >= signal.serial {
                world.violate(
                    "R5", "\(client) gets post \(number), serial \(signal.serial), behind \(last) for \(observer)")
            }
        }
    }

    private func countValue(_ signal: Receipt, _ number: Int) {
        // Who was there in time may read it late.
        let asking = registrations.filter { $0.matches(ledger.posts[number].plan) }
        if asking.allSatisfy({ ledger.values.hadExpired(number, at: $0.asked) }) {
            world.violate("R1", "\(client) gets post \(number), whose time was over: \(ledger.posts[number].plan)")
        }
        receipts[number] = signal.serial
        copies[number, default: 0] += 1
        let post = ledger.posts[number].plan
        let most = 1 + registrations.count { ($0.wantsValues || $0.interval > 0) && $0.matches(post) }
        // What was sent when the service was killed may be sent again.
        guard ledger.incarnations == 1, !ledger.wasStateLost(since: 0), copies[number]! > most else { return }
        world.violate(
            "R2", "\(client) gets post \(number) \(copies[number]!) times, for \(most - 1) that may get it alone")
    }

    /// It closes its channel, and what lies unread there is lost.
    ///
    /// docs/channel.md: it is told, unless the service ends at that moment.
    func discards() { discardedIn.insert(ledger.incarnations) }

    func dropped(_ signal: DroppedSignal) {
        if signal.reason == DroppedSignal.notAllowed { return }
        world.note("\(client) is told that it lost \(signal.count): \(signal.reason)")
        announced += signal.count
        ledger.noteAnnounced(signal.count)
        if signal.reason == "channel-ended" { discardedIn.remove(ledger.incarnations) }
        if signal.isBound {
            hadBounds = true
            excused += signal.count
        } else {
            lastSequence += signal.count
        }
    }

    /// Whether some may be missing as they lay in a channel that ended, and the service with it.
    var mayHaveDiscarded: Bool { discardedIn.contains { $0 < ledger.incarnations } }

    /// Whether so many may be missing for that; it is no excuse for later ones.
    private func isExcusedAsDiscarded(_ count: UInt64) -> Bool {
        guard mayHaveDiscarded else { return false }
        discardedIn.formIntersection([ledger.incarnations])
        announced += count
        return true
    }

    /// Its library told the program that so many did not come.
    func noteMissing(_ count: UInt64) {
        world.note("\(client)'s library says that \(count) are missing")
        announced += count
        ledger.noteAnnounced(count)
    }

    private func checkSequence(_ signal: Receipt) {
        let next = lastSequence + 1
        let state = (lastSequence, excused)
        lastSequence = signal.sequence
        excused = 0
        guard signal.sequence != next else { return }
        if signal.sequence > next + state.1, isExcusedAsDiscarded(signal.sequence - next - state.1) { return }
        // What the bus refused or discarded is known, and told, only behind it (docs/flow-control.md).
        if ledger.wasBusCrowded { return }
        // A service that knows nothing of its predecessor counts from one.
        if ledger.wasStateLost(since: joined) { return }
        if signal.sequence < next {
            world.violate("D6", "\(client) gets number \(signal.sequence) behind \(state.0)")
        } else if signal.sequence - next > state.1 {
            world.violate(
                "S4", "\(client) gets number \(signal.sequence) behind \(state.0), and was told of \(state.1)")
        }
    }

    private func checkObservers(_ signal: Receipt, _ number: Int) {
        let post = ledger.posts[number].plan
        if signal.observers.isEmpty { world.violate("D6", "\(client) gets post \(number) for no observer") }
        if Set(signal.observers).count != signal.observers.count {
            world.violate("D6", "\(client) gets post \(number) for an observer twice")
        }
        // After that numbers of observers begin anew as well.
        for id in signal.observers where !ledger.wasStateLost(since: joined) {
            guard let registration = registrations.first(where: { $0.id == id }) else { continue }
            if !registration.matches(post) {
                world.violate("C1", "\(client) gets post \(number) for observer \(id.rawValue), which does not match")
            }
        }
        // Nobody else's.
        if !registrations.contains(where: { $0.matches(post) }) {
            world.violate("C1", "\(client) gets post \(number), and asked for nothing like it")
        }
    }

    /// D4, M6: within a mode there is one order; what is immediate has its own.
    private func checkOrder(_ signal: Receipt, _ number: Int) {
        guard let mode, !ledger.wasStateLost(since: joined) else { return }
        let post = ledger.posts[number].plan
        let matching = registrations.filter { $0.matches(post) }
        let mayBeImmediate = matching.contains { $0.behavior == .deliverImmediately }
        // Whether it overtook depends on the suspension at that moment.
        if mayBeImmediate, !post.options.deliverImmediately { return }
        // So does whether it took the place of one that was to be immediate (Q3).
        guard post.options.coalescing.isEmpty else { return }
        let key = Key(lane: RunLoopMode.allCases.firstIndex(of: mode)!, isImmediate: post.options.deliverImmediately)
        // Suspended, immediate ones go with what was held, all others behind.
        if let last = lastSerials[key], signal.serial <= last {
            world.violate("D4", "\(client) gets serial \(signal.serial) behind \(last)")
        }
        lastSerials[key] = signal.serial
        guard post.options.postingStyle == .now else { return }
        let stretch = Stretch(poster: ledger.posts[number].poster, number: ledger.posts[number].stretch, key: key)
        if let last = lastOfPoster[stretch], number < last {
            world.violate("D4", "\(client) gets post \(number) of \(signal.poster) behind post \(last)")
        }
        lastOfPoster[stretch] = number
    }

    // MARK: At the end

    /// The posts that it should have got and did not.
    func missing() -> [Int] {
        guard !hasLeft else { return [] }
        return ledger.posts.indices.filter { receipts[$0] == nil && isDue($0) }
    }

    /// Whether a post had to arrive here, or be announced as lost (E3, S4): only where nothing excuses it.
    private func isDue(_ number: Int) -> Bool {
        let post = ledger.posts[number]
        if post.plan.options.retention != nil, isDueAsValue(number) { return true }
        // What expires may do so while it waits, and is no loss then.
        guard post.plan.options.coalescing.isEmpty, post.plan.options.expiresAfter == nil else { return false }
        switch post.outcome {
        case .refused: return false
        case .accepted: break
        case .unknown:
            // Without an answer it is as good as accepted where nothing could stop it.
            guard !ledger.wasServiceTroubled, !ledger.wasBusCrowded, post.posterStayed, !post.plan.wantsAnswer,
                post.plan.options.postingStyle == .now, post.plan.flaw == nil,
                ledger.policy.verdict(ofPost: number) == .allowed, ledger.values.surelyHadRoom(number)
            else { return false }
        }
        if post.plan.options.postingStyle != .now {
            // R4: one that waits for its poster's exit is due with that.
            let isInTime = post.posterStayed != (post.plan.options.postingStyle == .atExit)
            guard isInTime, !ledger.mayHaveReplaced(number) else { return false }
        }
        guard !ledger.wasStateLost(since: post.time) else { return false }
        return registrations.contains { registration in
            guard let acknowledged = registration.acknowledged, acknowledged <= post.time, registration.removed == nil,
                registration.matches(post.plan), !ledger.wasStateLost(since: acknowledged),
                ledger.policy.surelyObserves(registration.name, client, since: registration.asked),
                // R5: of those that come in an interval the newest.
                registration.interval == 0 || ledger.isLastOfKind(number)
            else { return false }
            switch registration.behavior {
            case .hold, .deliverImmediately: return true
            case .drop: return post.plan.options.deliverImmediately || wasActive(during: post)
            // S1: of those that come while it is suspended the newest of each kind.
            case .coalesce:
                return post.plan.options.deliverImmediately || wasActive(during: post) || ledger.isLastOfKind(number)
            }
        }
    }

    /// R2: whether it was the value that an observer had to be given when it came.
    private func isDueAsValue(_ number: Int) -> Bool {
        let post = ledger.posts[number].plan
        return registrations.contains { registration in
            guard registration.wantsValues, registration.matches(post), registration.acknowledged != nil,
                registration.removed == nil, ledger.values.isCurrent(number, at: registration.asked),
                ledger.policy.surelyObserves(registration.name, client, since: registration.asked)
            else { return false }
            return registration.behavior != .drop
                || !outside.isConcerned && !words.contains { $0.isSuspended == true }
        }
    }

    /// Whether it was surely not suspended when a post was matched.
    private func wasActive(during post: Ledger.PostRecord) -> Bool {
        guard !outside.isConcerned else { return false }
        guard case .accepted(_, let end) = post.outcome, post.plan.options.postingStyle == .now else {
            return !words.contains { $0.isSuspended == true }
        }
        var isActive = true
        for word in words {
            if word.isSuspended == true {
                if word.asked < end { isActive = false }
            } else if let acknowledged = word.acknowledged, acknowledged <= post.time,
                !ledger.wasStateLost(since: acknowledged)
            {
                isActive = true
            }
        }
        return isActive
    }
}
