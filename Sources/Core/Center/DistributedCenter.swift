// SPDX-License-Identifier: Apache-2.0
import CarillonCollections

/// The core of the service: the rules of distributed notifications as one state machine (parts N, D, S and E of
/// `docs/semantics.md`).
///
/// An event is a method call: a call of a client, a departure, an acknowledgment, the end of a timer. The driver
/// (`CenterDriver` in the service) makes these calls in the order in which the bus carried their causes. The center
/// appends its decisions to the list `effects`, and the driver carries them out. The center does no input or output and
/// owns no timer or thread. All calls must come from one thread.
///
/// After every event the driver sends the scheduled notifications: ``sendReady(upTo:limit:effects:)``.
///
/// Words in all extensions:
///
/// - A **peer** is a connection that the center has state of. A **client** is a watched peer with state that ends with
///   its connection: registrations, options, a channel, an at-exit post, a `while-connected` value, a suspension, or
///   followed lists.
/// - A client **reads** while the center may send to it (``Client/reads``): above all, its window is not used up.
/// - A **slot** is an entry of the send schedule: it lets its client send one due notification or batch.
/// - To **remember** a change is to write it to the recovery log.
/// - `meter` counts the steps of an event for the tests of E8. It has no effect on the rules.
///
/// This file has registrations, departures and status. The extensions have the rest:
///
/// - `+Posting`: matching and routing of a post. `+PostingQueue`: posts that wait in their poster's queue.
///   `+Intervals`: minimum intervals.
/// - `+Delivery`: queues, their limits and losses. `+Sending`: the send schedule. `+Suspension` and `+Activity`:
///   suspension.
/// - `+Flow`: windows and the in-flight quota. `+Carrying`: losses on the bus. `+Channels` and `+Replies`: clients with
///   channels.
/// - `+Calling`: waiting calls. `+Backpressure`: backpressure on posters. `+Accounting` and `+Excess`: quotas.
/// - `+Retained`: retained values. `+Following`: followers of interest and of values. `+Explaining`: explanations.
/// - `+Recovery`: restart and recovery. `+Options` and `+Memory`: options of clients, unused memory. `+Invariants`:
///   conditions that hold between events.
///
/// The state that each delivery touches is marked `@exclusivity(unchecked)` in release builds without the meter. Each
/// delivery has some fifty exclusivity checks, which took a sixth of the service's time for it. The marks are safe:
/// there is one thread, and no access to such a value calls back into the center. Tests and the simulation run builds
/// that keep the checks.
public final class DistributedCenter {
    /// The limits in effect. After a change call ``limitsChanged(effects:)``.
    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    public var limits: Limits
    /// Whether restored clients are sent nothing before ``identify(_:as:identity:effects:)``. Before that call policy
    /// revokes the observers that it no longer allows (P3). Set it before ``finishRestoring(effects:)``.
    public var restoresOnlyIdentified = false
    /// All observers, for matching by name and object.
    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    var index = ObserverIndex<ExactText, ExactText, Observer>()
    /// A filter of the names and objects of all registrations. The service's call queue asks it whether a post that it
    /// has no space for may have observers.
    public internal(set) var observedTexts = TextFilter()
    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    var clients: [ClientName: Client] = [:]
    /// Whether the index has observers in the order of their numbers. It is false while observers are being restored in
    /// another order.
    var isIndexInOrder = true
    /// The connections that the center has state of: clients, and others that use a resource.
    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    var peers: [ClientName: Peer] = [:]
    var accountsByID: [AccountID: Account] = [:]
    /// The accounts by the size of their clients' queues. The largest account loses notifications first.
    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    var accounts = LargestFirst<Account>()
    /// The usage of all connections together.
    var totals = Usage()
    /// The part of ``totals`` that does not count against lowered limits (``Excess``).
    var excess = Usage()
    /// For each resource, the state of a limit that was lowered below the usage.
    var lowered: [Resource: Lowered] = [:]
    /// Whether ``excess`` has changed since it was last written to the recovery log.
    var isExcessToRemember = false
    /// Clients under backpressure: their queues are half full although they read. Some may have left or been suspended
    /// since the last ``checkBackpressure()``.
    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    var congested: [Client] = []
    /// The source of the times of posts and of expiry.
    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    public var clock = Clock.stopped
    /// The size in bytes from which a notification with its observers may be too large for a message on the bus. A
    /// notification of this size or more is reported to its client as lost.
    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    public var maxBytes = Int.max
    /// The names that observers want, for followers of interest.
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
    /// Connections that are not clients, kept for unacknowledged replies or for their posts, the oldest first. Some may
    /// be forgotten or may have become clients since.
    var unregisteredPeers = Deque<Peer>()
    /// The work of the present event that all clients share (E8).
    var spent = SpentInEvent()
    /// Whether an event could not discard enough to bring the queues within `queued-bytes`, so that
    /// ``reclaimMemory(effects:)`` must continue. A lowered limit alone does not set it: the queues stay until they grow.
    var isReclaimPending = false
    /// The approximate number of forgotten connections in ``unregisteredPeers``, which decides when that list is
    /// compacted. Connections that left the list otherwise are not subtracted.
    var forgottenUnregistered = 0
    /// Connections with calls that wait to be served. Some are in no other table: their peer is kept only for the
    /// calls.
    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    var waitingCallers: [ClientName: Peer] = [:]
    /// Connections with posts that have arrived in part on their channel.
    var partHolders: [ClientName: Peer] = [:]
    /// The waiting caller that was looked up last: a cache, because a flood comes from few callers.
    var lastWaitingCaller: Peer?
    /// Whether the in-flight quota is low, so that connections are probed before their windows are full.
    var isQuotaLow = false
    /// The counters of events. The present usage is added in ``statistics``.
    var counters = Statistics()
    /// The greatest serial that was assigned to a post, including posts without a receiver.
    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    public internal(set) var lastSerial: UInt64 = 0
    /// The greatest number that was assigned to an observer.
    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    public internal(set) var lastObserver: UInt64 = 0
    /// The greatest epoch that was assigned to a change of activity (S5).
    var lastActivityEpoch: UInt64 = 0
    /// Whether the configuration lets inactivity suspend clients; ``setAutomaticSuspension(_:effects:)``.
    public internal(set) var suspendsAutomatically = true
    /// Whether the driver wants ``Effect/remember(_:)``: false without a recovery log.
    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    public var remembersChanges = false
    /// Whether notifications are logged although they are only scheduled, and thus about to be sent. That is so while a
    /// post leaves a posting queue or replaces accepted posts: after a crash it must be in one place.
    var remembersScheduled = false
    /// Whether the process is about to end (``beginEnding(effects:)``).
    var isEnding = false
    /// The order in which due notifications are sent.
    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    var schedule: SendSchedule
    /// Whether all slots of the send schedule are being processed.
    var isDraining = false
    /// The clients whose replays of values get their next slots when ``isDraining`` ends.
    var replaysWhileDraining: [Client] = []
    /// Clients whose sending stopped because one event may remove no more expired notifications and values. The next
    /// event continues with them.
    var waitingForNextEvent: [Client] = []
    /// The ids of notifications that came from other sessions of the machine (G1), to detect duplicates.
    var arrivals = Arrivals()
    /// An empty value whose memory is reused for the matches of the next post.
    var spareMatches = Matches()
    /// The bytes that the driver holds in queues for other sessions. They count in the total memory.
    public var bytesForSessions = 0
    /// The numbers of departed clients (``Client/number``), for new clients.
    private var freeNumbers: [Int] = []
    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    var postingQueues: PostingQueues
    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    var retained: RetainedValues
    /// The departed connections whose values are removed first when space is needed.
    var departed = DepartedPayers()
    /// Whether debug builds check the invariants at the ends of events; ``checkInvariants()``.
    package var checksInvariants = true
    /// The number of events since the last check of all invariants.
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

    /// The greatest numbers that were assigned to posts and to observers. The recovery store reserves numbers beyond
    /// them, so that a later process assigns none of them again.
    public var lastNumbers: (serial: UInt64, observer: UInt64) { (lastSerial, lastObserver) }

    public func limit(_ key: Limits.Key) -> UInt64 { limits[key] }

    // MARK: Observers (D2, D8)

    /// Registers an observer of `client`. The empty string means any name, or any object. The observer may get a replay
    /// of retained values.
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
        try checkCapacity(for: peer, .observers, adding: 1)
        try limits.check(.observersPerClient, (peer?.usage[.observers] ?? 0) + 1)
        try checkCapacity(for: peer, .observerBytes, adding: size)
        try limits.check(.observerBytesPerClient, (peer?.usage[.observerBytes] ?? 0) + size)
        let client = try client(clientName, effects: &effects)
        lastObserver += 1
        let id = registration.id
        // An observer that refuses automatic suspension may resume the client. The notifications that were held until
        // then do not go to the new observer.
        changeSuspension(of: client, effects: &effects) { insert(registration, of: $0) }
        remember(.observer(registration), effects: &effects)
        announceInterest(effects: &effects)
        if options.wantsRetained { beginReplay(registration, to: client, effects: &effects) }
        return id
    }

    /// Adds a registration to the client, the index and all counts, without an announcement.
    func insert(_ registration: Registration, of client: Client) {
        let position = index.insert(
            Observer(registration, of: client), name: registration.name.map(ExactText.init),
            object: registration.object.map(ExactText.init))
        for text in [registration.name, registration.object] { text.map { observedTexts.insert($0) } }
        client.observers[registration.id] = RegisteredObserver(registration: registration, position: position)
        if !registration.options.automaticSuspension { client.refusalsOfAutomation += 1 }
        if registration.options.isMonitor {
            client.monitors += 1
        } else {
            noteInterest(interest.add(registration.name, of: client.number))
        }
        if registration.options.minimumInterval > 0 { client.observersWithInterval += 1 }
        charge(client.peer, .observers, 1)
        // Code under CARILLON_PLANTED injects a fault, in builds that test whether the simulation finds it (E7).
        #if CARILLON_PLANTED
            if PlantedFault.strikes(.uncountedObservers) { return }
        #endif
        charge(client.peer, .observerBytes, registration.byteCount)
    }

    /// Removes one observer of `client`, also from the notifications in the client's queue.
    ///
    /// - Throws: ``CenterError/unknownObserver(_:)`` when the client has no observer with this number. An observer of
    ///   another client counts as unknown.
    public func removeObserver(
        _ id: ObserverID, of clientName: ClientName, effects: inout [Effect]
    ) throws(CenterError) {
        defer { eventEnded() }
        guard let client = clients[clientName], client.observers[id] != nil else { throw .unknownObserver(id) }
        changeSuspension(of: client, effects: &effects) { remove([id], of: $0) }
        remember(.observersRemoved(clientName, [id]), effects: &effects)
        announceInterest(effects: &effects)
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
        announceInterest(effects: &effects)
        return ids.count
    }

    /// Removes observers of `client` that policy no longer allows (P2), and announces that to the client. Numbers in
    /// `ids` that are not its observers are ignored.
    public func revoke(_ ids: Set<ObserverID>, of clientName: ClientName, effects: inout [Effect]) {
        defer { eventEnded() }
        guard let client = clients[clientName] else { return }
        meter.count(ids.count)
        let revoked = ids.filter { client.observers[$0] != nil }
        guard !revoked.isEmpty else { return }
        changeSuspension(of: client, effects: &effects) { remove(revoked, of: $0) }
        remember(.observersRevoked(clientName, revoked), effects: &effects)
        client.addRevocation(of: revoked)
        announceRevocation(to: client, effects: &effects)
        announceInterest(effects: &effects)
    }

    /// Announces revoked observers to a client that reads, unless it was done. A client that does not read gets the
    /// announcement when it reads again.
    func announceRevocation(to client: Client, effects: inout [Effect]) {
        forgetRevocation(knownTo: client, effects: &effects)
        guard let revocation = client.revocation, !revocation.unannounced.isEmpty else { return }
        guard client.reads else { return probeBacklogIfNeeded(for: client.peer, effects: &effects) }
        meter.countSort(of: revocation.unannounced.count)
        effects.append(.revoked(client.name, observers: revocation.unannounced.sorted()))
        countSent(Self.signalSize + 8 * revocation.unannounced.count, to: client.peer, effects: &effects)
        client.revocation?.unannounced = []
        client.revocation?.sentBytesWhenAnnounced = client.sentBytes
    }

    /// Forgets the revocations once the client has acknowledged their announcement.
    func forgetRevocation(knownTo client: Client, effects: inout [Effect]) {
        guard let revocation = client.revocation, revocation.unannounced.isEmpty,
            revocation.sentBytesWhenAnnounced <= client.peer.surelyConfirmedBytes
        else { return }
        client.revocation = nil
        remember(.revocationsKnown(client.name), effects: &effects)
    }

    /// Removes observers from the client, the index, its replays and its queue, without an announcement.
    func remove(_ ids: Set<ObserverID>, of client: Client) {
        for id in ids {
            guard let registered = client.observers.removeValue(forKey: id) else { continue }
            release(registered, of: client)
        }
        invariant(
            client.refusalsOfAutomation >= 0 && client.refusalsOfAutomation <= client.observers.count,
            "A2: the count of observers that refuse automatic suspension is within the number of observers")
        meter.count(ids.count)
        let hadReplays = client.replays.hasReady
        if !client.replays.isEmpty { for id in ids { client.replays.remove(id) } }
        // Without observers the client can receive nothing, so the queue is emptied without a search.
        changeQueue(of: client) { [isEmpty = client.observers.isEmpty] queue in
            if isEmpty { queue.removeAll() } else { queue.remove(ids) }
        }
        // While a replay was pending, it used the slots of the notifications behind it. Without the replay these need
        // new slots.
        if hadReplays, !client.replays.hasReady { giveSlots(to: client) }
    }

    /// Removes an observer from the index and from all counts.
    private func release(_ registered: RegisteredObserver, of client: Client) {
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

    /// Whether the client has more state than ``clientDisappeared(_:effects:)`` may remove in one event: half a slice.
    /// Then the driver calls ``removeSlice(_:effects:)`` before it.
    public func leavesInSlices(_ name: ClientName) -> Bool {
        guard let client = clients[name] else { return false }
        return client.observers.count + client.queue.count + retained.count(ofConnection: name) > Self.sliceSize / 2
    }

    /// Marks a client that left the bus and whose state is removed later. From now on the center sends it nothing.
    public func noteLeft(_ name: ClientName) {
        clients[name]?.presence = .leaving
    }

    /// Removes a slice of the state of a client that left the bus. From the first slice on the center sends it nothing.
    ///
    /// - Returns: whether another slice is needed. After false the driver calls ``clientDisappeared(_:effects:)``,
    ///   which removes the rest.
    public func removeSlice(_ name: ClientName, effects: inout [Effect]) -> Bool {
        defer { eventEnded() }
        guard let client = clients[name] else { return false }
        client.presence = .leaving
        client.replays = RetainedReplays()
        // Queued notifications refer to observers, so they are removed first.
        changeQueue(of: client) { $0.removeSome(Self.sliceSize) }
        guard client.queue.isEmpty else { return true }
        // A slice has fewer observers and values, because each is in several tables.
        let removed = client.observers.prefix(Self.sliceSize / 4)
        meter.count(Self.stepsOfRemoval * removed.count)
        for (id, registered) in removed {
            client.observers[id] = nil
            release(registered, of: client)
        }
        announceInterest(effects: &effects)
        removeRetained(ofConnection: name, atMost: Self.sliceSize / 4, effects: &effects)
        return leavesInSlices(name)
    }

    /// The meter's steps for the removal of one observer, which is in several tables by name and by object.
    private static let stepsOfRemoval = 16

    /// Handles the departure of a connection from the bus: forgets it with all of its state (D8), and releases its last
    /// wills. The in-flight bytes of the connection are free then, and may unblock others.
    public func clientDisappeared(_ name: ClientName, effects: inout [Effect]) {
        defer { eventEnded() }
        guard let client = clients[name] else {
            // It is no client, such as a payer of values (``Effect/watchDeparture(_:)``). Only clients have last wills.
            if let peer = peers[name] { forget(unregistered: peer, effects: &effects) }
            return unblock(effects: &effects)
        }
        forget(client)
        removeRetained(ofConnection: name, effects: &effects)
        releaseAtExit(of: name)
        unblock(effects: &effects)
        remember(.clientGone(name), effects: &effects)
        effects.append(.forget(name))
        announceInterest(effects: &effects)
    }

    /// Removes a client with its observers, queue and replays from all tables and counts.
    func forget(_ client: Client) {
        clients[client.name] = nil
        client.presence = .gone
        interestFollowers.remove(client.number)
        valueFollowers.remove(client.number)
        meter.count(client.observers.count + client.replays.count + client.queue.count)
        for registered in client.observers.values { release(registered, of: client) }
        client.observers = [:]
        client.replays = RetainedReplays()
        // Its slots in the send schedule remain, and send nothing.
        changeQueue(of: client) { $0.removeAll() }
        charge(client.peer, .clients, -1)
        client.peer.isClient = false
        forget(client.peer)
        freeNumbers.append(client.number)
    }

    /// Returns the client of this name, or makes the connection a client. A new client is watched, and probed at once,
    /// so that its first acknowledgment comes before a window is full.
    ///
    /// - Throws: ``CenterError/limitExceeded(_:value:)`` or ``CenterError/shareExceeded(_:value:)`` when there are too
    ///   many clients.
    func client(_ name: ClientName, effects: inout [Effect]) throws(CenterError) -> Client {
        if let client = clients[name] { return client }
        try checkCapacity(for: peers[name], .clients, adding: 1)
        let client = makeClient(name)
        remember(.client(name, client.counts), effects: &effects)
        watch(client, effects: &effects)
        return client
    }

    func client(of peer: Peer) -> Client? { peer.isClient ? clients[peer.name] : nil }

    /// Makes a connection a client, without a check of limits.
    func makeClient(_ name: ClientName) -> Client {
        let peer = peer(name)
        let client = Client(
            peer, number: freeNumbers.popLast() ?? clients.count, isAutomationOn: suspendsAutomatically, meter: meter)
        peer.isClient = true
        client.isHandedOver = isEnding
        clients[name] = client
        charge(peer, .clients, 1)
        return client
    }

    /// Asks the driver to report the client's departure, and probes the client.
    func watch(_ client: Client, effects: inout [Effect]) {
        client.isWatched = true
        effects.append(.watch(client.name))
        probe(client.peer, effects: &effects)
    }

    // MARK: Status

    /// The counters, and the present usage of each resource.
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

    /// A number that grows with each registration. The driver can tell by it that observers were added.
    public var registeredCount: UInt64 { index.orderOfNext }

    /// All clients, and other connections whose flow state is not ``FlowState/open``, the oldest connection first.
    public var clientStatuses: [ClientStatus] {
        defer { eventEnded() }
        meter.count(peers.count)
        let statuses = peers.values.compactMap { peer in
            peer.isClient || peer.flow.state != .open ? ClientStatus(peer, client(of: peer)) : nil
        }
        meter.countSort(of: statuses.count)
        return statuses.sorted { $0.name.isOlder(than: $1.name) }
    }

    /// Returns connections that have posted, the most accepted posts first.
    ///
    /// The center counts posts only for connections that it keeps: clients, payers of retained values, and the newest
    /// other unregistered peers (E4). The departure of these others is not watched, so they may still be listed.
    ///
    /// - Parameters:
    ///   - most: the maximum number of posters.
    ///   - isWanted: whether to include a poster; called for each connection that has posted.
    public func posterStatuses(most: Int, where isWanted: (ClientName) -> Bool) -> [PosterStatus] {
        defer { eventEnded() }
        meter.count(peers.count)
        let posters = peers.values.compactMap(PosterStatus.init).filter { isWanted($0.name) }
        meter.countSort(of: posters.count)
        return Array(posters.sorted { $0.precedes($1) }.prefix(most))
    }

    /// Counts posts of a connection that were refused, by the center or by the driver before.
    public func postWasRefused(of poster: ClientName, count: UInt64 = 1) {
        peers[poster]?.refused += count
    }

    /// The counts of deliveries and losses of `client`, without losses that were not reported to it.
    public func announcedCounts(of client: ClientName) -> ClientCounts? { clients[client]?.announcedCounts }

    /// The number of notifications that wait for `client`, plus its unreported losses.
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
