// SPDX-License-Identifier: Apache-2.0
import CarillonCollections

/// Accounting of resources (E1, E4).
///
/// Everything that a connection makes the center hold is charged at its size to the connection, its account and the
/// total, and credited in the same way. Resources that cannot be reclaimed have a share for each process, so that
/// others always find some left. Resources that can be reclaimed are taken from the largest account when the total is
/// too large.
extension DistributedCenter {
    /// Assigns a connection to the account of its process or sandbox, before its first call or later. Its usage moves
    /// to that account. ``Effect/forget(_:)`` reports when the connection is forgotten.
    ///
    /// - Parameter identity: the identity of the poster for receivers (P1).
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

    /// Makes another account pay for the usage of a connection.
    private func move(_ peer: Peer, to id: AccountID, effects: inout [Effect]) {
        let (before, after) = (peer.account, account(id))
        before.clients.remove(peer)
        before.usage -= peer.usage
        after.usage += peer.usage
        moveExcess(of: peer, from: before, to: after, effects: &effects)
        before.peers -= 1
        after.peers += 1
        peer.account = after
        if peer.flow.isBlockedOnQuota { blockedOnQuota.append(peer) }
        after.clients.noteChange(of: peer)
        accounts.noteChange(of: before)
        accounts.noteChange(of: after)
        forgetIfUnused(before)
        lookForRoom(effects: &effects)
        unblock(effects: &effects)
    }

    /// The account that pays for a connection; nil for an unknown connection.
    public func account(of name: ClientName) -> AccountID? { peers[name]?.account.id }

    /// Whether the center keeps the connection. An identified one is forgotten with ``Effect/forget(_:)``.
    public func knows(_ name: ClientName) -> Bool { peers[name] != nil }

    func peer(_ name: ClientName) -> Peer {
        if let peer = peers[name] { return peer }
        // A connection that was considered gone, as after a restart, keeps its values.
        let peer = retained.payer(named: name) ?? Peer(name: name, account: account(.connection(name)))
        peer.isKnown = true
        if peer.departed != nil { noteDeparted(peer) }
        peer.account.peers += 1
        peers[name] = peer
        return peer
    }

    /// Forgets a connection that is not a client, uses nothing and was not identified.
    func forgetIfUnused(_ peer: Peer) {
        if peer.isKnown, !peer.isClient, peer.usage.isZero, !peer.isIdentified, !peer.isDepartureWatched {
            forget(peer)
        }
    }

    func forget(_ peer: Peer) {
        invariant(!peer.isClient, "D8: a client is forgotten before its connection")
        peers[peer.name] = nil
        peer.isKnown = false
        noteForgotten(peer)
        noteDeparted(peer)
        // The bus drops its queue for a connection that left, with all in-flight messages.
        charge(peer, .inFlightBytes, -peer.usage[.inFlightBytes])
        charge(peer, .answerBytes, -peer.usage[.answerBytes])
        releaseParts(of: peer)
        peer.answers = Deque()
        peer.replies = nil
        // A payer of values may be considered gone and return; it then starts like a new connection.
        peer.flow = FlowWindow()
        (peer.confirmedBytes, peer.confirmedBeforeChannel) = (0, nil)
        peer.isDepartureWatched = false
        // The account and the connection hold each other.
        peer.account.clients.remove(peer)
        peer.account.peers -= 1
        forgetIfUnused(peer.account)
    }

    /// Charges or credits a resource. Every change of usage goes through here, so that the totals are the sums of their
    /// parts.
    func charge(_ peer: Peer, _ resource: Resource, _ amount: Int) {
        guard amount != 0 else { return }
        // Excess belongs to the accounts with the largest usage, however connections were assigned to processes
        // meanwhile.
        if amount < 0, excess[resource] > 0 { _ = distributeExcess(of: resource) }
        let account = peer.account
        peer.usage[resource] += amount
        account.usage[resource] += amount
        totals[resource] += amount
        if amount < 0, excess[resource] > 0 { noteGivenBack(-amount, of: account, resource) }
        invariant(
            peer.usage[resource] >= 0 && account.usage[resource] >= peer.usage[resource]
                && totals[resource] >= account.usage[resource], "E4: nobody gives back what it does not use")
        if resource == .queuedBytes || resource == .intervalBytes {
            account.clients.noteChange(of: peer)
            accounts.noteChange(of: account)
        }
        if resource == .retainedBytes, !peer.isKnown { noteDeparted(peer) }
        if amount < 0, account.peers == 0 { forgetIfUnused(account) }
    }

    private func noteDeparted(_ peer: Peer) {
        meter.count()
        retained.note(peer.name, hasLeft: !peer.isKnown)
        let before = peer.departed
        peer.departed = departed.note(peer, before)
        peer.account.departed[.retained] += (peer.departed?.count ?? 0) - (before?.count ?? 0)
        peer.account.departed[.retainedBytes] += (peer.departed?.byteCount ?? 0) - (before?.byteCount ?? 0)
    }

    /// Checks that a total, and the share of an account in it, have capacity for more.
    ///
    /// An account may use at most 7/8 of the part of the total that the others do not use. One account alone can have 7/8
    /// of a total, and many greedy accounts leave a part that shrinks and never reaches zero. Totals
    /// below ``smallestShared`` have no shares, as such a share would be too small to be useful.
    func checkRoom(for peer: Peer?, _ resource: Resource, adding amount: Int) throws(CenterError) {
        do throws(CenterError) {
            try checkLimit(for: peer, resource, adding: amount)
        } catch {
            guard distributeExcess(of: resource) else { throw error }
            try checkLimit(for: peer, resource, adding: amount)
        }
        guard amount > 0 else { return }
        let bytes = resource.memory(amount)
        guard bytes == 0 || hasMemory(for: peer, adding: bytes) else {
            let isFull = lastingMemory - givingWay(.retainedBytes, to: peer) + bytes > maxLastingMemory
            let memory = limits[.memoryBytes]
            throw isFull
                ? .limitExceeded(.memoryBytes, value: memory) : .shareExceeded(.memoryBytes, value: memory)
        }
    }

    /// Checks the limit of the resource alone.
    private func checkLimit(for peer: Peer?, _ resource: Resource, adding amount: Int) throws(CenterError) {
        let key = resource.limit
        let limit = limits[key]
        try limits.check(key, max(0, used(resource) - givingWay(resource, to: peer) + amount))
        guard amount > 0 else { return }
        let isOver = peer.map { $0.account.excess[resource] > 0 } ?? false
        if isOver || limit >= Self.smallestShared && !isWithinShare(peer, resource, adding: amount) {
            throw .shareExceeded(key, value: limit)
        }
    }

    // MARK: Total memory

    /// The size of everything that the center holds, in bytes: at most ``Limits/Key/memoryBytes``, except within an
    /// event.
    public var heldBytes: Int { lastingMemory + totals.waitingMemory + bytesForSessions }

    /// The memory that cannot be reclaimed, in bytes, including connections without other usage.
    var lastingMemory: Int { totals.lastingMemory + (peers.count - clients.count) * Self.connectionSize }

    private func lastingMemory(of account: Account) -> Int {
        account.usage.lastingMemory + max(0, account.peers - account.usage[.clients]) * Self.connectionSize
    }

    /// The memory of a connection that is not a client, in bytes: its entries in tables.
    private static let connectionSize = 1280

    /// Whether the total memory, and the share of an account in it, have capacity for more memory that cannot be
    /// reclaimed. The share is that of ``checkRoom(for:_:adding:)``. Queued notifications give way, down to an eighth
    /// of the limit.
    func hasMemory(for peer: Peer?, adding bytes: Int, times share: Int = 7) -> Bool {
        let left = maxLastingMemory - lastingMemory + givingWay(.retainedBytes, to: peer) - bytes
        return left >= 0 && (peer.map { lastingMemory(of: $0.account) } ?? 0) + bytes <= share * left
    }

    private var maxLastingMemory: Int {
        let limit = Int(limits[.memoryBytes])
        return limit - limit / 8
    }

    /// The maximum size of the queues of all clients, in bytes.
    var maxWaitingMemory: Int {
        min(Int(limits[.queuedBytes]), Int(limits[.memoryBytes]) - lastingMemory - bytesForSessions)
    }

    /// Whether the driver has to call ``giveWay(effects:)``.
    public var isOverMemory: Bool {
        isValueInTheWay || isTooMuchWaiting
    }

    private var isTooMuchWaiting: Bool {
        heldBytes > limits[.memoryBytes] && totals.waitingMemory > 0 || owesRoom && isOverTotal
    }

    private var isValueInTheWay: Bool {
        lastingMemory > maxLastingMemory && departed.usage(.retainedBytes) > 0
    }

    /// Reduces the total memory to its limit, as far as one event may. Values of departed posters go first, then the
    /// oldest notifications of the clients with the largest queues.
    public func giveWay(effects: inout [Effect]) {
        defer { eventEnded() }
        takeAllTurns(effects: &effects)
        for _ in 0..<Self.maxGivingWay where isOverMemory {
            if isValueInTheWay, let name = departed.largest, let value = retained.first(paidBy: name) {
                displace(value, effects: &effects)
            } else {
                guard loseFromLargest(effects: &effects) else { break }
            }
        }
        if !isOverTotal { owesRoom = false }
    }

    private static let maxGivingWay = 256

    /// Whether an account stays within the given multiple of the part that it leaves to others.
    func isWithinShare(_ peer: Peer?, _ resource: Resource, adding amount: Int, times share: Int = 7) -> Bool {
        let left = Int(limits[resource.limit]) - used(resource) + givingWay(resource, to: peer) - amount
        return (peer?.account.usage[resource] ?? 0) + amount <= share * left
    }

    /// The amount of a resource that departed payers of other accounts use, and that can be reclaimed
    /// (``DepartedPayers``).
    private func givingWay(_ resource: Resource, to peer: Peer?) -> Int {
        departed.usage(resource) - (peer?.account.departed[resource] ?? 0)
    }

    static let smallestShared: UInt64 = 64

    func account(_ id: AccountID) -> Account {
        if let account = accountsByID[id] { return account }
        let account = Account(id)
        accountsByID[id] = account
        return account
    }

    private func forgetIfUnused(_ account: Account) {
        guard account.peers == 0, account.usage.isZero else { return }
        accountsByID[account.id] = nil
        for resource in Self.withExcess { lowered[resource]?.accounts[account.id] = nil }
        blockedOnQuota.forget(account)
    }

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
        try require(sum == totals, "E4: totals are the sums of what connections use")
        for resource in Resource.allCases {
            try require(
                accountsByID.values.reduce(0) { $0 + $1.excess[resource] } == excess[resource],
                "E4: what does not count is the sum of the accounts'")
        }
        try departed.checkInvariants(payers)
        for (id, account) in accountsByID {
            try require(account.usage == ofAccounts[id] ?? Usage(), "E4: what \(id) uses is the sum of its connections")
            try require(account.peers == connections[id] ?? 0, "E4: \(id) has as many connections as it counts")
            try require(
                Resource.allCases.allSatisfy { account.excess[$0] <= max(0, account.usage[$0]) },
                "E4: no more of what \(id) uses does not count than there is")
            try require(account.peers > 0 || !account.usage.isZero, "D8: an account without anything is forgotten")
            try require(
                account.clients.kept.allSatisfy { $0.isKnown && $0.account === account },
                "D8: \(id) keeps none of those that left")
        }
    }

    /// All connections that may pay for something: known ones, and departed ones with posts, calls or values.
    private var payers: [Peer] {
        let left = postingQueues.payers.filter { !$0.isKnown }
        let called = waitingCallers.values.filter { caller in !caller.isKnown && !left.contains { $0 === caller } }
        var kept: [ObjectIdentifier: Peer] = [:]
        for value in retained.all where !value.payer.isKnown { kept[ObjectIdentifier(value.payer)] = value.payer }
        for payer in left + called { kept[ObjectIdentifier(payer)] = payer }
        return Array(peers.values) + kept.values
    }
}
