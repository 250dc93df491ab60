// SPDX-License-Identifier: Apache-2.0
import CarillonCollections

/// The state machine of the distributed center: the rules of parts N, D, S and E of `docs/semantics.md`.
///
/// Events are method calls, in the order in which the bus carried them. Decisions come out as ``Effect`` values. The
/// center does no input or output and owns no timer or thread. All calls must come from one thread.
///
/// This file has registrations and status. The extensions have the rest:
///
/// - `+Posting`: matching and routing of a post. `+PostingQueue`: posts that wait for their style. `+Intervals`:
///   minimum intervals.
/// - `+Delivery`: queues and their limits. `+Sending`: the send schedule. `+Suspension` and `+Activity`: suspension.
/// - `+Flow`: windows and the in-flight quota. `+Carrying`: losses by the bus. `+Channels` and `+Replies`: clients with
///   channels.
/// - `+Calling`: waiting calls. `+Backpressure`: backpressure on posters. `+Accounting` and `+Excess`: quotas.
/// - `+Retained`: retained values. `+Following`: followers of interest and of values. `+Explaining`: explanations.
/// - `+Recovery`: restart and recovery. `+Invariants`: conditions that hold between events.
///
/// After every event the driver sends the scheduled notifications: ``sendReady(upTo:limit:effects:)``.
///
/// The state that each delivery touches is marked `@exclusivity(unchecked)` in release builds without the meter. A
/// delivery has some fifty such checks, which took a sixth of the service's time for it. Overlapping accesses cannot
/// escape the builds that keep the check: an access lasts as long as a method of a value that does not know the center,
/// and there is one thread. Tests and the simulation run builds with the check.
public final class DistributedCenter {
    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    public var limits: Limits
    /// Whether restored clients are sent nothing before ``identify(_:as:identity:effects:)``. By then policy has
    /// revoked the observers that it no longer allows (P3). Set before ``finishRestoring(effects:)``.
    public var restoresOnlyIdentified = false
    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    var index = ObserverIndex<ExactText, ExactText, Observer>()
    /// The names and objects of all registrations.
    public internal(set) var observedTexts = TextFilter()
    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    var clients: [ClientName: Client] = [:]
    /// Whether the index has observers in the order of their numbers; false while observers are being restored.
    var isIndexInOrder = true
    /// The connections that the center keeps: clients, and other connections that use a resource.
    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    var peers: [ClientName: Peer] = [:]
    var accountsByID: [AccountID: Account] = [:]
    /// The accounts by the size of the queues of their clients.
    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    var accounts = LargestFirst<Account>()
    /// The usage of all connections together.
    var totals = Usage()
    /// The part of ``totals`` that does not count against lowered limits.
    var excess = Usage()
    var lowered: [Resource: Lowered] = [:]
    /// Whether ``excess`` has changed since it was last logged.
    var isExcessToRemember = false
    /// Clients under backpressure: their queues are half full although they read. Some may have left or been suspended
    /// since.
    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    var congested: [Client] = []
    /// The source of the times of posts.
    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    public var clock = Clock.stopped
    /// The size from which the bus is not known to carry a notification with its observers, in bytes. A notification of
    /// this size or more is reported to its client as lost.
    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    public var maxBytes = Int.max
    var interest: Interest
    /// Clients that follow the interest of other clients (G4).
    var interestFollowers = Followers()
    /// Clients that follow the retained values (G5).
    var valueFollowers = Followers()
    /// Connections that are blocked on the in-flight quota.
    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    var blockedOnQuota = BlockedOnQuota()
    /// Whether ``unblock(effects:)`` is running.
    var isUnblocking = false
    /// Connections without registrations that are kept for unacknowledged replies or for their posts, the oldest first.
    /// Some may be forgotten or may have become clients.
    var unregisteredPeers = Deque<Peer>()
    /// The work of the current event that has a bound for each event (E8).
    var spent = SpentInEvent()
    /// Whether an event ended with the queues over their total limit.
    var owesRoom = false
    /// The approximate number of forgotten connections in ``unregisteredPeers``.
    var forgottenUnregistered = 0
    /// Connections with calls that wait to be served, including connections that are otherwise forgotten.
    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    var waitingCallers: [ClientName: Peer] = [:]
    /// Connections with partly received posts.
    var partHolders: [ClientName: Peer] = [:]
    /// The waiting caller that was looked up last, as a flood comes from few callers.
    var lastWaitingCaller: Peer?
    /// Whether the in-flight quota is low, so that connections are probed early.
    var isQuotaLow = false
    var counters = Statistics()
    /// The greatest serial that was assigned, including posts without a receiver.
    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    public internal(set) var lastSerial: UInt64 = 0
    /// The greatest number that was assigned to an observer.
    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    public internal(set) var lastObserver: UInt64 = 0
    var lastActivityEpoch: UInt64 = 0
    /// Whether the configuration lets activity suspend clients; ``setAutomaticSuspension(_:effects:)``.
    public internal(set) var suspendsAutomatically = true
    /// Whether the driver wants ``Effect/remember(_:)``.
    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    public var remembersChanges = false
    /// Whether scheduled notifications are logged too. That is so for a post that leaves a posting queue, or replaces
    /// accepted posts.
    var remembersStaged = false
    /// Whether the process is about to end (``beginEnding(effects:)``).
    var isEnding = false
    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    var schedule: SendSchedule
    /// Whether all slots of the send schedule are being processed, and the clients whose replays continue after that.
    var isDraining = false
    var replaysWhileDraining: [Client] = []
    /// Clients with more expired notifications than one event may remove. They continue with the next event.
    var waitingForNextEvent: [Client] = []
    /// The identities of notifications that came from other sessions of the machine (G1), to detect duplicates.
    var arrivals = Arrivals()
    /// An empty value whose memory is reused from post to post.
    var spareMatches = Matches()
    /// The bytes that the driver holds for other sessions. They count in the total memory.
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
    /// Whether debug builds check the invariants at the end of events; ``checkInvariants()``.
    package var checksInvariants = true
    var eventsSinceCheck = 0
    /// The counter of the steps of events (E8).
    package let meter = StepMeter()

    public init(limits: Limits = Limits()) {
        self.limits = limits
        interest = Interest(meter: meter)
        schedule = SendSchedule(meter: meter)
        postingQueues = PostingQueues(meter: meter)
        retained = RetainedValues(meter: meter)
    }

    deinit {
        // Accounts and their clients hold each other.
        for account in accountsByID.values {
            account.clients = LargestFirst()
            account.blockedOnQuota = Deque()
        }
    }

    /// The greatest numbers that were assigned to posts and to observers.
    public var lastNumbers: (serial: UInt64, observer: UInt64) { (lastSerial, lastObserver) }

    public func limit(_ key: Limits.Key) -> UInt64 { limits[key] }

    // MARK: Observers (D2, D8)

    /// Registers an observer of `client`. The empty string means any name, or any object.
    ///
    /// - Throws: ``CenterError/limitExceeded(_:value:)`` or ``CenterError/shareExceeded(_:value:)``.
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
        // An observer that refuses automatic suspension may resume the client, and receives none of the earlier
        // notifications.
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

    /// Removes one observer of `client`, also from the notifications in the client's queue.
    ///
    /// - Throws: ``CenterError/unknownObserver(_:)`` when the client has no observer with this number, even if another
    ///   client has.
    public func removeObserver(
        _ id: ObserverID, of clientName: ClientName, effects: inout [Effect]
    ) throws(CenterError) {
        defer { eventEnded() }
        guard let client = clients[clientName], client.observers[id] != nil else { throw .unknownObserver(id) }
        changeSuspension(of: client, effects: &effects) { remove([id], of: $0) }
        remember(.observersRemoved(clientName, [id]), effects: &effects)
        tellInterest(effects: &effects)
    }

    /// Removes the observers of `client` that were registered for `name` and `object`, also from the notifications in
    /// its queue. The empty string means any name, or any object.
    ///
    /// - Returns: the number of removed observers.
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

    /// Removes observers of `client` that policy no longer allows (P2), and reports that to the client. Other numbers
    /// in `ids` are ignored.
    public func revoke(_ ids: Set<ObserverID>, of clientName: ClientName, effects: inout [Effect]) {
        defer { eventEnded() }
        guard let client = clients[clientName] else { return }
        meter.count(ids.count)
        let revoked = ids.filter { client.observers[$0] != nil }
        guard !revoked.isEmpty else { return }
        changeSuspension(of: client, effects: &effects) { remove(revoked, of: $0) }
        remember(.observersRevoked(clientName, revoked), effects: &effects)
        client.addRevocation(of: revoked)
        tellRevocation(to: client, effects: &effects)
        tellInterest(effects: &effects)
    }

    /// Reports revoked observers to a client that reads, unless it knows. A client that does not read gets the report
    /// when it reads again.
    func tellRevocation(to client: Client, effects: inout [Effect]) {
        forgetRevocation(knownTo: client, effects: &effects)
        guard let revocation = client.revocation, !revocation.unannounced.isEmpty else { return }
        guard client.reads else { return probeBacklogIfNeeded(for: client.peer, effects: &effects) }
        meter.countSort(of: revocation.unannounced.count)
        effects.append(.revoked(client.name, observers: revocation.unannounced.sorted()))
        countSent(Self.signalSize + 8 * revocation.unannounced.count, to: client.peer, effects: &effects)
        client.revocation?.unannounced = []
        client.revocation?.sentBytesWhenAnnounced = client.sentBytes
    }

    /// Forgets the revocations that the client has acknowledged.
    func forgetRevocation(knownTo client: Client, effects: inout [Effect]) {
        guard let revocation = client.revocation, revocation.unannounced.isEmpty,
            revocation.sentBytesWhenAnnounced <= client.peer.surelyConfirmedBytes
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
        let wasOwed = client.replays.hasReady
        if !client.replays.isEmpty { for id in ids { client.replays.remove(id) } }
        // Without observers the client can receive nothing, so the queue is emptied without a search.
        changeQueue(of: client) { [isEmpty = client.observers.isEmpty] queue in
            if isEmpty { queue.removeAll() } else { queue.remove(ids) }
        }
        // The replay has used up the slots of the notifications that waited behind it.
        if wasOwed, !client.replays.hasReady { giveSlots(to: client) }
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

    /// Whether the client has more state than one event may remove when it leaves.
    public func takesPartsToLeave(_ name: ClientName) -> Bool {
        guard let client = clients[name] else { return false }
        return client.observers.count + client.queue.count + retained.count(ofConnection: name) > Self.partSize / 2
    }

    /// Marks a client that left the bus and whose state is removed later. From now on it is sent nothing.
    public func noteLeft(_ name: ClientName) {
        clients[name]?.presence = .leaving
    }

    /// Removes a part of the state of a client that left the bus. From the first part on the client is sent nothing.
    ///
    /// - Returns: whether more is left. After false the driver calls ``clientDisappeared(_:effects:)``.
    public func takeApart(_ name: ClientName, effects: inout [Effect]) -> Bool {
        defer { eventEnded() }
        guard let client = clients[name] else { return false }
        client.presence = .leaving
        client.replays = RetainedReplays()
        // Queued notifications refer to observers, so they are removed first.
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

    /// The steps of the removal of an observer, which is in several tables by name and by object.
    private static let stepsOfRemoval = 16

    /// Forgets a client that left the bus, with all of its state (D8).
    public func clientDisappeared(_ name: ClientName, effects: inout [Effect]) {
        defer { eventEnded() }
        guard let client = clients[name] else {
            if let peer = peers[name] { forget(unregistered: peer, effects: &effects) }
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
        meter.count(client.observers.count + client.replays.count + client.queue.count)
        for registered in client.observers.values { release(registered, of: client) }
        client.observers = [:]
        client.replays = RetainedReplays()
        // Its slots in the send schedule remain, as tombstones.
        changeQueue(of: client) { $0.removeAll() }
        charge(client.peer, .clients, -1)
        client.peer.isClient = false
        forget(client.peer)
        freeNumbers.append(client.number)
    }

    /// Returns the client of this name. A new client is watched and probed at once, so that its first acknowledgment
    /// comes before a window is full.
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

    // MARK: Status

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

    /// A number that grows with each registered observer.
    public var registeredCount: UInt64 { index.orderOfNext }

    /// All clients, and other connections whose flow state is not ``FlowState/open``, the oldest connection first.
    public var clientStatuses: [ClientStatus] {
        defer { eventEnded() }
        meter.count(peers.count)
        let statuses = peers.values.compactMap { peer in
            peer.isClient || peer.flow.state != .open ? ClientStatus(peer, client(of: peer)) : nil
        }
        meter.countSort(of: statuses.count)
        // In the order in which the clients connected.
        return statuses.sorted { $0.name.isOlder(than: $1.name) }
    }

    /// Returns connections that have posted, those with the most accepted posts first.
    ///
    /// The center counts posts by connection. The posters are therefore clients, payers of retained values, and as many
    /// unregistered peers as are kept (E4). Nothing reports that an unregistered peer left: it is listed until it is
    /// forgotten.
    ///
    /// - Parameters:
    ///   - most: the maximum number of posters.
    ///   - isWanted: whether a poster is wanted; called for each connection that has posted.
    public func posterStatuses(most: Int, where isWanted: (ClientName) -> Bool) -> [PosterStatus] {
        defer { eventEnded() }
        meter.count(peers.count)
        let posters = peers.values.compactMap(PosterStatus.init).filter { isWanted($0.name) }
        meter.countSort(of: posters.count)
        return Array(posters.sorted { $0.precedes($1) }.prefix(most))
    }

    /// Counts refused posts of a connection, refused by the center or before they reached it.
    public func postWasRefused(of poster: ClientName, count: UInt64 = 1) {
        peers[poster]?.refused += count
    }

    /// The counts of `client`, without losses that were not reported to it.
    public func announcedCounts(of client: ClientName) -> ClientCounts? { clients[client]?.announcedCounts }

    /// The number of notifications that wait for `client`, and of its unreported losses.
    public func waiting(for client: ClientName) -> UInt64 {
        clients[client].map { UInt64($0.queue.count) + ($0.unreportedLoss?.count ?? 0) } ?? 0
    }

    /// The registrations of `client` in the order of their numbers; nil for an unknown client.
    public func registrations(of client: ClientName) -> [Registration]? {
        defer { eventEnded() }
        return clients[client].map { client in
            meter.countSort(of: client.observers.count)
            return client.observers.values.map(\.registration).sorted { $0.id < $1.id }
        }
    }
}
