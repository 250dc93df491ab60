// SPDX-License-Identifier: Apache-2.0
import CarillonCollections

/// The rules of the distributed center (parts N, D, S, E of `docs/semantics.md`) as a state machine.
///
/// Events come in as method calls, in the order in which the bus carried them; what shall be done comes out as
/// ``Effect`` values. There is no input or output here, no clock, and no thread: one caller at a time.
///
/// This file has registrations and what can be looked at; `+Posting` the way of a notification, `+PostingQueue` posts
/// that wait for their time, `+Intervals` notifications that wait for theirs, `+Delivery` queues and their limits, `+Flow` who is sent how much, `+Calling` and `+Crowding` who is served when, `+Sending` the turns in which what is due leaves, `+Suspension`
/// who is suspended, `+Activity` how the desktop has its say in that, `+Recovery` what survives the process,
/// `+Following` who follows what others want and which values there are, `+Invariants` what holds between events.
///
/// After every event the driver sends what is ready: ``sendReady(upTo:limit:effects:)``.
///
/// The state that each delivery touches is marked `@exclusivity(unchecked)` in release builds without the meter: the check for
/// overlapping accesses, fifty times for a delivery, was a sixth of all that the service does for one. None can overlap
/// that other builds, which have the check, would not find: an access lasts as long as a method of a value that knows
/// nothing of the center, and there is one thread. Tests and the simulation run builds with the check.
public final class DistributedCenter {
    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    public var limits: Limits
    /// Whether clients that come back are sent nothing before ``identify(_:as:identity:effects:)``, by when policy has taken from
    /// them what it no longer allows (P3). Set before ``finishRestoring(effects:)``.
    public var restoresOnlyIdentified = false
    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    var index = ObserverIndex<ExactText, ExactText, Observer>()
    /// The names and objects that somebody observes.
    public internal(set) var observedTexts = TextFilter()
    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    var clients: [ClientName: Client] = [:]
    /// Whether the index has observers in the order of their numbers; not while they come back.
    var isIndexInOrder = true
    /// The connections that the center has to do with: clients, and who else uses something.
    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    var peers: [ClientName: Peer] = [:]
    var accountsByID: [AccountID: Account] = [:]
    /// The same by what waits for their clients.
    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    var accounts = LargestFirst<Account>()
    /// What all together use.
    var totals = Usage()
    /// The part of it that does not count, as a limit was lowered.
    var excess = Usage()
    var lowered: [Resource: Lowered] = [:]
    /// Whether a later process would know something else of it.
    var isExcessToRemember = false
    /// Those whose queues are half full though they read; also some that are gone or suspended since.
    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    var underBackpressure: [Client] = []
    /// Tells when posts are made.
    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    public var clock = Clock.stopped
    /// What the bus is known to carry, in bytes of a notification with its observers: who should get a larger one is told of
    /// its loss.
    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    public var maxBytes = Int.max
    var interest: Interest
    /// Those that follow what others want.
    var interestFollowers = Followers()
    /// Those that follow which values there are.
    var valueFollowers = Followers()
    /// Those that wait for room on the way.
    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    var blockedOnQuota = BlockedOnQuota()
    /// Whether those are being looked through, one by one, as there is room again.
    var isLettingGo = false
    /// Those that were sent answers and were no clients, the oldest first; also those that are over.
    var unregisteredPeers = Deque<Peer>()
    /// The work of the event so far that is bounded for each event (E8).
    var spent = SpentInEvent()
    /// Whether an event ended before there was room for all that waits.
    var owesRoom = false
    /// About how many of them have been forgotten.
    var forgottenStrangers = 0
    /// Those whose calls wait to be served, also when nothing else is left of them.
    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    var waitingCallers: [ClientName: Peer] = [:]
    /// Connections of which posts have come in part.
    var partHolders: [ClientName: Peer] = [:]
    /// That of them that was looked up last: a flood comes from few.
    var lastWaitingCaller: Peer?
    /// Whether so much is on its way that confirmations are asked for early.
    var isQuotaLow = false
    var counters = Statistics()
    /// The greatest serial that was given, to posts that nobody matched, too.
    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    public internal(set) var lastSerial: UInt64 = 0
    /// The greatest number that an observer got.
    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    public internal(set) var lastObserver: UInt64 = 0
    var lastActivityEpoch: UInt64 = 0
    /// The configuration's word; ``setAutomaticSuspension(_:effects:)``.
    public internal(set) var suspendsAutomatically = true
    /// Whether ``Effect/remember(_:)`` is wanted.
    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    public var remembersChanges = false
    /// Whether what is staged for its turn is remembered, too: what was accepted before, and is posted by now.
    var remembersStaged = false
    /// Whether the process is about to end (``beginEnding(effects:)``).
    var isEnding = false
    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    var turns: SendSchedule
    /// Whether all turns are being taken, and who is owed values meanwhile.
    var isDraining = false
    var owedWhileDraining: [Client] = []
    /// Those for whom more was in the way whose time is over than one event takes out: they go on behind it.
    var waitingForNextEvent: [Client] = []
    /// The identities of notifications that came from other sessions of the machine, by whichever way (G1).
    var arrivals = Arrivals()
    /// Empty; its memory is used again from post to post.
    var spareMatches = Matches()
    /// The bytes that the driver keeps for other sessions: they count among everything that is kept.
    public var bytesForSessions = 0
    private var freeNumbers: [Int] = []
    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    var postingQueues: PostingQueues
    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    var retained: RetainedValues
    var departed = DepartedPayers()
    /// Whether debug builds check at the end of events what must hold; ``checkInvariants()``.
    package var checksInvariants = true
    var eventsSinceCheck = 0
    /// Counts the steps of events (E8).
    package let meter = StepMeter()

    public init(limits: Limits = Limits()) {
        self.limits = limits
        interest = Interest(meter: meter)
        turns = SendSchedule(meter: meter)
        postingQueues = PostingQueues(meter: meter)
        retained = RetainedValues(meter: meter)
    }

    deinit {
        // They and their clients hold each other.
        for account in accountsByID.values {
            account.clients = LargestFirst()
            account.blockedOnQuota = Deque()
        }
    }

    /// The greatest numbers that were given, of posts and of observers.
    public var lastNumbers: (serial: UInt64, observer: UInt64) { (lastSerial, lastObserver) }

    public func limit(_ key: Limits.Key) -> UInt64 { limits[key] }

    // MARK: Observers (D2, D8)

    /// Registers an observer of `client`. The empty string means any name, or any object.
    ///
    /// - Throws: ``CenterError/limitExceeded(_:value:)``.
    public func addObserver(
        of clientName: ClientName, name: String, object: String, options: ObserverOptions, effects: inout [Effect]
    ) throws(CenterError) -> ObserverID {
        defer { eventEnded() }
        try limits.check(.nameLength, name.utf8.count)
        try limits.check(.objectLength, object.utf8.count)
        let registration = Registration(
            id: ObserverID(rawValue: lastObserver + 1), client: clientName, name: name.isEmpty ? nil : name,
            object: object.isEmpty ? nil : object, options: options)
        let peer = peers[clientName]
        let size = registration.byteCount
        try checkRoom(for: peer, .observers, adding: 1)
        try limits.check(.observersPerClient, (peer?.usage[.observers] ?? 0) + 1)
        try checkRoom(for: peer, .observerBytes, adding: size)
        try limits.check(.observerBytesPerClient, (peer?.usage[.observerBytes] ?? 0) + size)
        let client = try client(clientName, effects: &effects)
        lastObserver += 1
        let id = registration.id
        // One that refuses automatic suspension resumes the client, and hears of nothing that came before it.
        changeSuspension(of: client, effects: &effects) { insert(registration, of: $0) }
        remember(.observer(registration), effects: &effects)
        tellInterest(effects: &effects)
        if options.wantsRetained { beginReplay(registration, to: client, effects: &effects) }
        return id
    }

    func insert(_ registration: Registration, of client: Client) {
        let position = index.insert(
            Observer(registration, of: client), name: registration.name.map(ExactText.init),
            object: registration.object.map(ExactText.init))
        for text in [registration.name, registration.object] { text.map { observedTexts.insert($0) } }
        client.observers[registration.id] = Registered(registration: registration, position: position)
        if !registration.options.automaticSuspension { client.refusalsOfAutomation += 1 }
        if registration.options.isMonitor {
            client.monitors += 1
        } else {
            noteInterest(interest.add(registration.name, of: client.number))
        }
        if registration.options.minimumInterval > 0 { client.observersWithInterval += 1 }
        charge(client.peer, .observers, 1)
        #if CARILLON_PLANTED
            if PlantedFault.strikes(.uncountedObservers) { return }
        #endif
        charge(client.peer, .observerBytes, registration.byteCount)
    }

    /// Removes one observer of `client`, also from what waits for it.
    ///
    /// - Throws: ``CenterError/unknownObserver(_:)`` when it has none with this number, also when another client has.
    public func removeObserver(
        _ id: ObserverID, of clientName: ClientName, effects: inout [Effect]
    ) throws(CenterError) {
        defer { eventEnded() }
        guard let client = clients[clientName], client.observers[id] != nil else { throw .unknownObserver(id) }
        changeSuspension(of: client, effects: &effects) { remove([id], of: $0) }
        remember(.observersRemoved(clientName, [id]), effects: &effects)
        tellInterest(effects: &effects)
    }

    /// Removes those observers of `client` that were registered for `name` and `object`, also from what waits for it;
    /// the empty string means any.
    ///
    /// - Returns: how many.
    public func removeObservers(
        of clientName: ClientName, name: String, object: String, effects: inout [Effect]
    ) -> Int {
        defer { eventEnded() }
        guard let client = clients[clientName] else { return 0 }
        func matches(_ wanted: String, _ registered: String?) -> Bool {
            wanted.isEmpty || registered.map(ExactText.init) == ExactText(wanted)
        }
        meter.count(client.observers.count)
        let ids = client.observers.filter { _, registered in
            let registration = registered.registration
            return matches(name, registration.name) && matches(object, registration.object)
        }
        guard !ids.isEmpty else { return 0 }
        changeSuspension(of: client, effects: &effects) { remove(Set(ids.keys), of: $0) }
        remember(.observersRemoved(clientName, Set(ids.keys)), effects: &effects)
        tellInterest(effects: &effects)
        return ids.count
    }

    /// Removes those of `ids` that `client` has, because it may have them no longer (P2), and tells it.
    public func revoke(_ ids: Set<ObserverID>, of clientName: ClientName, effects: inout [Effect]) {
        defer { eventEnded() }
        guard let client = clients[clientName] else { return }
        meter.count(ids.count)
        let revoked = ids.filter { client.observers[$0] != nil }
        guard !revoked.isEmpty else { return }
        changeSuspension(of: client, effects: &effects) { remove(revoked, of: $0) }
        remember(.observersRevoked(clientName, revoked), effects: &effects)
        client.oweRevocation(of: revoked)
        tellRevocation(to: client, effects: &effects)
        tellInterest(effects: &effects)
    }

    /// Tells a client that reads what policy took from it, if it does not know. One that does not read is told when it does.
    func tellRevocation(to client: Client, effects: inout [Effect]) {
        forgetRevocation(knownTo: client, effects: &effects)
        guard let revocation = client.revocation, !revocation.untold.isEmpty else { return }
        guard client.reads else { return findWitness(for: client.peer, effects: &effects) }
        meter.countSort(of: revocation.untold.count)
        effects.append(.revoked(client.name, observers: revocation.untold.sorted()))
        countSent(Self.signalSize + 8 * revocation.untold.count, to: client.peer, effects: &effects)
        client.revocation?.untold = []
        client.revocation?.sentWhenTold = client.sentBytes
    }

    /// Forgets what policy took from a client that has confirmed what it was told of it.
    func forgetRevocation(knownTo client: Client, effects: inout [Effect]) {
        guard let revocation = client.revocation, revocation.untold.isEmpty,
            revocation.sentWhenTold <= client.peer.surelyConfirmedBytes
        else { return }
        client.revocation = nil
        remember(.revocationsKnown(client.name), effects: &effects)
    }

    func remove(_ ids: Set<ObserverID>, of client: Client) {
        for id in ids {
            guard let registered = client.observers.removeValue(forKey: id) else { continue }
            release(registered, of: client)
        }
        invariant(
            client.refusalsOfAutomation >= 0 && client.refusalsOfAutomation <= client.observers.count,
            "A2: only observers that there are refuse automatic suspension")
        meter.count(ids.count)
        let wasOwed = client.owed.hasReady
        if !client.owed.isEmpty { for id in ids { client.owed.remove(id) } }
        // Without observers nothing is for it, and nothing has to be looked through.
        changeQueue(of: client) { [isEmpty = client.observers.isEmpty] queue in
            if isEmpty { queue.removeAll() } else { queue.remove(ids) }
        }
        // Notifications that waited for the values have lost their turns to them.
        if wasOwed, !client.owed.hasReady { giveTurns(to: client) }
    }

    private func release(_ registered: Registered, of client: Client) {
        let registration = registered.registration
        if !registration.options.automaticSuspension { client.refusalsOfAutomation -= 1 }
        if registration.options.isMonitor {
            client.monitors -= 1
        } else {
            noteInterest(interest.remove(registration.name, of: client.number))
        }
        if registration.options.minimumInterval > 0 { client.observersWithInterval -= 1 }
        charge(client.peer, .observers, -1)
        #if CARILLON_PLANTED
            let isCounted = !PlantedFault.strikes(.uncountedObservers)
        #else
            let isCounted = true
        #endif
        if isCounted { charge(client.peer, .observerBytes, -registration.byteCount) }
        index.remove(at: registered.position)
        for text in [registration.name, registration.object] { text.map { observedTexts.remove($0) } }
    }

    /// Whether more goes with a client that leaves than one event may do.
    public func takesPartsToLeave(_ name: ClientName) -> Bool {
        guard let client = clients[name] else { return false }
        return client.observers.count + client.queue.count + retained.count(ofConnection: name) > Self.partSize / 2
    }

    /// The client left the bus, and what it had goes later. From now on it is sent nothing.
    public func noteLeft(_ name: ClientName) {
        clients[name]?.presence = .leaving
    }

    /// The client left the bus: a part of what it had goes, until it returns false and ``clientDisappeared(_:effects:)`` is
    /// due. From the first part on it is sent nothing.
    public func takeApart(_ name: ClientName, effects: inout [Effect]) -> Bool {
        defer { eventEnded() }
        guard let client = clients[name] else { return false }
        client.presence = .leaving
        client.owed = RetainedReplays()
        // Notifications that wait name observers, so they go first.
        changeQueue(of: client) { $0.removeSome(Self.partSize) }
        guard client.queue.isEmpty else { return true }
        let removed = client.observers.prefix(Self.partSize / 4)
        meter.count(Self.stepsOfRemoval * removed.count)
        for (id, registered) in removed {
            client.observers[id] = nil
            release(registered, of: client)
        }
        tellInterest(effects: &effects)
        removeRetained(ofConnection: name, atMost: Self.partSize / 4, effects: &effects)
        return takesPartsToLeave(name)
    }

    /// The cost of an observer that goes: it stands in several tables, by its name and its object.
    private static let stepsOfRemoval = 16

    /// The client left the bus: everything that it had goes (D8).
    public func clientDisappeared(_ name: ClientName, effects: inout [Effect]) {
        defer { eventEnded() }
        guard let client = clients[name] else {
            if let peer = peers[name] { forget(stranger: peer, effects: &effects) }
            return unblock(effects: &effects)
        }
        forget(client)
        removeRetained(ofConnection: name, effects: &effects)
        releaseAtExit(of: name)
        unblock(effects: &effects)
        remember(.clientGone(name), effects: &effects)
        effects.append(.forget(name))
        tellInterest(effects: &effects)
    }

    func forget(_ client: Client) {
        clients[client.name] = nil
        client.presence = .gone
        interestFollowers.remove(client.number)
        valueFollowers.remove(client.number)
        meter.count(client.observers.count + client.owed.count + client.queue.count)
        for registered in client.observers.values { release(registered, of: client) }
        client.observers = [:]
        client.owed = RetainedReplays()
        // Its turns come and are void.
        changeQueue(of: client) { $0.removeAll() }
        charge(client.peer, .clients, -1)
        client.peer.isClient = false
        forget(client.peer)
        freeNumbers.append(client.number)
    }

    /// The client of this name; a new one is watched, and probed, so that its first answer comes before it matters.
    func client(_ name: ClientName, effects: inout [Effect]) throws(CenterError) -> Client {
        if let client = clients[name] { return client }
        try checkRoom(for: peers[name], .clients, adding: 1)
        let client = makeClient(name)
        remember(.client(name, client.counts), effects: &effects)
        watch(client, effects: &effects)
        return client
    }

    func client(of peer: Peer) -> Client? { peer.isClient ? clients[peer.name] : nil }

    func makeClient(_ name: ClientName) -> Client {
        let peer = peer(name)
        let client = Client(
            peer, number: freeNumbers.popLast() ?? clients.count, isAutomationOn: suspendsAutomatically, meter: meter)
        peer.isClient = true
        client.isLeftToNext = isEnding
        clients[name] = client
        charge(peer, .clients, 1)
        return client
    }

    func watch(_ client: Client, effects: inout [Effect]) {
        client.isWatched = true
        effects.append(.watch(client.name))
        probe(client.peer, effects: &effects)
    }

    // MARK: Looking

    public var statistics: Statistics {
        var statistics = counters
        statistics.clients = UInt64(clients.count)
        statistics.observers = UInt64(index.count)
        statistics.queuedPosts = UInt64(postingQueues.count)
        statistics.queuedBytes = UInt64(totals[.queuedBytes])
        statistics.intervalBytes = UInt64(totals[.intervalBytes])
        statistics.queuedPostBytes = UInt64(totals[.queuedPostBytes])
        statistics.inFlightBytes = UInt64(totals[.inFlightBytes])
        statistics.answerBytes = UInt64(totals[.answerBytes])
        statistics.retained = UInt64(totals[.retained])
        statistics.retainedBytes = UInt64(totals[.retainedBytes])
        statistics.waitingCallBytes = UInt64(waitingCallBytes)
        statistics.observerBytes = UInt64(totals[.observerBytes])
        statistics.memoryBytes = UInt64(heldBytes)
        return statistics
    }

    /// A number that grows with each observer that is registered.
    public var registeredCount: UInt64 { index.orderOfNext }

    /// Every client, and who else does not read what it was sent, in no particular order.
    public var clientStatuses: [ClientStatus] {
        defer { eventEnded() }
        meter.count(peers.count)
        let statuses = peers.values.compactMap { peer in
            peer.isClient || peer.flow.state != .open ? ClientStatus(peer, client(of: peer)) : nil
        }
        meter.countSort(of: statuses.count)
        // In the order in which they connected.
        return statuses.sorted { $0.name.isOlder(than: $1.name) }
    }

    /// Connections that have posted, those with the most accepted posts first.
    ///
    /// They are counted with the connections that call, so there are no more than clients, those that pay for values, and as
    /// many strangers as are remembered (E4). Of strangers nobody says when they leave: they are here until they are forgotten.
    ///
    /// - Parameters:
    ///   - most: how many are wanted at most.
    ///   - isWanted: whether one is; asked about each that has posted.
    public func posterStatuses(most: Int, where isWanted: (ClientName) -> Bool) -> [PosterStatus] {
        defer { eventEnded() }
        meter.count(peers.count)
        let posters = peers.values.compactMap(PosterStatus.init).filter { isWanted($0.name) }
        meter.countSort(of: posters.count)
        return Array(posters.sorted { $0.precedes($1) }.prefix(most))
    }

    /// Posts of a connection were refused, by the center or before they came here.
    public func postWasRefused(of poster: ClientName, count: UInt64 = 1) {
        peers[poster]?.refused += count
    }

    /// What `client` was sent so far: of its losses, those that it was told of.
    public func toldCounts(of client: ClientName) -> ClientCounts? { clients[client]?.toldCounts }

    /// How many notifications wait for `client`, or were lost without its having been told.
    public func waiting(for client: ClientName) -> UInt64 {
        clients[client].map { UInt64($0.queue.count) + ($0.unreportedLoss?.count ?? 0) } ?? 0
    }

    /// The registrations of `client`, in their order; nil when the center does not know it.
    public func registrations(of client: ClientName) -> [Registration]? {
        defer { eventEnded() }
        return clients[client].map { client in
            meter.countSort(of: client.observers.count)
            return client.observers.values.map(\.registration).sorted { $0.id < $1.id }
        }
    }
}
