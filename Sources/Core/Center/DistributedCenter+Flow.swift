// SPDX-License-Identifier: Apache-2.0
import CarillonCollections

/// Flow control: windows of connections and the in-flight quota (A4, E4, `docs/flow-control.md`).
///
/// Every message to a connection counts in its window: notifications, other signals, and answers to its calls. The
/// in-flight bytes of all connections have a limit too. A process may use no more of it than remains free. Thus
/// processes that do not read have ever smaller shares, and a process that reads finds capacity.
extension DistributedCenter {
    // MARK: Answers

    /// Counts an answer to a connection that is ready.
    ///
    /// - Returns: whether to send it now. Otherwise the driver appends it to the pending answers of the connection, and
    ///   sends the first of them at each ``Effect/sendAnswer(_:)``.
    public func mayAnswer(_ name: ClientName, byteCount: Int, effects: inout [Effect]) -> Bool {
        defer { eventEnded() }
        let peer = peer(name, effects: &effects)
        if peer.answers.isEmpty, peer.flow.isOpen, fitsInFlightQuota(for: peer, byteCount) {
            countSent(byteCount, to: peer, effects: &effects)
            return true
        }
        if peer.answers.isEmpty, peer.flow.sendsSingleReply(byteCount: byteCount) {
            charge(peer, .inFlightBytes, byteCount)
            return true
        }
        peer.answers.append(byteCount + Self.answerOverhead)
        charge(peer, .answerBytes, byteCount + Self.answerOverhead)
        if peer.flow.isOpen { blockOnQuota(peer, effects: &effects) }
        probeBacklogIfNeeded(for: peer, effects: &effects)
        return false
    }

    /// Discards pending answers of a connection: outcomes of posts on a channel that has ended.
    ///
    /// - Parameter places: the places of the answers, counted from the last one, which is 0.
    public func discardAnswers(of name: ClientName, _ places: [Int], effects: inout [Effect]) {
        defer { eventEnded() }
        guard let peer = peers[name] else { return }
        for place in places where place < peer.answers.count {
            meter.count()
            let place = peer.answers.count - 1 - place
            charge(peer, .answerBytes, -peer.answers[place])
            peer.answers[place] = 0
        }
        sendAnswers(to: peer, effects: &effects)
        lookForRoom(effects: &effects)
    }

    /// Whether a call that is not served gets an error. That is so while no answer is pending for the connection, or
    /// while its pending answers are within `answer-bytes-per-client` and 4 KiB more, and its process has capacity.
    public func mayRefuse(_ name: ClientName) -> Bool {
        guard let peer = peers[name] else { return hasCapacityForUnregistered }
        return !isAnythingKept(for: peer)
            || peer.usage[.answerBytes] < limits[.answerBytesPerClient] + Self.roomForRefusals
                && hasRoomForAnswers(peer.account)
    }

    private static let roomForRefusals: UInt64 = 4 << 10

    /// Whether an unknown connection may be kept. Payers of values are not counted here, as the limits of values bound
    /// them.
    private var hasCapacityForUnregistered: Bool { clients.count + unregisteredPeers.count < 2 * Int(limits[.clients]) }

    private func isAnythingKept(for peer: Peer) -> Bool {
        !peer.answers.isEmpty || peer.replies?.kept.isEmpty == false
    }

    /// Whether calls of a connection that want an answer are served: not with too many pending answers for it or its
    /// process.
    public func isServed(_ name: ClientName) -> Bool {
        guard let peer = peers[name] else { return hasCapacityForUnregistered }
        // Even the largest answer could be sent at once.
        guard isAnythingKept(for: peer) || !isOpen(peer) || !fitsInFlightQuota(for: peer, Self.largestAnswer) else {
            return true
        }
        guard !isAnythingKept(for: peer) || peer.usage[.answerBytes] < limits[.answerBytesPerClient] else {
            return false
        }
        return hasRoomForAnswers(peer.account)
            || distributeExcess(of: .answerBytes) && hasRoomForAnswers(peer.account)
    }

    /// Whether replies to a connection can be sent without an acknowledgment first.
    private func isOpen(_ peer: Peer) -> Bool {
        if let replies = peer.replies, replies.isInUse { return replies.flow.isOpen }
        return peer.flow.isOpen
    }

    /// The maximum size of an answer, in bytes.
    public static let largestAnswer = 4 << 20

    private func hasRoomForAnswers(_ account: Account) -> Bool {
        guard account.excess[.answerBytes] == 0 else { return false }
        let counted = used(.answerBytes)
        // Other memory leaves capacity for at least a few answers.
        let memory = max(Int(limits[.memoryBytes]) - lastingMemory, Self.leastForAnswers - counted)
        let left = min(Int(limits[.answerBytes]) - counted, memory)
        return account.usage[.answerBytes] < left
    }

    /// The maximum size of all pending answers, in bytes.
    var answerLimit: Int {
        let memory = Int(limits[.memoryBytes]) - (lastingMemory - totals[.answerBytes])
        return min(Int(limits[.answerBytes]), max(memory, Self.leastForAnswers))
    }

    /// The capacity for pending answers whatever other memory is used, in bytes.
    private static let leastForAnswers = 1 << 20

    /// Sends the only pending answer to a connection that answers Pings, although its window is full. The connection
    /// may be a single-threaded program that waits for the answer, and nothing shows what such a program has read.
    private func sendOnlyAnswer(to peer: Peer, effects: inout [Effect]) {
        peer.flow.allowSingleReplies()
        guard peer.answers.count == 1, let byteCount = peer.answers.first,
            peer.flow.sendsSingleReply(byteCount: byteCount)
        else { return }
        peer.answers.popFirst()
        charge(peer, .answerBytes, -byteCount)
        effects.append(.sendAnswer(peer.name))
        charge(peer, .inFlightBytes, byteCount)
    }

    private func sendAnswers(to peer: Peer, effects: inout [Effect]) {
        while let byteCount = peer.answers.first, byteCount == 0 || peer.flow.isOpen {
            guard byteCount > 0 else {
                peer.answers.popFirst()
                effects.append(.sendAnswer(peer.name))
                continue
            }
            guard fitsInFlightQuota(for: peer, byteCount) else { return blockOnQuota(peer, effects: &effects) }
            meter.count()
            peer.answers.popFirst()
            charge(peer, .answerBytes, -byteCount)
            effects.append(.sendAnswer(peer.name))
            countSent(byteCount, to: peer, effects: &effects)
        }
    }

    // MARK: Sending

    /// Counts a message that is sent to a connection now.
    ///
    /// - Parameters:
    ///   - told: the notifications and losses in the message.
    ///   - fills: whether the next message would not fit into the window.
    func countSent(
        _ byteCount: Int, content told: FlowWindow.NumberedContent = FlowWindow.NumberedContent(), fills: Bool = false,
        to peer: Peer,
        effects: inout [Effect]
    ) {
        charge(peer, .inFlightBytes, byteCount)
        lookForRoom(effects: &effects)
        let isFull = peer.flow.sent(byteCount: byteCount, content: told, fills: fills)
        guard isFull || (isRoomWanted && peer.flow.isIdle) else { return }
        probe(peer, effects: &effects)
        if !peer.flow.isOpen { closed(peer, effects: &effects) }
    }

    func probe(_ peer: Peer, effects: inout [Effect]) {
        peer.flow.probe()
        effects.append(.probe(peer.name))
        if isAnyBlocked { probeBacklogIfNeeded(for: peer, effects: &effects) }
    }

    /// Takes the end of sending to a connection, perhaps for long.
    func closed(_ peer: Peer, effects: inout [Effect]) {
        if let client = client(of: peer) { rememberDue(of: client, effects: &effects) }
        probeBacklogIfNeeded(for: peer, effects: &effects)
    }

    /// Starts a backlog probe where it is needed: for a connection that never answers, and for which messages wait or
    /// whose in-flight bytes others wait for.
    func probeBacklogIfNeeded(for peer: Peer, effects: inout [Effect]) {
        guard isAnyBlocked || !peer.answers.isEmpty || client(of: peer)?.awaitsSomething == true else { return }
        if peer.flow.needsBacklogProbe(isRoomWanted: isAnyBlocked, isAnswerDue: !peer.answers.isEmpty) {
            effects.append(.backlogProbe(peer.name))
        }
    }

    var isAnyBlocked: Bool { isUnblocking || !blockedOnQuota.isEmpty }

    var isRoomWanted: Bool { isQuotaLow || !blockedOnQuota.isEmpty }

    /// Updates whether the in-flight quota is low. When half of it is used, probes no longer wait for full windows, so
    /// that connections that have read free their in-flight bytes. That ends at a quarter.
    func lookForRoom(effects: inout [Effect]) {
        let (all, limit) = (used(.inFlightBytes), Int(limits[.inFlightBytes]))
        if isQuotaLow {
            isQuotaLow = all > limit / 4
        } else if all > limit / 2 {
            if !isRoomWanted { askAll(effects: &effects) }
            isQuotaLow = true
        }
    }

    /// Probes each connection with messages that were sent since its last probe.
    private func askAll(effects: inout [Effect]) {
        meter.count(peers.count)
        let asked = peers.values.filter { $0.flow.hasUnprobed || $0.replies != nil }
        meter.countSort(of: asked.count)
        // Sorted by name, so that the same events have the same effects in every process.
        for peer in asked.sorted(by: { $0.name < $1.name }) {
            if peer.flow.isIdle, peer.flow.unconfirmed.messages > 0 { probe(peer, effects: &effects) }
            askForReplies(peer, effects: &effects)
        }
    }

    /// Whether the in-flight quota has capacity for so much more to a connection. A process without in-flight bytes
    /// need not leave anything to others: it has read all that it got.
    ///
    /// - Parameter before: the bytes of earlier entries of the same message.
    func fitsInFlightQuota(for peer: Peer, _ byteCount: Int, behind before: Int = 0) -> Bool {
        fitsInFlight(for: peer, byteCount, behind: before)
            || distributeExcess(of: .inFlightBytes) && fitsInFlight(for: peer, byteCount, behind: before)
    }

    /// The maximum size of a short message, in bytes. A connection is sent one even if others of its process do not
    /// read.
    private static let word = 1024

    private func fitsInFlight(for peer: Peer, _ byteCount: Int, behind before: Int) -> Bool {
        let all = used(.inFlightBytes) + before
        guard all > 0 else { return true }  // a message of any size goes when nothing else is in flight
        let left = Int(limits[.inFlightBytes]) - all - byteCount
        let own = peer.account.usage[.inFlightBytes] + before
        guard peer.account.excess[.inFlightBytes] == 0 else { return false }
        // A connection that has read all that it got is sent a short message, even if others of its process do not
        // read.
        if peer.usage[.inFlightBytes] == 0, byteCount <= Self.word, left >= Int(limits[.inFlightBytes]) / 8 {
            return true
        }
        return own == 0 ? left >= 0 : own + byteCount <= left
    }

    /// Blocks a connection on the in-flight quota.
    func blockOnQuota(_ peer: Peer, effects: inout [Effect]) {
        guard !peer.flow.isBlockedOnQuota else { return }
        peer.flow.isBlockedOnQuota = true
        if !isRoomWanted { askAll(effects: &effects) }
        let isFirst = !isAnyBlocked
        blockedOnQuota.append(peer)
        closed(peer, effects: &effects)
        guard isFirst else { return }
        // Connections that never answer, and for which nothing waits, would be probed by no other event.
        meter.count(peers.count)
        let asked = peers.values.filter { !$0.flow.isIdle || $0.flow.isBlocked || $0.replies != nil }
        meter.countSort(of: asked.count)
        for peer in asked.sorted(by: { $0.name < $1.name }) {
            probeBacklogIfNeeded(for: peer, effects: &effects)
            findReplyWitness(for: peer, effects: &effects)
        }
    }

    // MARK: Acknowledgments

    /// Takes the answer of a connection to a probe, a reply or an error.
    public func clientAnswered(_ name: ClientName, effects: inout [Effect]) {
        defer { eventEnded() }
        guard let peer = peers[name] else { return }
        guard !peer.flow.expectsStaleAck else { return peer.flow.noteAnswering() }
        confirm(peer.flow.answered(), of: peer, effects: &effects)
    }

    /// Takes the result of a backlog probe, ``Effect/backlogProbe(_:)``.
    ///
    /// - Parameter hasRead: whether the connection has read all that was sent before; false when nothing can show that,
    ///   and a while has passed.
    public func backlogProbed(_ name: ClientName, hasRead: Bool, effects: inout [Effect]) {
        defer { eventEnded() }
        guard let peer = peers[name] else { return }
        let byteCount = peer.flow.backlogProbed(all: hasRead)
        if !hasRead, peer.flow.answersProbes { sendOnlyAnswer(to: peer, effects: &effects) }
        confirm(byteCount, of: peer, effects: &effects)
    }

    func confirm(_ byteCount: Int, of peer: Peer, effects: inout [Effect]) {
        charge(peer, .inFlightBytes, -byteCount)
        if byteCount > 0 {
            peer.confirmedBytes += UInt64(byteCount)
            client(of: peer)?.isSlowConsumer = false
        }
        pump(peer, effects: &effects)
        lookForRoom(effects: &effects)
        // Also after the first probe, which acknowledges nothing.
        if isRoomWanted, peer.flow.isIdle, peer.flow.unconfirmed.messages > 0 { probe(peer, effects: &effects) }
        unblock(effects: &effects)
        forgetIfUnused(peer)
    }

    /// Unblocks connections that wait for the in-flight quota, the accounts in rotation, each as far as its share goes.
    /// One event unblocks a bounded number. Their acknowledgments unblock the next ones.
    func unblock(effects: inout [Effect]) {
        guard !blockedOnQuota.isEmpty, !isUnblocking else { return }
        isUnblocking = true
        defer { isUnblocking = false }
        // Each connection once: its next message may need more quota than expected, and then it is blocked again.
        var (left, looks) = (Self.maxUnblocked, blockedOnQuota.count)
        for _ in 0..<blockedOnQuota.accountCount where left > 0 {
            guard let account = blockedOnQuota.beginTurn() else { break }
            meter.count()
            left -= 1
            while left > 0, looks > 0, let peer = blockedOnQuota.first(of: account),
                fitsInFlightQuota(for: peer, sizeOfNext(for: peer))
            {
                looks -= 1
                meter.count()
                let before = totals[.inFlightBytes]
                blockedOnQuota.removeFirst(of: account)
                peer.flow.isBlockedOnQuota = false
                pump(peer, effects: &effects)
                // A connection that was sent nothing does not count, as it will acknowledge nothing.
                if totals[.inFlightBytes] > before { left -= 1 }
            }
            blockedOnQuota.endTurn(of: account)
        }
    }

    /// The maximum number of accounts that are examined, and of connections that are unblocked, in one event.
    private static let maxUnblocked = 256

    private func sizeOfNext(for peer: Peer) -> Int {
        if let line = peer.replies, line.flow.isOpen, let size = line.kept.first { return size }
        if let size = peer.answers.first { return size }
        guard let client = client(of: peer) else { return 0 }
        if let size = client.queue.sizeOfNext { return size }
        guard let throttled = client.queue.throttledOnQuota, throttled.expiry.map({ $0 > clock.uptime() }) ?? true
        else {
            return 0
        }
        return throttled.byteCount
    }

    private func pump(_ peer: Peer, effects: inout [Effect]) {
        sendReplies(to: peer, effects: &effects)
        sendAnswers(to: peer, effects: &effects)
        if let client = client(of: peer) { pump(client, effects: &effects) }
        probeBacklogIfNeeded(for: peer, effects: &effects)
    }

    // MARK: Unregistered peers

    /// Returns the connection of this name. Connections that are not clients are not watched, so their number is
    /// bounded. The oldest that uses nothing is forgotten. An older one with unacknowledged messages is probed; the
    /// probe of a connection that left is answered too, by the bus.
    func peer(_ name: ClientName, effects: inout [Effect]) -> Peer {
        if let peer = peers[name] { return peer }
        let peer = peer(name)
        noteUnregistered(peer)
        var looks = 2
        while unregisteredPeers.count > Self.maxUnregistered, looks > 0, let oldest = unregisteredPeers.popFirst() {
            meter.count()
            oldest.isListedUnregistered = false
            guard oldest.isKnown, !oldest.isClient else { continue }
            looks -= 1
            // A watched payer of values stays, as its values would become reclaimable (R1). It is listed again when its
            // values are gone.
            if oldest.isDepartureWatched, oldest.usage[.retained] > 0 { continue }
            if oldest.usage.isOnlyRetained {
                forget(unregistered: oldest, effects: &effects)
            } else {
                noteUnregistered(oldest)
                if oldest.flow.unconfirmed.messages > 0, oldest.flow.isIdle { probe(oldest, effects: &effects) }
            }
        }
        return peer
    }

    /// Counts a forgotten connection. The list is compacted when about half of it is forgotten, as new connections may
    /// be rare.
    func noteForgotten(_ peer: Peer) {
        guard peer.isListedUnregistered else { return }
        forgottenUnregistered += 1
        guard 2 * forgottenUnregistered > unregisteredPeers.count + 64 else { return }
        meter.count(unregisteredPeers.count)
        forgottenUnregistered = 0
        unregisteredPeers.removeAll { peer in
            guard !peer.isKnown else { return false }
            peer.isListedUnregistered = false
            return true
        }
    }

    /// Appends a connection to the unregistered peers, if it is not among them.
    func noteUnregistered(_ peer: Peer) {
        guard !peer.isListedUnregistered else { return }
        peer.isListedUnregistered = true
        unregisteredPeers.append(peer)
    }

    func forget(unregistered peer: Peer, effects: inout [Effect]) {
        // The driver keeps state of only these connections.
        if peer.isIdentified || peer.isDepartureWatched || !peer.answers.isEmpty
            || peer.flow.state == .unanswered
        {
            effects.append(.forget(peer.name))
        }
        forget(peer)
    }

    private static let maxUnregistered = 1024
    /// The approximate memory of a pending answer besides its bytes.
    static let answerOverhead = 256
}
