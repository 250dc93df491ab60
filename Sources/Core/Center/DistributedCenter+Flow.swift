// SPDX-License-Identifier: Apache-2.0
import CarillonCollections

/// What is on its way to connections, and how much of it there may be (A4, E4, `docs/flow-control.md`).
///
/// Every message to a connection counts in its window: notifications, other signals, and answers to its calls. What all
/// together have on their way has a bound as well, of which a process gets no more than what is left to others: so
/// those that do not read have ever smaller shares, and one that does finds room.
extension DistributedCenter {
    // MARK: Answers

    /// An answer to a connection is ready.
    ///
    /// - Returns: whether to send it now. Otherwise whoever drives the center keeps it, behind those that are kept for the
    ///   connection already, and sends the first of them at each ``Effect/sendAnswer(_:)``.
    public func mayAnswer(_ name: ClientName, byteCount: Int, effects: inout [Effect]) -> Bool {
        defer { eventEnded() }
        let peer = peer(name, effects: &effects)
        if peer.answers.isEmpty, peer.flow.isOpen, hasRoomOnTheWay(for: peer, byteCount) {
            countSent(byteCount, to: peer, effects: &effects)
            return true
        }
        if peer.answers.isEmpty, peer.flow.sendsAlone(byteCount: byteCount) {
            charge(peer, .inFlightBytes, byteCount)
            return true
        }
        peer.answers.append(byteCount + Self.answerOverhead)
        charge(peer, .answerBytes, byteCount + Self.answerOverhead)
        if peer.flow.isOpen { holdBack(peer, effects: &effects) }
        findWitness(for: peer, effects: &effects)
        return false
    }

    /// Some of the answers that are kept for a connection will not be sent: they are outcomes, and their channel has ended.
    ///
    /// - Parameter places: from the last on, which is 0.
    public func answersAreVoid(of name: ClientName, _ places: [Int], effects: inout [Effect]) {
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

    /// Whether a call that is not served is refused with a word: where nothing else is kept for the connection, or not so
    /// much more than what is served, and its process has room.
    public func mayRefuse(_ name: ClientName) -> Bool {
        guard let peer = peers[name] else { return mayBeStranger }
        return !isAnythingKept(for: peer)
            || peer.usage[.answerBytes] < limits[.answerBytesPerClient] + Self.roomForRefusals
                && hasRoomForAnswers(peer.account)
    }

    private static let roomForRefusals: UInt64 = 4 << 10

    /// Those that pay for values are bounded by these.
    private var mayBeStranger: Bool { clients.count + unregisteredPeers.count < 2 * Int(limits[.clients]) }

    private func isAnythingKept(for peer: Peer) -> Bool {
        !peer.answers.isEmpty || peer.replies?.kept.isEmpty == false
    }

    /// Whether calls of a connection that want an answer are served: not when too many answers are kept for it that it
    /// does not read, or for its process.
    public func isServed(_ name: ClientName) -> Bool {
        guard let peer = peers[name] else { return mayBeStranger }
        // The largest answer is sent at once.
        guard isAnythingKept(for: peer) || !isOpen(peer) || !hasRoomOnTheWay(for: peer, Self.largestAnswer) else {
            return true
        }
        guard !isAnythingKept(for: peer) || peer.usage[.answerBytes] < limits[.answerBytesPerClient] else {
            return false
        }
        return hasRoomForAnswers(peer.account)
            || distributeExcess(of: .answerBytes) && hasRoomForAnswers(peer.account)
    }

    /// Whether replies to a connection need not wait for what it has to read first.
    private func isOpen(_ peer: Peer) -> Bool {
        if let replies = peer.replies, replies.isInUse { return replies.flow.isOpen }
        return peer.flow.isOpen
    }

    /// No answer has more bytes.
    public static let largestAnswer = 4 << 20

    private func hasRoomForAnswers(_ account: Account) -> Bool {
        guard account.excess[.answerBytes] == 0 else { return false }
        let counted = used(.answerBytes)
        // All else that there is leaves room for a few at least.
        let memory = max(Int(limits[.memoryBytes]) - lastingMemory, Self.leastForAnswers - counted)
        let left = min(Int(limits[.answerBytes]) - counted, memory)
        return account.usage[.answerBytes] < left
    }

    /// The bytes that answers may have together.
    var answerLimit: Int {
        let memory = Int(limits[.memoryBytes]) - (lastingMemory - totals[.answerBytes])
        return min(Int(limits[.answerBytes]), max(memory, Self.leastForAnswers))
    }

    /// The room that answers have together, whatever else there is, in bytes.
    private static let leastForAnswers = 1 << 20

    /// Sends the only answer that is kept for a connection that answers Pings, though its window is used up: it may be a
    /// program of one thread that waits for it, and nothing tells what that has read.
    private func sendOnlyAnswer(to peer: Peer, effects: inout [Effect]) {
        peer.flow.letAnswersGoAlone()
        guard peer.answers.count == 1, let byteCount = peer.answers.first, peer.flow.sendsAlone(byteCount: byteCount)
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
            guard hasRoomOnTheWay(for: peer, byteCount) else { return holdBack(peer, effects: &effects) }
            meter.count()
            peer.answers.popFirst()
            charge(peer, .answerBytes, -byteCount)
            effects.append(.sendAnswer(peer.name))
            countSent(byteCount, to: peer, effects: &effects)
        }
    }

    // MARK: Sending

    /// Counts a message that goes to a connection now.
    ///
    /// - Parameters:
    ///   - told: what it tells that has a number.
    ///   - fills: whether the next would not find room in the window.
    func countSent(
        _ byteCount: Int, telling told: FlowWindow.Told = FlowWindow.Told(), fills: Bool = false, to peer: Peer,
        effects: inout [Effect]
    ) {
        charge(peer, .inFlightBytes, byteCount)
        lookForRoom(effects: &effects)
        let isFull = peer.flow.sent(byteCount: byteCount, telling: told, fills: fills)
        guard isFull || (isRoomWanted && peer.flow.isIdle) else { return }
        probe(peer, effects: &effects)
        if !peer.flow.isOpen { closed(peer, effects: &effects) }
    }

    func probe(_ peer: Peer, effects: inout [Effect]) {
        peer.flow.probe()
        effects.append(.probe(peer.name))
        if isAnyHeldBack { findWitness(for: peer, effects: &effects) }
    }

    /// From now on what is due waits, perhaps for long.
    func closed(_ peer: Peer, effects: inout [Effect]) {
        if let client = client(of: peer) { rememberDue(of: client, effects: &effects) }
        findWitness(for: peer, effects: &effects)
    }

    /// Has it found out whether a connection reads that something waits for, and that never answers; or whose room others
    /// wait for.
    func findWitness(for peer: Peer, effects: inout [Effect]) {
        guard isAnyHeldBack || !peer.answers.isEmpty || client(of: peer)?.awaitsSomething == true else { return }
        if peer.flow.needsBacklogProbe(isRoomWanted: isAnyHeldBack, isAnswerDue: !peer.answers.isEmpty) {
            effects.append(.witness(peer.name))
        }
    }

    var isAnyHeldBack: Bool { isLettingGo || !blockedOnQuota.isEmpty }

    var isRoomWanted: Bool { isQuotaLow || !blockedOnQuota.isEmpty }

    /// When half of what may be on its way is, nobody's confirmation waits for a whole window any more: who has read
    /// what there is gives the room back.
    func lookForRoom(effects: inout [Effect]) {
        let (all, limit) = (used(.inFlightBytes), Int(limits[.inFlightBytes]))
        if isQuotaLow {
            isQuotaLow = all > limit / 4
        } else if all > limit / 2 {
            if !isRoomWanted { askAll(effects: &effects) }
            isQuotaLow = true
        }
    }

    /// Asks whoever was sent something and not asked yet.
    private func askAll(effects: inout [Effect]) {
        meter.count(peers.count)
        let asked = peers.values.filter { $0.flow.isAnythingUnprobed || $0.replies != nil }
        meter.countSort(of: asked.count)
        // By name, so that the same events have the same effects in every process.
        for peer in asked.sorted(by: { $0.name < $1.name }) {
            if peer.flow.isIdle, peer.flow.unconfirmed.messages > 0 { probe(peer, effects: &effects) }
            askForReplies(peer, effects: &effects)
        }
    }

    /// Whether so much more may be on its way to a connection, as far as others are concerned. A process to which nothing is
    /// on its way need not leave anything to others: it has read all that it got.
    ///
    /// - Parameter before: what goes there before, together with it.
    func hasRoomOnTheWay(for peer: Peer, _ byteCount: Int, behind before: Int = 0) -> Bool {
        fitsOnTheWay(for: peer, byteCount, behind: before)
            || distributeExcess(of: .inFlightBytes) && fitsOnTheWay(for: peer, byteCount, behind: before)
    }

    /// The bytes of a short message, which a connection is sent whatever others of its process leave unread.
    private static let word = 1024

    private func fitsOnTheWay(for peer: Peer, _ byteCount: Int, behind before: Int) -> Bool {
        let all = used(.inFlightBytes) + before
        guard all > 0 else { return true }  // the largest notification has its turn as well
        let left = Int(limits[.inFlightBytes]) - all - byteCount
        let own = peer.account.usage[.inFlightBytes] + before
        guard peer.account.excess[.inFlightBytes] == 0 else { return false }
        // A connection that has read all that it got hears a word, whatever others of its process leave unread.
        if peer.usage[.inFlightBytes] == 0, byteCount <= Self.word, left >= Int(limits[.inFlightBytes]) / 8 {
            return true
        }
        return own == 0 ? left >= 0 : own + byteCount <= left
    }

    /// Has a connection wait for room on the way.
    func holdBack(_ peer: Peer, effects: inout [Effect]) {
        guard !peer.flow.isBlockedOnQuota else { return }
        peer.flow.isBlockedOnQuota = true
        if !isRoomWanted { askAll(effects: &effects) }
        let isFirst = !isAnyHeldBack
        blockedOnQuota.append(peer)
        closed(peer, effects: &effects)
        guard isFirst else { return }
        // Nobody else would ask for those that never answer and for which nothing waits.
        meter.count(peers.count)
        let asked = peers.values.filter { !$0.flow.isIdle || $0.flow.isBlocked || $0.replies != nil }
        meter.countSort(of: asked.count)
        for peer in asked.sorted(by: { $0.name < $1.name }) {
            findWitness(for: peer, effects: &effects)
            findReplyWitness(for: peer, effects: &effects)
        }
    }

    // MARK: Confirming

    /// A connection answered a probe, with a reply or with an error.
    public func clientAnswered(_ name: ClientName, effects: inout [Effect]) {
        defer { eventEnded() }
        guard let peer = peers[name] else { return }
        guard !peer.flow.isAnswerOverdue else { return peer.flow.noteAnswering() }
        confirm(peer.flow.answered(), of: peer, effects: &effects)
    }

    /// What ``Effect/witness(_:)`` asked for is known.
    ///
    /// - Parameter hasRead: whether all that was sent before has been read; false when there is no way to know, and a
    ///   while has passed.
    public func clientWitnessed(_ name: ClientName, hasRead: Bool, effects: inout [Effect]) {
        defer { eventEnded() }
        guard let peer = peers[name] else { return }
        let byteCount = peer.flow.witnessed(all: hasRead)
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
        // Also behind the first probe, which confirms nothing.
        if isRoomWanted, peer.flow.isIdle, peer.flow.unconfirmed.messages > 0 { probe(peer, effects: &effects) }
        unblock(effects: &effects)
        forgetIfUnused(peer)
    }

    /// Room on the way was made: those that wait for it get it by turns, each as far as its share goes. Some of them, as what
    /// they are sent is confirmed as well, and then it is the next ones' turn.
    func unblock(effects: inout [Effect]) {
        guard !blockedOnQuota.isEmpty, !isLettingGo else { return }
        isLettingGo = true
        defer { isLettingGo = false }
        // Each of them once: what one is to be sent next may need more room than it seemed, and then it waits again.
        var (left, looks) = (Self.maxLetGo, blockedOnQuota.count)
        for _ in 0..<blockedOnQuota.accountCount where left > 0 {
            guard let account = blockedOnQuota.beginTurn() else { break }
            meter.count()
            left -= 1
            while left > 0, looks > 0, let peer = blockedOnQuota.first(of: account),
                hasRoomOnTheWay(for: peer, sizeOfNext(for: peer))
            {
                looks -= 1
                meter.count()
                let before = totals[.inFlightBytes]
                blockedOnQuota.removeFirst(of: account)
                peer.flow.isBlockedOnQuota = false
                pump(peer, effects: &effects)
                // One that has nothing to be sent any more will not confirm it either.
                if totals[.inFlightBytes] > before { left -= 1 }
            }
            blockedOnQuota.endTurn(of: account)
        }
    }

    /// Accounts that are looked at, and connections that get room, in one event.
    private static let maxLetGo = 256

    private func sizeOfNext(for peer: Peer) -> Int {
        if let line = peer.replies, line.flow.isOpen, let size = line.kept.first { return size }
        if let size = peer.answers.first { return size }
        guard let client = client(of: peer) else { return 0 }
        if let size = client.queue.sizeOfNext { return size }
        guard let delayed = client.queue.delayedWithoutRoom, delayed.expiry.map({ $0 > clock.uptime() }) ?? true else {
            return 0
        }
        return delayed.byteCount
    }

    private func pump(_ peer: Peer, effects: inout [Effect]) {
        sendReplies(to: peer, effects: &effects)
        sendAnswers(to: peer, effects: &effects)
        if let client = client(of: peer) { pump(client, effects: &effects) }
        findWitness(for: peer, effects: &effects)
    }

    // MARK: Strangers

    /// The connection of this name. Those that are no clients are not watched, so they are bounded: the oldest that
    /// uses nothing is forgotten, and one that has not confirmed what it was sent is asked, which one that left confirms
    /// too.
    func peer(_ name: ClientName, effects: inout [Effect]) -> Peer {
        if let peer = peers[name] { return peer }
        let peer = peer(name)
        noteStranger(peer)
        var looks = 2
        while unregisteredPeers.count > Self.maxStrangers, looks > 0, let oldest = unregisteredPeers.popFirst() {
            meter.count()
            oldest.isAmongStrangers = false
            guard oldest.isKnown, !oldest.isClient else { continue }
            looks -= 1
            // It is watched, and is a stranger again without its values; until then these would give way (R1).
            if oldest.isDepartureWatched, oldest.usage[.retained] > 0 { continue }
            if oldest.usage.isOnlyRetained {
                forget(stranger: oldest, effects: &effects)
            } else {
                noteStranger(oldest)
                if oldest.flow.unconfirmed.messages > 0, oldest.flow.isIdle { probe(oldest, effects: &effects) }
            }
        }
        return peer
    }

    /// One has been forgotten. Those keep their places only until they are half of all, as it may take long until others come.
    func noteForgotten(_ peer: Peer) {
        guard peer.isAmongStrangers else { return }
        forgottenStrangers += 1
        guard 2 * forgottenStrangers > unregisteredPeers.count + 64 else { return }
        meter.count(unregisteredPeers.count)
        forgottenStrangers = 0
        unregisteredPeers.removeAll { peer in
            guard !peer.isKnown else { return false }
            peer.isAmongStrangers = false
            return true
        }
    }

    /// Puts one behind the others, if it is not there.
    func noteStranger(_ peer: Peer) {
        guard !peer.isAmongStrangers else { return }
        peer.isAmongStrangers = true
        unregisteredPeers.append(peer)
    }

    func forget(stranger: Peer, effects: inout [Effect]) {
        // Whoever drives the center has something of those alone.
        if stranger.isIdentified || stranger.isDepartureWatched || !stranger.answers.isEmpty
            || stranger.flow.state == .unanswered
        {
            effects.append(.forget(stranger.name))
        }
        forget(stranger)
    }

    private static let maxStrangers = 1024
    /// What keeping an answer costs besides its bytes, roughly.
    static let answerOverhead = 256
}
