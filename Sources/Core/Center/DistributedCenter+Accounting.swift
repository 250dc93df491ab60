// SPDX-License-Identifier: Apache-2.0
import CarillonCollections

/// Accounting of resources, and the shares of accounts in the totals (E1, E4).
///
/// An account is a process, a sandboxed application, or a connection without a known process. All state that a
/// connection makes the center hold is charged, at its size, to the connection, its account and the total. When the
/// state ends, the same amount is credited.
///
/// There are two kinds of resources:
///
/// - **Not reclaimable**, such as observers: a request beyond the total, or beyond the account's share of it, is
///   refused. A share is at most 7/8 of the part of the total that others do not use, so that others always find some
///   left.
/// - **Reclaimable**: queued notifications, and the values of departed posters. A request is accepted, and the center
///   discards from the account that has most of them when the total is over its limit.
extension DistributedCenter {
    /// Assigns a connection to the account of its process or sandbox, before its first call or later. Its usage moves
    /// to that account. From now on the center reports by ``Effect/forget(_:)`` when it forgets the connection.
    ///
    /// - Parameters:
    ///   - id: the account.
    ///   - identity: the poster's identity, which receivers can learn (P1); nil when unknown.
    public func identify(
        _ name: ClientName, as id: AccountID, identity: Identity? = nil, effects: inout [Effect]
    ) {
        defer { eventEnded() }
        let peer = peer(name, effects: &effects)
        peer.identity = identity
        peer.isIdentified = true
        if peer.account.id != id { move(peer, to: id, effects: &effects) }
        guard peer.awaitsIdentity else { return }
        peer.awaitsIdentity = false
        if let client = client(of: peer) { pump(client, effects: &effects) }
    }

    /// Moves a connection with its usage to another account. An account without connections and usage is forgotten.
    private func move(_ peer: Peer, to id: AccountID, effects: inout [Effect]) {
        let (before, after) = (peer.account, account(id))
        before.clients.remove(peer)
        before.usage -= peer.usage
        after.usage += peer.usage
        moveExcess(of: peer, from: before, to: after, effects: &effects)
        before.peers -= 1
        after.peers += 1
        peer.account = after
        // The entry in the queue of the old account is now obsolete, and ``BlockedOnQuota`` skips it.
        if peer.flow.isBlockedOnQuota { blockedOnQuota.append(peer) }
        after.clients.noteChange(of: peer)
        accounts.noteChange(of: before)
        accounts.noteChange(of: after)
        forgetIfUnused(before)
        // The move may have changed the excess, and changes the shares: blocked connections may have capacity now.
        updateQuotaLow(effects: &effects)
        unblock(effects: &effects)
    }

    /// The account that pays for a connection; nil for an unknown connection.
    public func account(of name: ClientName) -> AccountID? { peers[name]?.account.id }

    /// Whether the center has state of the connection.
    public func knows(_ name: ClientName) -> Bool { peers[name] != nil }

    /// Returns the peer of this name, or makes one with an account of its own.
    func peer(_ name: ClientName) -> Peer {
        if let peer = peers[name] { return peer }
        // After a restart the center considers the posters of values as gone until they call. Such a poster keeps its
        // values, so its old peer is used.
        let peer = retained.payer(named: name) ?? Peer(name: name, account: account(.connection(name)))
        peer.isKnown = true
        // Its values are those of a present connection again.
        if peer.departed != nil { noteDeparted(peer) }
        peer.account.peers += 1
        peers[name] = peer
        return peer
    }

    /// Forgets a connection that is not a client, uses nothing, and has no state in the driver: it was not identified
    /// and is not watched. Other connections end with ``forget(unregistered:effects:)``, which informs the driver.
    func forgetIfUnused(_ peer: Peer) {
        if peer.isKnown, !peer.isClient, peer.usage.isZero, !peer.isIdentified, !peer.isDepartureWatched {
            forget(peer)
        }
    }

    /// Removes a connection that is not a client from the tables of connections, and credits the usage that ends with
    /// it. Its queued posts, retained values and waiting calls remain, and remain charged to it.
    func forget(_ peer: Peer) {
        invariant(!peer.isClient, "D8: a client is forgotten before its connection")
        peers[peer.name] = nil
        peer.isKnown = false
        noteForgotten(peer)
        noteDeparted(peer)
        // The bus discards all in-flight messages to a connection that left, so nothing is in flight any more.
        charge(peer, .inFlightBytes, -peer.usage[.inFlightBytes])
        charge(peer, .answerBytes, -peer.usage[.answerBytes])
        // The rest of a partial post on its channel never arrives.
        releaseParts(of: peer)
        peer.answers = Deque()
        peer.replies = nil
        // A connection that is only considered gone may call again. The same peer then starts like a new connection,
        // without a window, acknowledged bytes or a channel.
        peer.flow = FlowWindow()
        (peer.confirmedBytes, peer.confirmedBeforeChannel) = (0, nil)
        peer.isDepartureWatched = false
        // Account and connection refer to each other, so the reference is removed.
        peer.account.clients.remove(peer)
        peer.account.peers -= 1
        forgetIfUnused(peer.account)
    }

    /// Charges a positive amount of a resource, or credits a negative one. Every change of usage goes through here, so
    /// that each total is the sum of its parts.
    ///
    /// The account of a departed connection is forgotten with its last credit, so callers credit last.
    func charge(_ peer: Peer, _ resource: Resource, _ amount: Int) {
        guard amount != 0 else { return }
        // The excess (usage beyond a lowered limit) belongs to the accounts with the largest usage. Connections may
        // have moved between accounts since it was distributed.
        if amount < 0, excess[resource] > 0 { _ = distributeExcess(of: resource) }
        let account = peer.account
        peer.usage[resource] += amount
        account.usage[resource] += amount
        totals[resource] += amount
        if amount < 0, excess[resource] > 0 { noteCredit(-amount, of: account, resource) }
        invariant(
            peer.usage[resource] >= 0 && account.usage[resource] >= peer.usage[resource]
                && totals[resource] >= account.usage[resource],
            "E4: no usage falls below zero, or above that of its account or the total")
        if resource == .queuedBytes || resource == .intervalBytes {
            account.clients.noteChange(of: peer)
            accounts.noteChange(of: account)
        }
        if resource == .retainedBytes, !peer.isKnown { noteDeparted(peer) }
        if amount < 0, account.peers == 0 { forgetIfUnused(account) }
    }

    /// Updates the amounts that departed connections have left behind, after a change of one of them or of its values.
    private func noteDeparted(_ peer: Peer) {
        meter.count()
        retained.note(peer.name, hasLeft: !peer.isKnown)
        let before = peer.departed
        peer.departed = departed.note(peer, before)
        peer.account.departed[.retained] += (peer.departed?.count ?? 0) - (before?.count ?? 0)
        peer.account.departed[.retainedBytes] += (peer.departed?.byteCount ?? 0) - (before?.byteCount ?? 0)
    }

    /// Checks that a total, and the share of an account in it, have capacity for an amount more.
    ///
    /// An account may use at most 7/8 of the part of the total that the others do not use. A single account can thus
    /// have 7/8 of a total, and the part that many greedy accounts leave shrinks but never reaches zero. Totals below
    /// ``smallestShared`` have no shares, because such shares would be too small for use.
    ///
    /// - Parameters:
    ///   - peer: the connection that would be charged; nil for one without usage.
    ///   - amount: the amount to add; a negative amount passes unless the total is still over its limit.
    /// - Throws: ``CenterError/limitExceeded(_:value:)`` when the total has no capacity, and
    ///   ``CenterError/shareExceeded(_:value:)`` when only the share has none. The key is that of the resource, or
    ///   `memory-bytes`.
    func checkCapacity(for peer: Peer?, _ resource: Resource, adding amount: Int) throws(CenterError) {
        do throws(CenterError) {
            try checkLimit(for: peer, resource, adding: amount)
        } catch {
            // A new distribution may leave this account less excess.
            guard distributeExcess(of: resource) else { throw error }
            try checkLimit(for: peer, resource, adding: amount)
        }
        guard amount > 0 else { return }
        let bytes = resource.memory(amount)
        guard bytes == 0 || hasMemory(for: peer, adding: bytes) else {
            let isFull = lastingMemory - reclaimable(.retainedBytes, to: peer) + bytes > maxLastingMemory
            let memory = limits[.memoryBytes]
            throw isFull
                ? .limitExceeded(.memoryBytes, value: memory) : .shareExceeded(.memoryBytes, value: memory)
        }
    }

    /// Checks the limit of the resource alone, without the total memory. An account with excess of a lowered limit gets
    /// nothing more.
    private func checkLimit(for peer: Peer?, _ resource: Resource, adding amount: Int) throws(CenterError) {
        let key = resource.limit
        let limit = limits[key]
        try limits.check(key, max(0, used(resource) - reclaimable(resource, to: peer) + amount))
        guard amount > 0 else { return }
        let isOver = peer.map { $0.account.excess[resource] > 0 } ?? false
        if isOver || limit >= Self.smallestShared && !isWithinShare(peer, resource, adding: amount) {
            throw .shareExceeded(key, value: limit)
        }
    }

    // MARK: Total memory

    /// The memory that the center and the driver hold for clients and sessions, in bytes. When an event has raised it
    /// above ``Limits/Key/memoryBytes``, ``reclaimMemory(effects:)`` reduces it again.
    public var heldBytes: Int { lastingMemory + totals.waitingMemory + bytesForSessions }

    /// The memory that is not taken back when memory is short, in bytes: all but queued notifications. It includes
    /// ``connectionSize`` for each connection that is not a client. Values of departed posters count here, although
    /// they can be reclaimed.
    var lastingMemory: Int { totals.lastingMemory + (peers.count - clients.count) * Self.connectionSize }

    /// The same for one account.
    private func lastingMemory(of account: Account) -> Int {
        account.usage.lastingMemory + max(0, account.peers - account.usage[.clients]) * Self.connectionSize
    }

    /// The memory of a connection that is not a client, in bytes: an estimate of its entries in tables.
    private static let connectionSize = 1280

    /// Whether the total memory, and the share of an account in it, have capacity for more memory that is not
    /// reclaimable.
    ///
    /// The share is that of ``checkCapacity(for:_:adding:)``. Queued notifications do not count: they are discarded to
    /// make space, until they have an eighth of the limit.
    ///
    /// - Parameter share: the account may use this multiple of the part that remains free: 7 stands for a share of 7/8.
    func hasMemory(for peer: Peer?, adding bytes: Int, times share: Int = 7) -> Bool {
        let left = maxLastingMemory - lastingMemory + reclaimable(.retainedBytes, to: peer) - bytes
        return left >= 0 && (peer.map { lastingMemory(of: $0.account) } ?? 0) + bytes <= share * left
    }

    /// The maximum of ``lastingMemory``. An eighth of the limit remains for queued notifications.
    private var maxLastingMemory: Int {
        let limit = Int(limits[.memoryBytes])
        return limit - limit / 8
    }

    /// The maximum size of the queues of all clients, in bytes: their own limit, or the memory that other state leaves.
    var maxWaitingMemory: Int {
        min(Int(limits[.queuedBytes]), Int(limits[.memoryBytes]) - lastingMemory - bytesForSessions)
    }

    /// Whether values or queued notifications must be discarded, so that the driver has to call ``reclaimMemory(effects:)``.
    public var isOverMemory: Bool {
        hasValueToReclaim || areQueuesOverMemory
    }

    /// Whether queued notifications must be discarded. There are two cases:
    ///
    /// - All memory together is over `memory-bytes`.
    /// - The queues are over `queued-bytes`, and an earlier event could not discard enough. A lowered `queued-bytes`
    ///   alone is no reason: the queues stay until they grow (E1), and ``isReclaimPending`` is false until then.
    private var areQueuesOverMemory: Bool {
        heldBytes > limits[.memoryBytes] && totals.waitingMemory > 0 || isReclaimPending && isOverTotal
    }

    /// Whether values of departed posters must be removed: state that is not queued notifications has more than 7/8 of
    /// `memory-bytes`.
    private var hasValueToReclaim: Bool {
        lastingMemory > maxLastingMemory && departed.usage(.retainedBytes) > 0
    }

    /// Reduces the total memory to `memory-bytes`, and finishes a pending reduction of the queues to `queued-bytes`.
    /// One call discards a bounded number; call it again while ``isOverMemory`` is true.
    ///
    /// 1. Scheduled notifications are sent, which frees memory without a loss.
    /// 2. Values of departed posters are removed, while ``hasValueToReclaim``.
    /// 3. The clients with the largest queues are sent them, or lose their oldest notifications.
    public func reclaimMemory(effects: inout [Effect]) {
        defer { eventEnded() }
        processAllSlots(effects: &effects)
        for _ in 0..<Self.maxReclaimed where isOverMemory {
            if hasValueToReclaim, let name = departed.largest, let value = retained.first(paidBy: name) {
                displace(value, effects: &effects)
            } else {
                // Nothing can be freed in this event.
                guard loseFromLargest(effects: &effects) else { break }
            }
        }
        if !isOverTotal { isReclaimPending = false }
    }

    /// The maximum number of discards, of a value or a notification each, in one ``reclaimMemory(effects:)`` (E8).
    private static let maxReclaimed = 256

    /// Whether an account stays within its share of a total with an amount more.
    ///
    /// - Parameter share: the account may use this multiple of the part that remains free: 7 stands for a share of 7/8.
    func isWithinShare(_ peer: Peer?, _ resource: Resource, adding amount: Int, times share: Int = 7) -> Bool {
        let left = Int(limits[resource.limit]) - used(resource) + reclaimable(resource, to: peer) - amount
        return (peer?.account.usage[resource] ?? 0) + amount <= share * left
    }

    /// The amount of a resource that can be reclaimed for a connection: that of departed payers of other accounts
    /// (``DepartedPayers``). The values that its own account left behind take a part of that account's share.
    private func reclaimable(_ resource: Resource, to peer: Peer?) -> Int {
        departed.usage(resource) - (peer?.account.departed[resource] ?? 0)
    }

    /// The smallest limit of a total that has shares. An eighth of a smaller one would be less than 8.
    static let smallestShared: UInt64 = 64

    /// Returns the account of this id, or makes one.
    func account(_ id: AccountID) -> Account {
        if let account = accountsByID[id] { return account }
        let account = Account(id)
        accountsByID[id] = account
        return account
    }

    /// Forgets an account without connections and usage.
    private func forgetIfUnused(_ account: Account) {
        guard account.peers == 0, account.usage.isZero else { return }
        accountsByID[account.id] = nil
        for resource in Self.withExcess { lowered[resource]?.accounts[account.id] = nil }
        blockedOnQuota.forget(account)
    }

    /// Checks that all totals are the sums of their parts, and that no table refers to a departed connection.
    func checkAccounts() throws(BrokenInvariant) {
        var (sum, ofAccounts): (Usage, [AccountID: Usage]) = (Usage(), [:])
        var connections: [AccountID: Int] = [:]
        for (name, peer) in peers {
            try require(name == peer.name && peer.isKnown, "D8: \(name) is a connection that is there")
            connections[peer.account.id, default: 0] += 1
            try require(accountsByID[peer.account.id] === peer.account, "E4: \(name) has an account that there is")
            try require(
                (clients[name] != nil) == peer.isClient, "D8: \(name) knows whether it is a client")
        }
        for payer in payers {
            try require(
                accountsByID[payer.account.id] === payer.account, "E4: \(payer.name) pays in an account that there is")
            sum += payer.usage
            ofAccounts[payer.account.id, default: Usage()] += payer.usage
        }
        try require(sum == totals, "E4: totals are the sums of the usage of connections")
        for resource in Resource.allCases {
            try require(
                accountsByID.values.reduce(0) { $0 + $1.excess[resource] } == excess[resource],
                "E4: the excess is the sum of the excess of all accounts")
        }
        try departed.checkInvariants(payers)
        for (id, account) in accountsByID {
            try require(
                account.usage == ofAccounts[id] ?? Usage(),
                "E4: the usage of \(id) is the sum of the usage of its connections")
            try require(account.peers == connections[id] ?? 0, "E4: \(id) has as many connections as it counts")
            try require(
                Resource.allCases.allSatisfy { account.excess[$0] <= max(0, account.usage[$0]) },
                "E4: the excess of \(id) is at most its usage")
            try require(account.peers > 0 || !account.usage.isZero, "D8: an account without anything is forgotten")
            try require(
                account.clients.kept.allSatisfy { $0.isKnown && $0.account === account },
                "D8: the clients of \(id) are present")
        }
    }

    /// All connections that may be charged: known ones, and departed ones with queued posts, waiting calls or values.
    private var payers: [Peer] {
        let left = postingQueues.payers.filter { !$0.isKnown }
        let called = waitingCallers.values.filter { caller in !caller.isKnown && !left.contains { $0 === caller } }
        var kept: [ObjectIdentifier: Peer] = [:]
        for value in retained.all where !value.payer.isKnown { kept[ObjectIdentifier(value.payer)] = value.payer }
        for payer in left + called { kept[ObjectIdentifier(payer)] = payer }
        return Array(peers.values) + kept.values
    }
}
