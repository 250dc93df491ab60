// SPDX-License-Identifier: Apache-2.0
import CarillonCollections

/// Who pays for what (E1, E4).
///
/// Everything that a connection makes the center hold is charged to it, to its account and to the total at once, at its
/// size, and given back the same way. Of what can't be taken back a process gets no more than its share, so that others
/// always find some left. Of what can be, the largest account pays when there is too much.
extension DistributedCenter {
    /// Tells who is behind a connection, before its first call or later. What it uses moves to that account.
    /// ``Effect/forget(_:)`` says when that is forgotten.
    ///
    /// - Parameter identity: what receivers can be told of who posted (P1).
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

    /// Has another account pay for all that a connection uses.
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

    /// The account that pays for a connection; nil where there is nothing of it.
    public func account(of name: ClientName) -> AccountID? { peers[name]?.account.id }

    /// Whether there is something of a connection, which is forgotten with a word, if it was identified.
    public func knows(_ name: ClientName) -> Bool { peers[name] != nil }

    func peer(_ name: ClientName) -> Peer {
        if let peer = peers[name] { return peer }
        // One that was taken for gone, as after a restart, has what it had.
        let peer = retained.payer(named: name) ?? Peer(name: name, account: account(.connection(name)))
        peer.isKnown = true
        if peer.departed != nil { noteDeparted(peer) }
        peer.account.peers += 1
        peers[name] = peer
        return peer
    }

    /// Forgets a connection that is no client, uses nothing, and of which nobody said who is behind it.
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
        // What was on its way goes with the bus's queue for it.
        charge(peer, .inFlightBytes, -peer.usage[.inFlightBytes])
        charge(peer, .answerBytes, -peer.usage[.answerBytes])
        releaseParts(of: peer)
        peer.answers = Deque()
        peer.replies = nil
        // One that pays for values may be taken for gone and come again, as any that is new.
        peer.flow = FlowWindow()
        (peer.confirmedBytes, peer.confirmedBeforeChannel) = (0, nil)
        peer.isDepartureWatched = false
        // They hold each other.
        peer.account.clients.remove(peer)
        peer.account.peers -= 1
        forgetIfUnused(peer.account)
    }

    /// Every change of what somebody uses goes through here, so that the totals are the sums of their parts.
    func charge(_ peer: Peer, _ resource: Resource, _ amount: Int) {
        guard amount != 0 else { return }
        // Those that have most give back, however the connections of processes have been recognized meanwhile.
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

    /// Whether a total, and the share of an account in it, have room for more.
    ///
    /// The share is seven times what is left to others, so one account alone can have seven eighths of a total, and what
    /// many greedy ones leave gets smaller and never nothing. Small totals are not shared: a share of them would be
    /// no number that means anything.
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

    /// The same of the limit of the resource alone.
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

    // MARK: Everything together

    /// The size of everything that is kept, in bytes: at most ``Limits/Key/memoryBytes``, but for a moment.
    public var heldBytes: Int { lastingMemory + totals.waitingMemory + bytesForSessions }

    /// The memory of what can't be taken back, in bytes, also that of connections that have nothing.
    var lastingMemory: Int { totals.lastingMemory + (peers.count - clients.count) * Self.connectionSize }

    private func lastingMemory(of account: Account) -> Int {
        account.usage.lastingMemory + max(0, account.peers - account.usage[.clients]) * Self.connectionSize
    }

    /// The memory of a connection that is no client, in bytes: its entries in tables.
    private static let connectionSize = 1280

    /// Whether everything together has room for more of what can't be taken back, and the share of an account in it, which
    /// is that of ``checkRoom(for:_:adding:)``. Notifications that wait for clients give way to it, down to an eighth of all.
    func hasMemory(for peer: Peer?, adding bytes: Int, times share: Int = 7) -> Bool {
        let left = maxLastingMemory - lastingMemory + givingWay(.retainedBytes, to: peer) - bytes
        return left >= 0 && (peer.map { lastingMemory(of: $0.account) } ?? 0) + bytes <= share * left
    }

    private var maxLastingMemory: Int {
        let limit = Int(limits[.memoryBytes])
        return limit - limit / 8
    }

    /// The bytes that may wait for all clients.
    var maxWaitingMemory: Int {
        min(Int(limits[.queuedBytes]), Int(limits[.memoryBytes]) - lastingMemory - bytesForSessions)
    }

    /// Whether ``giveWay(effects:)`` is due.
    public var isOverMemory: Bool {
        isValueInTheWay || isTooMuchWaiting
    }

    private var isTooMuchWaiting: Bool {
        heldBytes > limits[.memoryBytes] && totals.waitingMemory > 0 || owesRoom && isOverTotal
    }

    private var isValueInTheWay: Bool {
        lastingMemory > maxLastingMemory && departed.usage(.retainedBytes) > 0
    }

    /// Where everything together is too much, as much as one event may is taken out: values that were left behind, and of
    /// what waits for clients the oldest for whom most waits.
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

    /// Whether an account stays within so many times what is left to others.
    func isWithinShare(_ peer: Peer?, _ resource: Resource, adding amount: Int, times share: Int = 7) -> Bool {
        let left = Int(limits[resource.limit]) - used(resource) + givingWay(resource, to: peer) - amount
        return (peer?.account.usage[resource] ?? 0) + amount <= share * left
    }

    /// How much of a resource is in use by what others left behind, which is room (``DepartedPayers``).
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

    /// All that may pay for something: connections that there are, and those that left posts behind.
    private var payers: [Peer] {
        let left = postingQueues.payers.filter { !$0.isKnown }
        let called = waitingCallers.values.filter { caller in !caller.isKnown && !left.contains { $0 === caller } }
        var kept: [ObjectIdentifier: Peer] = [:]
        for value in retained.all where !value.payer.isKnown { kept[ObjectIdentifier(value.payer)] = value.payer }
        for payer in left + called { kept[ObjectIdentifier(payer)] = payer }
        return Array(peers.values) + kept.values
    }
}
