// SPDX-License-Identifier: Apache-2.0
import CarillonCollections

/// Calls that arrive faster than they are served (E4).
///
/// The driver keeps waiting calls and serves all processes in a fair queue. A waiting call is charged to its caller.
/// When a process has used up its share, its further calls cannot be kept. Its posts are then lost, and reported to all
/// clients that they would have reached (S4).
extension DistributedCenter {
    /// Whether another call of a connection may be kept.
    ///
    /// A process may use 31 times the part that it leaves to others, and 63 times with calls that want an answer. Thus
    /// a process that has posted without end still learns whether its posts arrived. A part of the limit is reserved
    /// for processes with a small backlog, as a flood of several processes must not have their calls refused.
    ///
    /// - Parameter byteCount: the minimum that must be free for the call, in bytes.
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

    /// The size of waiting calls and of partial posts, in bytes.
    var waitingCallBytes: Int { totals[.waitingCallBytes] + totals[.partBytes] }

    /// The largest backlog of a process that may use the reserve, in bytes: a few calls.
    private static let smallBacklog = 4096
    /// The reserve is one such part of the limit: the part that the largest share leaves.
    private static let reserveDivisor = 64

    /// Whether calls of a connection wait.
    public func keepsCalls(of name: ClientName) -> Bool { waitingCaller(name) != nil }

    /// Counts a call that waits behind other calls of its connection. A flood consists of such calls.
    ///
    /// - Returns: false when no other call of the connection waits. Then ``callIsKept(of:byteCount:effects:)`` must be
    ///   called.
    public func callIsKeptBehindOthers(of name: ClientName, byteCount: Int) -> Bool {
        guard let peer = waitingCaller(name) else { return false }
        charge(peer, .waitingCallBytes, byteCount)
        return true
    }

    /// Counts a call of a connection that waits.
    public func callIsKept(of name: ClientName, byteCount: Int, effects: inout [Effect]) {
        defer { eventEnded() }
        guard !callIsKeptBehindOthers(of: name, byteCount: byteCount) else { return }
        let peer = peer(name, effects: &effects)
        waitingCallers[name] = peer
        charge(peer, .waitingCallBytes, byteCount)
    }

    /// Ends the wait of a call, which is served next.
    public func callIsTaken(of name: ClientName, byteCount: Int) {
        defer { eventEnded() }
        guard let peer = waitingCaller(name) else { return }
        charge(peer, .waitingCallBytes, -byteCount)
        guard peer.usage[.waitingCallBytes] == 0 else { return }
        waitingCallers[name] = nil
        lastWaitingCaller = nil
        forgetIfUnused(peer)
    }

    // MARK: Partial posts

    /// Sets the amount that the service holds of a client's posts that have arrived in part, or that wait for the
    /// removal of queued posts. Such posts count with the waiting calls. They may use a quarter of that limit, or be a
    /// single client's, as a partial post may stay forever.
    ///
    /// - Parameters:
    ///   - byteCount: the new amount of the client, in bytes.
    ///   - isWhole: whether the post can no longer be given up, so that it counts even without capacity.
    /// - Returns: false where the amount would grow and there is no capacity for it; nothing has changed then.
    ///   ``partsToGiveUp(for:byteCount:isGivable:)`` may free some.
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

    /// The bytes that must be freed before so many more may be held.
    private func partsMissing(for more: Int) -> Int {
        let limit = Int(limits[.waitingCallBytes])
        return more
            + max(
                totals[.partBytes] - limit / 4, waitingCallBytes - (limit - limit / Self.reserveDivisor),
                lastingMemory - Int(limits[.memoryBytes]))
    }

    /// Returns the clients whose partial posts have to be given up for another client. The process with the largest
    /// amount gives up its largest post first, as long as its amount exceeds that of the other client's process.
    ///
    /// - Parameters:
    ///   - byteCount: the new amount of the other client, in bytes.
    ///   - isGivable: whether the post of a client can be given up.
    /// - Returns: an empty array where that would not free enough.
    public func partsToGiveUp(
        for name: ClientName, byteCount: Int, isGivable: (ClientName) -> Bool
    ) -> [ClientName] {
        let own = peers[name]
        let more = byteCount - (own?.usage[.partBytes] ?? 0)
        let held = (own?.account.usage[.partBytes] ?? 0) + more
        var missing = partsMissing(for: more)
        // The parts of each process, the largest last.
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

    /// Releases the amount that is held of a client's partial posts.
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

    /// Counts posts that could not be served as lost to all clients that they would have reached. It takes as many out
    /// of `posts` as one event may, from the end. Each client gets one report of these losses. The loss considers only
    /// the name, the object and `deliver-immediately` of a post.
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

    /// The observers that the posts of one event may match, without those of the last post.
    private static let maxMatched = 2048

    /// Determines the receivers of a post that is lost now. All unobserved names count as one, and so do all unobserved
    /// objects, so that a flood of posts with ever new names takes few entries.
    ///
    /// - Parameters:
    ///   - name: the name of the post; nil for an unobserved name.
    ///   - object: the object of the post; the empty string means no object, or an unobserved one.
    ///   - deliverImmediately: whether the post would have reached suspended clients as well.
    /// - Returns: nil for a post that would have been refused.
    public func reach(ofPost name: String?, object: String, deliverImmediately: Bool) -> LostPost.Reach? {
        guard (try? checkPost(name: name ?? " ", object: object)) != nil else { return nil }
        let (name, object) = (name.map(ExactText.init), object.isEmpty ? nil : ExactText(object))
        let isObserved = index.mayHaveObservers(name: name, object: object)
        // An unobserved object counts as none: in both cases only observers of any object match.
        return LostPost.Reach(
            name: isObserved.name ? name : nil, object: isObserved.object ? object : nil,
            deliverImmediately: deliverImmediately)
    }

    /// - Returns: the number of observers that the post matches.
    private func lose(_ post: LostPost, touched: inout [Client], effects: inout [Effect]) -> Int {
        lastSerial += post.count
        counters.posted += post.count
        peers[post.poster]?.posted += post.count
        // No observer has the empty name.
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

/// Posts of one poster that could not be served and would have reached the same observers.
public struct LostPost: Sendable {
    /// The name and object of the posts, as far as they determine the receivers.
    public struct Reach: Hashable, Sendable {
        /// The name; nil for an unobserved name.
        let name: ExactText?
        /// The object; nil for none and for an unobserved object.
        let object: ExactText?
        let deliverImmediately: Bool

        /// The size of name and object, in bytes.
        public var byteCount: Int { (name?.text.utf8.count ?? 0) + (object?.text.utf8.count ?? 0) }
    }

    public let reach: Reach
    public let poster: ClientName
    /// The number of posts.
    public let count: UInt64

    /// - Parameters:
    ///   - count: the number of posts.
    ///   - reach: the result of ``DistributedCenter/reach(ofPost:object:deliverImmediately:)`` when they were lost.
    ///   - poster: the poster of the posts.
    public init(_ count: UInt64, reaching reach: Reach, from poster: ClientName) {
        self.reach = reach
        self.poster = poster
        self.count = count
    }
}
