// SPDX-License-Identifier: Apache-2.0
import CarillonCollections

/// Flow control: windows of connections, pending answers, and the in-flight quota (A4, E4, `docs/flow-control.md`).
///
/// Every message to a connection counts in its window until it is acknowledged: notifications, other signals, and
/// answers (replies to its method calls). A full window is probed by a `Peer.Ping`; with two unacknowledged windows,
/// sending stops.
///
/// All connections share the quota of in-flight bytes. A process may use no more of it than remains free, so processes
/// that do not read get ever smaller shares, and a process that reads finds capacity.
extension DistributedCenter {
    // MARK: Answers

    /// Counts an answer that is ready to be sent to a connection.
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
        // The program may wait for this answer before it reads anything else (``sendOnlyAnswer(to:effects:)``).
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

    /// Discards pending answers of a connection: the outcomes of posts on a channel that has ended. A discarded answer
    /// keeps its place with size 0. Its ``Effect/sendAnswer(_:)`` sends nothing, and keeps the driver's queue in step.
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
        updateQuotaLow(effects: &effects)
    }

    /// Whether a call that is not served gets an error as its answer. Otherwise it gets none: answers to a caller that
    /// does not read must have a bound.
    ///
    /// A call gets an error while no answer is pending for the connection. It also gets one while its pending answers
    /// are within `answer-bytes-per-client` plus 4 KiB, and its process has capacity for answers.
    public func mayRefuse(_ name: ClientName) -> Bool {
        guard let peer = peers[name] else { return hasCapacityForUnregistered }
        return !isAnythingKept(for: peer)
            || peer.usage[.answerBytes] < limits[.answerBytesPerClient] + Self.reserveForRefusals
                && hasCapacityForAnswers(peer.account)
    }

    /// The size beyond `answer-bytes-per-client` that is reserved for errors, in bytes.
    private static let reserveForRefusals: UInt64 = 4 << 10

    /// Whether an unknown connection may be kept. Payers of values do not count here, as the limits of values bound
    /// them.
    private var hasCapacityForUnregistered: Bool { clients.count + unregisteredPeers.count < 2 * Int(limits[.clients]) }

    /// Whether an answer or reply is pending for the connection.
    private func isAnythingKept(for peer: Peer) -> Bool {
        !peer.answers.isEmpty || peer.replies?.kept.isEmpty == false
    }

    /// Whether calls of a connection that want an answer are served. They are not served while too many answers are
    /// pending for the connection or its process.
    public func isServed(_ name: ClientName) -> Bool {
        guard let peer = peers[name] else { return hasCapacityForUnregistered }
        // Nothing waits, and even the largest answer could be sent at once.
        guard isAnythingKept(for: peer) || !isOpen(peer) || !fitsInFlightQuota(for: peer, Self.largestAnswer) else {
            return true
        }
        guard !isAnythingKept(for: peer) || peer.usage[.answerBytes] < limits[.answerBytesPerClient] else {
            return false
        }
        return hasCapacityForAnswers(peer.account)
            || distributeExcess(of: .answerBytes) && hasCapacityForAnswers(peer.account)
    }

    /// Whether replies to a connection can be sent without an acknowledgment first.
    private func isOpen(_ peer: Peer) -> Bool {
        if let replies = peer.replies, replies.isInUse { return replies.flow.isOpen }
        return peer.flow.isOpen
    }

    /// The maximum size of an answer, in bytes.
    public static let largestAnswer = 4 << 20

    /// Whether an account may have more pending answers: they are at most half of the space that others do not use. An
    /// account with excess of a lowered limit gets no more.
    private func hasCapacityForAnswers(_ account: Account) -> Bool {
        guard account.excess[.answerBytes] == 0 else { return false }
        let counted = used(.answerBytes)
        // Pending answers have space for at least a few answers, however much memory other state uses.
        let memory = max(Int(limits[.memoryBytes]) - lastingMemory, Self.leastForAnswers - counted)
        let left = min(Int(limits[.answerBytes]) - counted, memory)
        return account.usage[.answerBytes] < left
    }

    /// The limit of all pending answers, in bytes: the configured one, or the memory that other state leaves.
    var answerLimit: Int {
        let memory = Int(limits[.memoryBytes]) - (lastingMemory - totals[.answerBytes])
        return min(Int(limits[.answerBytes]), max(memory, Self.leastForAnswers))
    }

    /// The minimum of that limit, in bytes.
    private static let leastForAnswers = 1 << 20

    /// Sends the only pending answer although the window is full, to a connection that answers Pings. It may be a
    /// single-threaded program that waits for this answer and reads nothing else before. It then answers no Ping, and
    /// nothing shows which messages it has read.
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

    /// Sends the pending answers of a connection, as far as its window and the in-flight quota allow.
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

    /// Counts a message that is sent to a connection now, and probes a full window. While in-flight bytes are wanted,
    /// it also probes a window that is not full, if no earlier probe is unanswered.
    ///
    /// - Parameters:
    ///   - numbered: the notifications and losses in the message.
    ///   - fills: whether the next message would not fit into the window, so that it counts as full.
    func countSent(
        _ byteCount: Int, content numbered: FlowWindow.NumberedContent = FlowWindow.NumberedContent(),
        fills: Bool = false,
        to peer: Peer,
        effects: inout [Effect]
    ) {
        charge(peer, .inFlightBytes, byteCount)
        updateQuotaLow(effects: &effects)
        let isFull = peer.flow.sent(byteCount: byteCount, content: numbered, fills: fills)
        guard isFull || (isQuotaWanted && peer.flow.isIdle) else { return }
        probe(peer, effects: &effects)
        if !peer.flow.isOpen { closed(peer, effects: &effects) }
    }

    /// Sends a Ping to a connection. Its answer acknowledges the messages so far. While connections are blocked on the
    /// quota, a connection that never answers Pings gets a socket backlog probe as well.
    func probe(_ peer: Peer, effects: inout [Effect]) {
        peer.flow.probe()
        effects.append(.probe(peer.name))
        if isAnyBlocked { probeBacklogIfNeeded(for: peer, effects: &effects) }
    }

    /// Called when sending to a connection stops, perhaps for long: its window is used up, or it is blocked on the
    /// quota. Its due notifications are then logged.
    func closed(_ peer: Peer, effects: inout [Effect]) {
        if let client = client(of: peer) { rememberDue(of: client, effects: &effects) }
        probeBacklogIfNeeded(for: peer, effects: &effects)
    }

    /// Starts a socket backlog probe of a connection that never answered a Ping, or that waits for an answer. It is
    /// needed only while messages wait for this connection, or while other connections wait for its in-flight bytes.
    func probeBacklogIfNeeded(for peer: Peer, effects: inout [Effect]) {
        guard isAnyBlocked || !peer.answers.isEmpty || client(of: peer)?.hasPendingMessages == true else { return }
        if peer.flow.needsBacklogProbe(isQuotaWanted: isAnyBlocked, isAnswerDue: !peer.answers.isEmpty) {
            effects.append(.backlogProbe(peer.name))
        }
    }

    /// Whether any connection is blocked on the in-flight quota.
    var isAnyBlocked: Bool { isUnblocking || !blockedOnQuota.isEmpty }

    /// Whether in-flight bytes are needed soon or now, so that connections are probed early.
    var isQuotaWanted: Bool { isQuotaLow || !blockedOnQuota.isEmpty }

    /// Updates whether the in-flight quota is low: from the time when half of it is used, until only a quarter is used.
    ///
    /// While it is low, connections are probed before their windows are full. Connections that have read their messages
    /// thus free their in-flight bytes early.
    func updateQuotaLow(effects: inout [Effect]) {
        let (all, limit) = (used(.inFlightBytes), Int(limits[.inFlightBytes]))
        if isQuotaLow {
            isQuotaLow = all > limit / 4
        } else if all > limit / 2 {
            // While connections are blocked, all have been probed already.
            if !isQuotaWanted { probeAll(effects: &effects) }
            isQuotaLow = true
        }
    }

    /// Probes each connection that was sent messages since its last probe.
    private func probeAll(effects: inout [Effect]) {
        meter.count(peers.count)
        let asked = peers.values.filter { $0.flow.hasUnprobed || $0.replies != nil }
        meter.countSort(of: asked.count)
        // Sorted by name, so that the same events have the same effects in every process.
        for peer in asked.sorted(by: { $0.name < $1.name }) {
            if peer.flow.isIdle, peer.flow.unconfirmed.messages > 0 { probe(peer, effects: &effects) }
            probeUnprobedReplies(peer, effects: &effects)
        }
    }

    /// Whether the in-flight quota has capacity for a message to a connection. A process may have no more bytes in
    /// flight than remain free. Exception: a process without in-flight bytes has read all its messages, and may use all
    /// that is free.
    ///
    /// - Parameters:
    ///   - byteCount: the size of the message, or of its next entry, in bytes.
    ///   - before: the bytes of earlier entries of the same message.
    func fitsInFlightQuota(for peer: Peer, _ byteCount: Int, behind before: Int = 0) -> Bool {
        fitsInFlight(for: peer, byteCount, behind: before)
            || distributeExcess(of: .inFlightBytes) && fitsInFlight(for: peer, byteCount, behind: before)
    }

    /// The maximum size of a short message, in bytes. A connection without in-flight bytes is sent a short message even
    /// if others of its process do not read.
    private static let maxShortMessage = 1024

    /// The rule of ``fitsInFlightQuota(for:_:behind:)``, with the excess as it is distributed now.
    private func fitsInFlight(for peer: Peer, _ byteCount: Int, behind before: Int) -> Bool {
        let all = used(.inFlightBytes) + before
        guard all > 0 else { return true }  // a message of any size goes when nothing else is in flight
        let left = Int(limits[.inFlightBytes]) - all - byteCount
        let own = peer.account.usage[.inFlightBytes] + before
        guard peer.account.excess[.inFlightBytes] == 0 else { return false }
        // The exception for a short message. It leaves an eighth of the quota to other processes.
        if peer.usage[.inFlightBytes] == 0, byteCount <= Self.maxShortMessage, left >= Int(limits[.inFlightBytes]) / 8 {
            return true
        }
        return own == 0 ? left >= 0 : own + byteCount <= left
    }

    /// Blocks a connection on the in-flight quota: it is sent nothing until ``unblock(effects:)`` finds capacity.
    func blockOnQuota(_ peer: Peer, effects: inout [Effect]) {
        guard !peer.flow.isBlockedOnQuota else { return }
        peer.flow.isBlockedOnQuota = true
        // From now on in-flight bytes are wanted.
        if !isQuotaWanted { probeAll(effects: &effects) }
        let isFirst = !isAnyBlocked
        blockedOnQuota.append(peer)
        closed(peer, effects: &effects)
        guard isFirst else { return }
        // Other connections now wait for in-flight bytes. Connections that never answer Pings hold some of them, and if
        // nothing waits for such a connection no other event probes its socket.
        meter.count(peers.count)
        let asked = peers.values.filter { !$0.flow.isIdle || $0.flow.isBlocked || $0.replies != nil }
        meter.countSort(of: asked.count)
        for peer in asked.sorted(by: { $0.name < $1.name }) {
            probeBacklogIfNeeded(for: peer, effects: &effects)
            probeReplyBacklogIfNeeded(for: peer, effects: &effects)
        }
    }

    // MARK: Acknowledgments

    /// Handles the answer of a connection to a Ping, be it a reply or an error.
    public func clientAnswered(_ name: ClientName, effects: inout [Effect]) {
        defer { eventEnded() }
        guard let peer = peers[name] else { return }
        // An answer to a Ping from before the channel acknowledges no message of the present windows.
        guard !peer.flow.expectsStaleAck else { return peer.flow.noteAnswering() }
        confirm(peer.flow.answered(), of: peer, effects: &effects)
    }

    /// Handles the result of a socket backlog probe, ``Effect/backlogProbe(_:)``.
    ///
    /// - Parameter hasRead: whether the connection has read all messages sent before. False means that the socket can't
    ///   show it, and that some time has passed. Then the oldest window is assumed to be read, if the connection never
    ///   answered.
    public func backlogProbed(_ name: ClientName, hasRead: Bool, effects: inout [Effect]) {
        defer { eventEnded() }
        guard let peer = peers[name] else { return }
        let byteCount = peer.flow.backlogProbed(all: hasRead)
        if !hasRead, peer.flow.answersProbes { sendOnlyAnswer(to: peer, effects: &effects) }
        confirm(byteCount, of: peer, effects: &effects)
    }

    /// Handles an acknowledgment: credits its bytes. Then waiting messages are sent to this connection, and to
    /// connections that were blocked on the quota.
    func confirm(_ byteCount: Int, of peer: Peer, effects: inout [Effect]) {
        charge(peer, .inFlightBytes, -byteCount)
        if byteCount > 0 {
            peer.confirmedBytes += UInt64(byteCount)
            client(of: peer)?.isSlowConsumer = false
        }
        pump(peer, effects: &effects)
        updateQuotaLow(effects: &effects)
        // Also after the first probe of a new client, which acknowledges no bytes.
        if isQuotaWanted, peer.flow.isIdle, peer.flow.unconfirmed.messages > 0 { probe(peer, effects: &effects) }
        unblock(effects: &effects)
        forgetIfUnused(peer)
    }

    /// Unblocks connections that wait for the in-flight quota, as far as their shares allow. Accounts are served
    /// round-robin. An event unblocks a bounded number of connections; their acknowledgments unblock the next ones.
    func unblock(effects: inout [Effect]) {
        guard !blockedOnQuota.isEmpty, !isUnblocking else { return }
        isUnblocking = true
        defer { isUnblocking = false }
        // Each connection is tried once: if its next message needs more quota than expected, it is blocked again.
        var (left, attempts) = (Self.maxUnblocked, blockedOnQuota.count)
        for _ in 0..<blockedOnQuota.accountCount where left > 0 {
            guard let account = blockedOnQuota.takeNextAccount() else { break }
            meter.count()
            left -= 1
            while left > 0, attempts > 0, let peer = blockedOnQuota.first(of: account),
                fitsInFlightQuota(for: peer, sizeOfNext(for: peer))
            {
                attempts -= 1
                meter.count()
                let before = totals[.inFlightBytes]
                blockedOnQuota.removeFirst(of: account)
                peer.flow.isBlockedOnQuota = false
                pump(peer, effects: &effects)
                // A connection that was sent nothing does not count: it will acknowledge nothing that could unblock the
                // next ones.
                if totals[.inFlightBytes] > before { left -= 1 }
            }
            blockedOnQuota.putBackAccount(of: account)
        }
    }

    /// The maximum number of accounts that one event examines, and of connections that it unblocks.
    private static let maxUnblocked = 256

    /// The size of the next message that waits for the connection, in bytes. It is 0 for none, and for a retained
    /// value, whose size is not known here.
    private func sizeOfNext(for peer: Peer) -> Int {
        if let replies = peer.replies, replies.flow.isOpen, let size = replies.kept.first { return size }
        if let size = peer.answers.first { return size }
        guard let client = client(of: peer) else { return 0 }
        if let size = client.queue.sizeOfNext { return size }
        // An expired one is removed without a message.
        guard let throttled = client.queue.throttledOnQuota, throttled.expiry.map({ $0 > clock.uptime() }) ?? true
        else {
            return 0
        }
        return throttled.byteCount
    }

    /// Sends a connection its pending replies, answers and notifications, as far as its windows allow.
    private func pump(_ peer: Peer, effects: inout [Effect]) {
        sendReplies(to: peer, effects: &effects)
        sendAnswers(to: peer, effects: &effects)
        if let client = client(of: peer) { pump(client, effects: &effects) }
        probeBacklogIfNeeded(for: peer, effects: &effects)
    }

    // MARK: Unregistered peers

    /// Returns the peer of this name. A new peer is not a client.
    ///
    /// Peers that are not clients are not watched, so they may be gone, and their number is bounded. Beyond the bound
    /// the oldest are examined. A peer that uses nothing, or only retained values, is forgotten. A peer with
    /// unacknowledged messages is probed, which frees it even if it has left: then the bus answers the Ping with an
    /// error.
    func peer(_ name: ClientName, effects: inout [Effect]) -> Peer {
        if let peer = peers[name] { return peer }
        let peer = peer(name)
        noteUnregistered(peer)
        // More are examined than added, so that the list shrinks.
        var attempts = 2
        while unregisteredPeers.count > Self.maxUnregistered, attempts > 0, let oldest = unregisteredPeers.popFirst() {
            meter.count()
            oldest.isListedUnregistered = false
            guard oldest.isKnown, !oldest.isClient else { continue }
            attempts -= 1
            // A watched payer of values stays: if it were forgotten, its values would be reclaimable like those of
            // departed posters (R1). It is listed again when its values are gone.
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

    /// Counts a forgotten connection that is still in the list. The list is compacted when about half of it is
    /// forgotten, because new connections, which also clean it, may be rare.
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

    /// Forgets a connection that is not a client.
    func forget(unregistered peer: Peer, effects: inout [Effect]) {
        // The driver has state of only these connections, so it need not be informed about others.
        if peer.isIdentified || peer.isDepartureWatched || !peer.answers.isEmpty
            || peer.flow.state == .unanswered
        {
            effects.append(.forget(peer.name))
        }
        forget(peer)
    }

    /// The maximum number of peers in ``unregisteredPeers`` before the oldest are examined.
    private static let maxUnregistered = 1024
    /// The approximate memory of a pending answer besides its bytes, in bytes.
    static let answerOverhead = 256
}
