// SPDX-License-Identifier: Apache-2.0
import CarillonCollections

/// Method calls that arrive faster than they are served (E4).
///
/// The driver keeps waiting calls in a fair queue of all processes. Each is charged to its caller here. When a process
/// has used up its share of `waiting-call-bytes`, its further calls are not kept. A call that wants an answer then gets
/// an error. Posts that want none are lost, and the loss is reported to all clients that they would have reached (S4).
extension DistributedCenter {
    /// Whether another call of a connection may be kept.
    ///
    /// A process may use 31 times the bytes that remain free, and 63 times with calls that want an answer. A process
    /// that has posted without end can thus still ask whether its posts arrived. A 64th of the limit is reserved for
    /// processes with a small backlog, so that a flood from several processes does not get their calls refused.
    ///
    /// - Parameters:
    ///   - byteCount: the minimum that must be free for the call, in bytes.
    ///   - wantsAnswer: whether the caller wants an answer.
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

    /// The bytes that may still be charged for waiting calls of all processes, without the reserve.
    public var freeCallBytes: Int {
        let limit = Int(limits[.waitingCallBytes])
        return max(0, limit - limit / Self.reserveDivisor - waitingCallBytes)
    }

    /// The size of waiting calls and of posts that have arrived in part, in bytes.
    var waitingCallBytes: Int { totals[.waitingCallBytes] + totals[.partialPostBytes] }

    /// The largest backlog of a process that may use the reserve, in bytes: enough for a few calls.
    private static let smallBacklog = 4096
    /// The divisor of the limit for the reserve. The largest share, 63/64, leaves as much.
    private static let reserveDivisor = 64

    /// Whether calls of a connection wait to be served.
    public func keepsCalls(of name: ClientName) -> Bool { waitingCaller(name) != nil }

    /// Charges a call that waits behind other calls of its connection: a short path, because most calls of a flood take
    /// it.
    ///
    /// - Returns: false when no other call of the connection waits. Then ``callIsKept(of:byteCount:effects:)`` must be
    ///   called.
    public func callIsKeptBehindOthers(of name: ClientName, byteCount: Int) -> Bool {
        guard let peer = waitingCaller(name) else { return false }
        charge(peer, .waitingCallBytes, byteCount)
        return true
    }

    /// Charges a call of a connection that waits to be served.
    public func callIsKept(of name: ClientName, byteCount: Int, effects: inout [Effect]) {
        defer { eventEnded() }
        guard !callIsKeptBehindOthers(of: name, byteCount: byteCount) else { return }
        let peer = peer(name, effects: &effects)
        waitingCallers[name] = peer
        charge(peer, .waitingCallBytes, byteCount)
    }

    /// Credits a call that waits no longer, because it is served next.
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

    /// Charges the bytes that the service holds of a client's posts: posts that have arrived in part on its channel, or
    /// that wait until posts they replace are removed.
    ///
    /// They count in `waiting-call-bytes`. All together may use a quarter of that limit, because a partial post may
    /// stay for ever. Exception: if only this client holds any, its bytes may be more.
    ///
    /// - Parameters:
    ///   - byteCount: the new amount of the client, in bytes.
    ///   - isWhole: whether the post has arrived in full and can't be discarded, so that it is charged even without
    ///     capacity.
    /// - Returns: false when the amount would grow and there is no capacity. Then nothing has changed, and the driver
    ///   may discard the posts of ``partsToGiveUp(for:byteCount:isGivable:)``.
    public func holdParts(of name: ClientName, byteCount: Int, isWhole: Bool = false, effects: inout [Effect]) -> Bool {
        defer { eventEnded() }
        let more = byteCount - (peers[name]?.usage[.partialPostBytes] ?? 0)
        guard more != 0 else { return true }
        guard
            more < 0 || isWhole || bytesToFreeForParts(for: more) <= 0 || totals[.partialPostBytes] + more == byteCount
        else {
            return false
        }
        let peer = peer(name, effects: &effects)
        charge(peer, .partialPostBytes, more)
        partHolders[name] = byteCount > 0 ? peer : nil
        forgetIfUnused(peer)
        return true
    }

    /// The bytes that must be freed before so many more may be held; zero or less for none.
    private func bytesToFreeForParts(for more: Int) -> Int {
        let limit = Int(limits[.waitingCallBytes])
        return more
            + max(
                totals[.partialPostBytes] - limit / 4, waitingCallBytes - (limit - limit / Self.reserveDivisor),
                lastingMemory - Int(limits[.memoryBytes]))
    }

    /// Returns the clients whose partial posts have to be discarded to make space for another client. Of the process
    /// that holds most, the largest post is discarded first, as long as that process holds more than the other client's
    /// process.
    ///
    /// - Parameters:
    ///   - byteCount: the new amount of the other client, in bytes.
    ///   - isGivable: whether the post of a client can be discarded.
    /// - Returns: an empty array if that would not free enough.
    public func partsToGiveUp(
        for name: ClientName, byteCount: Int, isGivable: (ClientName) -> Bool
    ) -> [ClientName] {
        let own = peers[name]
        let more = byteCount - (own?.usage[.partialPostBytes] ?? 0)
        let held = (own?.account.usage[.partialPostBytes] ?? 0) + more
        var bytesToFree = bytesToFreeForParts(for: more)
        // The clients with partial posts in each process, the largest amount last.
        var accounts: [AccountID: (held: Int, parts: [Peer])] = [:]
        meter.count(2 * partHolders.count)
        for peer in partHolders.values
        where peer.account !== own?.account && peer.account.usage[.partialPostBytes] > held {
            guard isGivable(peer.name) else { continue }
            accounts[peer.account.id, default: (peer.account.usage[.partialPostBytes], [])].parts.append(peer)
        }
        meter.countSort(of: partHolders.count)
        func size(_ peer: Peer) -> (Int, ClientName) { (peer.usage[.partialPostBytes], peer.name) }
        for id in accounts.keys { accounts[id]?.parts.sort { size($0) < size($1) } }
        func order(_ account: (held: Int, parts: [Peer])) -> (Int, ClientName) {
            (account.held, account.parts.last?.name ?? name)
        }
        var givenUp: [ClientName] = []
        while bytesToFree > 0 {
            meter.count(accounts.count)
            guard let (id, largest) = accounts.max(by: { order($0.value) < order($1.value) }), largest.held > held,
                let part = largest.parts.last
            else { return [] }
            givenUp.append(part.name)
            bytesToFree -= part.usage[.partialPostBytes]
            accounts[id] =
                largest.parts.count > 1
                ? (largest.held - part.usage[.partialPostBytes], largest.parts.dropLast()) : nil
        }
        return givenUp
    }

    /// Credits the bytes that are held of a client's partial posts.
    func releaseParts(of peer: Peer) {
        charge(peer, .partialPostBytes, -peer.usage[.partialPostBytes])
        partHolders[peer.name] = nil
    }

    /// Returns the peer of a connection with waiting calls; nil for another one.
    private func waitingCaller(_ name: ClientName) -> Peer? {
        if let last = lastWaitingCaller, last.name == name { return last }
        guard let peer = waitingCallers[name] else { return nil }
        lastWaitingCaller = peer
        return peer
    }

    /// Counts posts as lost to all clients that they would have reached: posts that the service had no space for, or
    /// posts of another session that were lost before they arrived. Each client gets one report of the posts in one
    /// call.
    ///
    /// - Parameter posts: the lost posts. Posts are removed from its end, as many as one event may; call again for the
    ///   others.
    public func losePosts(_ posts: inout [LostPost], effects: inout [Effect]) {
        defer { eventEnded() }
        var (matched, touched): (Int, [Client]) = (0, [])
        while matched < Self.maxMatched, let post = posts.popLast() {
            matched += 1
            matched += lose(post, touched: &touched, effects: &effects)
        }
        for client in touched {
            client.hasLostPosts = false
            reportLoss(of: client, effects: &effects)
        }
    }

    /// The number of matching observers, and of posts, after which an event takes no further post.
    private static let maxMatched = 2048

    /// Determines the properties of a post that is lost now by which its receivers are found later: the name, the
    /// object, and `deliver-immediately`.
    ///
    /// All unobserved names count as one, and so do all unobserved objects. A flood of posts with ever new names thus
    /// takes few entries.
    ///
    /// - Parameters:
    ///   - name: the name of the post; nil for an unobserved name.
    ///   - object: the object of the post; the empty string means no object, or an unobserved one.
    ///   - deliverImmediately: whether the post would have reached suspended clients too.
    /// - Returns: nil for a post that would have been refused anyway.
    public func reach(ofPost name: String?, object: String, deliverImmediately: Bool) -> LostPost.Reach? {
        // The service has checked the length of an unobserved name. The blank stands for it.
        guard (try? checkPost(name: name ?? " ", object: object)) != nil else { return nil }
        let (name, object) = (name.map(ExactText.init), object.isEmpty ? nil : ExactText(object))
        let isObserved = index.mayHaveObservers(name: name, object: object)
        // An unobserved object counts as no object: in both cases only observers of any object match.
        return LostPost.Reach(
            name: isObserved.name ? name : nil, object: isObserved.object ? object : nil,
            deliverImmediately: deliverImmediately)
    }

    /// Counts the posts of one entry as lost, to the clients that their properties match.
    ///
    /// - Parameter touched: the clients that have yet to get a report.
    /// - Returns: the number of observers that the posts match.
    private func lose(_ post: LostPost, touched: inout [Client], effects: inout [Effect]) -> Int {
        lastSerial += post.count
        counters.posted += post.count
        peers[post.poster]?.posted += post.count
        // A post with an unobserved name matches only observers of any name. The empty name, which none observes, does
        // the same.
        var matches = takeMatches(name: post.reach.name?.text ?? "", object: post.reach.object?.text ?? "")
        defer { giveBack(&matches) }
        if matches.countedReceivers == 0 { counters.unmatched += post.count }
        for receiver in matches.receivers {
            meter.count(1 + receiver.count)
            let client = receiver.client
            // Observers of a suspended client that drop notifications would not have got the post, so they miss
            // nothing.
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

/// Lost posts of one poster that would have reached the same observers.
public struct LostPost: Sendable {
    /// The properties of the posts that determine their receivers.
    public struct Reach: Hashable, Sendable {
        /// The name; nil for an unobserved name.
        let name: ExactText?
        /// The object; nil for no object and for an unobserved one.
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
