// SPDX-License-Identifier: Apache-2.0
import CarillonCollections

/// Calls that came faster than they can be served (E4).
///
/// Whoever drives the center keeps them, and serves all processes in turns. What is kept is charged to whose calls they
/// are. When a process has its share of it, its further calls can't be kept: its posts are lost then, and announced to
/// all whom they would have reached (S4).
extension DistributedCenter {
    /// Whether another call of a connection may be kept.
    ///
    /// A process gets 31 times what it leaves to others; of calls that want an answer twice as much, so that who has posted
    /// without end still hears whether that arrived. A part of the limit is reserved for processes with a small
    /// backlog: a flood of several others must not have their calls refused.
    ///
    /// - Parameter byteCount: what is to be left for it, at least.
    public func mayKeepCall(of name: ClientName, byteCount: Int, wantsAnswer: Bool) -> Bool {
        let peer = waitingCaller(name) ?? peers[name]
        let (limit, total) = (Int(limits[.waitingCallBytes]), waitingCallBytes + byteCount)
        if (peer?.account.usage[.waitingCallBytes] ?? 0) + byteCount <= Self.smallBacklog {
            return total <= limit && lastingMemory + byteCount <= limits[.memoryBytes]
        }
        guard total <= limit - limit / Self.reserveDivisor else { return false }
        let share = wantsAnswer ? 63 : 31
        return isWithinShare(peer, .waitingCallBytes, adding: byteCount, times: share)
            && hasMemory(for: peer, adding: byteCount, times: share)
    }

    /// The bytes that all waiting calls together may still take, without the reserve.
    public var roomForCalls: Int {
        let limit = Int(limits[.waitingCallBytes])
        return max(0, limit - limit / Self.reserveDivisor - waitingCallBytes)
    }

    /// With posts that have come in part.
    var waitingCallBytes: Int { totals[.waitingCallBytes] + totals[.partBytes] }

    /// The largest backlog of a process that may use the reserve, in bytes: a few calls.
    private static let smallBacklog = 4096
    /// The reserve is this part of the limit: what the largest share leaves.
    private static let reserveDivisor = 64

    /// Whether calls of a connection are kept.
    public func keepsCalls(of name: ClientName) -> Bool { waitingCaller(name) != nil }

    /// A call of a connection is kept, behind others of it. A flood consists of such.
    ///
    /// - Returns: false when there are no others: then ``callIsKept(of:byteCount:effects:)`` is due.
    public func callIsKeptBehindOthers(of name: ClientName, byteCount: Int) -> Bool {
        guard let peer = waitingCaller(name) else { return false }
        charge(peer, .waitingCallBytes, byteCount)
        return true
    }

    /// A call of a connection is kept.
    public func callIsKept(of name: ClientName, byteCount: Int, effects: inout [Effect]) {
        defer { eventEnded() }
        guard !callIsKeptBehindOthers(of: name, byteCount: byteCount) else { return }
        let peer = peer(name, effects: &effects)
        waitingCallers[name] = peer
        charge(peer, .waitingCallBytes, byteCount)
    }

    /// A call that was kept is served next.
    public func callIsTaken(of name: ClientName, byteCount: Int) {
        defer { eventEnded() }
        guard let peer = waitingCaller(name) else { return }
        charge(peer, .waitingCallBytes, -byteCount)
        guard peer.usage[.waitingCallBytes] == 0 else { return }
        waitingCallers[name] = nil
        lastWaitingCaller = nil
        forgetIfUnused(peer)
    }

    // MARK: Posts that have come in part

    /// Says how much the service holds of posts of a client that have come in part, or that wait for others to be taken
    /// out. They count with the calls that wait, and have no more than a quarter of their limit, or one of them alone: what
    /// does not go on may stay for ever.
    ///
    /// - Parameters:
    ///   - byteCount: all of it, in bytes.
    ///   - isWhole: whether it can't be given up any more, and counts whether there is room or not.
    /// - Returns: false where it is more than before and there is no room for it; nothing has changed then.
    ///   ``partsToGiveUp(for:byteCount:isGivable:)`` may make some.
    public func holdParts(of name: ClientName, byteCount: Int, isWhole: Bool = false, effects: inout [Effect]) -> Bool {
        defer { eventEnded() }
        let more = byteCount - (peers[name]?.usage[.partBytes] ?? 0)
        guard more != 0 else { return true }
        guard more < 0 || isWhole || partsMissing(for: more) <= 0 || totals[.partBytes] + more == byteCount else {
            return false
        }
        let peer = peer(name, effects: &effects)
        charge(peer, .partBytes, more)
        partHolders[name] = byteCount > 0 ? peer : nil
        forgetIfUnused(peer)
        return true
    }

    /// The bytes that have to be given up before so many more may be held.
    private func partsMissing(for more: Int) -> Int {
        let limit = Int(limits[.waitingCallBytes])
        return more
            + max(
                totals[.partBytes] - limit / 4, waitingCallBytes - (limit - limit / Self.reserveDivisor),
                lastingMemory - Int(limits[.memoryBytes]))
    }

    /// The clients whose parts are to be given up for another one: the largest of the process that holds most, and so on, as
    /// long as that is more than the process of the other one would hold.
    ///
    /// - Parameters:
    ///   - byteCount: what is to be held for the client.
    ///   - isGivable: whether a client's part can be given up.
    /// - Returns: none where that would not do.
    public func partsToGiveUp(
        for name: ClientName, byteCount: Int, isGivable: (ClientName) -> Bool
    ) -> [ClientName] {
        let own = peers[name]
        let more = byteCount - (own?.usage[.partBytes] ?? 0)
        let held = (own?.account.usage[.partBytes] ?? 0) + more
        var missing = partsMissing(for: more)
        // Of each process, the largest part last.
        var accounts: [AccountID: (held: Int, parts: [Peer])] = [:]
        meter.count(2 * partHolders.count)
        for peer in partHolders.values where peer.account !== own?.account && peer.account.usage[.partBytes] > held {
            guard isGivable(peer.name) else { continue }
            accounts[peer.account.id, default: (peer.account.usage[.partBytes], [])].parts.append(peer)
        }
        meter.countSort(of: partHolders.count)
        func size(_ peer: Peer) -> (Int, ClientName) { (peer.usage[.partBytes], peer.name) }
        for id in accounts.keys { accounts[id]?.parts.sort { size($0) < size($1) } }
        func order(_ account: (held: Int, parts: [Peer])) -> (Int, ClientName) {
            (account.held, account.parts.last?.name ?? name)
        }
        var givenUp: [ClientName] = []
        while missing > 0 {
            meter.count(accounts.count)
            guard let (id, largest) = accounts.max(by: { order($0.value) < order($1.value) }), largest.held > held,
                let part = largest.parts.last
            else { return [] }
            givenUp.append(part.name)
            missing -= part.usage[.partBytes]
            accounts[id] =
                largest.parts.count > 1
                ? (largest.held - part.usage[.partBytes], largest.parts.dropLast()) : nil
        }
        return givenUp
    }

    /// Nothing is held of posts of a client that have come in part.
    func releaseParts(of peer: Peer) {
        charge(peer, .partBytes, -peer.usage[.partBytes])
        partHolders[peer.name] = nil
    }

    private func waitingCaller(_ name: ClientName) -> Peer? {
        if let last = lastWaitingCaller, last.name == name { return last }
        guard let peer = waitingCallers[name] else { return nil }
        lastWaitingCaller = peer
        return peer
    }

    /// Counts posts that nobody could serve as lost to all whom they would have reached, as many as one event may, the last
    /// first, and takes these out. Each client is told once of all that it lost so. Their userInfo is not looked at, and
    /// of how they were to be posted only whether they were to be delivered to whoever is suspended.
    public func losePosts(_ posts: inout [LostPost], effects: inout [Effect]) {
        defer { eventEnded() }
        var (matched, touched): (Int, [Client]) = (0, [])
        while matched < Self.maxMatched, let post = posts.popLast() {
            matched += 1
            matched += lose(post, touched: &touched, effects: &effects)
        }
        for client in touched {
            client.hasLostPosts = false
            tellLoss(of: client, effects: &effects)
        }
    }

    /// Observers that the posts of one event match, but for those of the last one.
    private static let maxMatched = 2048

    /// Decides whom a post reaches that is lost now. Names, and objects, that nobody observes are all one, so that a flood of
    /// posts of ever other names is few.
    ///
    /// - Parameters:
    ///   - name: of the post; nil for one that nobody observes.
    ///   - object: of the post; the empty string means "no object", or one that nobody observes.
    ///   - deliverImmediately: whether it would have reached suspended clients as well.
    /// - Returns: nil for one that could not have been posted.
    public func reach(ofPost name: String?, object: String, deliverImmediately: Bool) -> LostPost.Reach? {
        guard (try? checkPost(name: name ?? " ", object: object)) != nil else { return nil }
        let (name, object) = (name.map(ExactText.init), object.isEmpty ? nil : ExactText(object))
        let isObserved = index.mayHaveObservers(name: name, object: object)
        // An object that nobody observes is as none: only observers of any match either.
        return LostPost.Reach(
            name: isObserved.name ? name : nil, object: isObserved.object ? object : nil,
            deliverImmediately: deliverImmediately)
    }

    /// - Returns: how many observers it matches.
    private func lose(_ post: LostPost, touched: inout [Client], effects: inout [Effect]) -> Int {
        lastSerial += post.count
        counters.posted += post.count
        peers[post.poster]?.posted += post.count
        // Nobody observes the empty name.
        var matches = takeMatches(name: post.reach.name?.text ?? "", object: post.reach.object?.text ?? "")
        defer { giveBack(&matches) }
        if matches.countedReceivers == 0 { counters.unmatched += post.count }
        for receiver in matches.receivers {
            meter.count(1 + receiver.count)
            let client = receiver.client
            let getsAll = post.reach.deliverImmediately || !client.isSuspended
            guard let observers = matches.observers(of: receiver, where: { getsAll || $0 != .drop }) else {
                continue
            }
            countLost(post.count, of: client, observers: observers, because: .overload, effects: &effects)
            guard !client.hasLostPosts else { continue }
            client.hasLostPosts = true
            touched.append(client)
        }
        return matches.count
    }
}

/// Posts of one poster that nobody could serve, and that would have reached the same observers.
public struct LostPost: Sendable {
    /// Their name and object, as far as these decide whom they would have reached.
    public struct Reach: Hashable, Sendable {
        /// Nil for one that nobody observes.
        let name: ExactText?
        /// Nil for none, and for one that nobody observes.
        let object: ExactText?
        let deliverImmediately: Bool

        /// The bytes of both.
        public var byteCount: Int { (name?.text.utf8.count ?? 0) + (object?.text.utf8.count ?? 0) }
    }

    public let reach: Reach
    public let poster: ClientName
    /// How many they are.
    public let count: UInt64

    /// - Parameters:
    ///   - count: how many they are.
    ///   - reach: ``DistributedCenter/reach(ofPost:object:deliverImmediately:)`` when they were lost.
    ///   - poster: whose they are.
    public init(_ count: UInt64, reaching reach: Reach, from poster: ClientName) {
        self.reach = reach
        self.poster = poster
        self.count = count
    }
}
