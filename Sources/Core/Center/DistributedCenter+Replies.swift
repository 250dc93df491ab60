// SPDX-License-Identifier: Apache-2.0
/// Replies to the calls of clients that have channels (F2, A4).
///
/// The notifications for such a client are written to its channel, and what it leaves unread there uses up its window. Its calls
/// still come on the bus, and a program of one thread waits for the reply before it reads anything else. Therefore the replies
/// have a window of their own, which the client confirms on the bus.
extension DistributedCenter {
    /// When a reply is sent.
    public enum ReplyTurn: Sendable {
        case now
        /// At an ``Effect/sendAnswer(_:)``, behind the answers that are kept already.
        case atSendAnswer
        /// At an ``Effect/sendReply(_:)``, behind the replies that are kept already.
        case atSendReply
    }

    /// A reply to a call that a connection made on the bus is ready. Whoever drives the center keeps one that is not sent
    /// now.
    public func mayReply(to name: ClientName, byteCount: Int, effects: inout [Effect]) -> ReplyTurn {
        if let peer = peers[name], peer.replies?.isInUse == true {
            defer { eventEnded() }
            return mayReply(to: peer, byteCount: byteCount, effects: &effects) ? .now : .atSendReply
        }
        return mayAnswer(name, byteCount: byteCount, effects: &effects) ? .now : .atSendAnswer
    }

    private func mayReply(to peer: Peer, byteCount: Int, effects: inout [Effect]) -> Bool {
        guard var line = peer.replies.take() else { return false }
        if line.kept.isEmpty, line.flow.isOpen, hasRoomOnTheWay(for: peer, byteCount) {
            peer.replies = line
            countReply(byteCount, to: peer, effects: &effects)
            return true
        }
        if line.kept.isEmpty, line.flow.sendsAlone(byteCount: byteCount) {
            peer.replies = line
            charge(peer, .inFlightBytes, byteCount)
            return true
        }
        let isOpen = line.flow.isOpen
        line.kept.append(byteCount + Self.answerOverhead)
        peer.replies = line
        charge(peer, .answerBytes, byteCount + Self.answerOverhead)
        if isOpen { holdBack(peer, effects: &effects) }
        findReplyWitness(for: peer, effects: &effects)
        return false
    }

    func sendReplies(to peer: Peer, effects: inout [Effect]) {
        defer { findReplyWitness(for: peer, effects: &effects) }
        while let byteCount = peer.replies?.kept.first, peer.replies?.flow.isOpen == true {
            guard hasRoomOnTheWay(for: peer, byteCount) else { return holdBack(peer, effects: &effects) }
            meter.count()
            peer.replies?.kept.popFirst()
            charge(peer, .answerBytes, -byteCount)
            effects.append(.sendReply(peer.name))
            countReply(byteCount, to: peer, effects: &effects)
        }
    }

    /// As an answer is sent to a client without a channel of which nothing tells what it has read.
    private func sendOnlyReply(to peer: Peer, effects: inout [Effect]) {
        peer.replies?.flow.letAnswersGoAlone()
        guard peer.replies?.kept.count == 1, let byteCount = peer.replies?.kept.first,
            peer.replies?.flow.sendsAlone(byteCount: byteCount) == true
        else { return }
        peer.replies?.kept.popFirst()
        charge(peer, .answerBytes, -byteCount)
        effects.append(.sendReply(peer.name))
        charge(peer, .inFlightBytes, byteCount)
    }

    private func countReply(_ byteCount: Int, to peer: Peer, effects: inout [Effect]) {
        charge(peer, .inFlightBytes, byteCount)
        lookForRoom(effects: &effects)
        let isFull = peer.replies?.flow.sent(byteCount: byteCount, telling: FlowWindow.Told(), fills: false) == true
        guard isFull || isRoomWanted && peer.replies?.flow.isIdle == true else { return }
        probeReplies(of: peer, effects: &effects)
    }

    private func probeReplies(of peer: Peer, effects: inout [Effect]) {
        peer.replies?.flow.probe()
        effects.append(.probeReplies(peer.name))
        findReplyWitness(for: peer, effects: &effects)
    }

    /// Asks for what it was not asked about.
    func askForReplies(_ peer: Peer, effects: inout [Effect]) {
        guard let flow = peer.replies?.flow, flow.isIdle, flow.isAnythingUnprobed else { return }
        probeReplies(of: peer, effects: &effects)
    }

    func findReplyWitness(for peer: Peer, effects: inout [Effect]) {
        guard let isKept = peer.replies.map({ !$0.kept.isEmpty }), isKept || isAnyHeldBack else { return }
        guard peer.replies?.flow.needsBacklogProbe(isRoomWanted: isAnyHeldBack, isAnswerDue: isKept) == true else {
            return
        }
        effects.append(.witnessReplies(peer.name))
    }

    // MARK: Confirming

    /// A client answered what ``Effect/probeReplies(_:)`` asked.
    public func repliesAnswered(by name: ClientName, effects: inout [Effect]) {
        defer { eventEnded() }
        guard let peer = peers[name], let byteCount = peer.replies?.flow.answered() else { return }
        confirmReplies(byteCount, of: peer, effects: &effects)
    }

    /// Takes the finding that ``Effect/witnessReplies(_:)`` asked for.
    ///
    /// - Parameter hasRead: as for ``clientWitnessed(_:hasRead:effects:)``.
    public func repliesWitnessed(of name: ClientName, hasRead: Bool, effects: inout [Effect]) {
        defer { eventEnded() }
        guard let peer = peers[name], let byteCount = peer.replies?.flow.witnessed(all: hasRead) else { return }
        if !hasRead, peer.replies?.flow.answersProbes == true { sendOnlyReply(to: peer, effects: &effects) }
        confirmReplies(byteCount, of: peer, effects: &effects)
    }

    private func confirmReplies(_ byteCount: Int, of peer: Peer, effects: inout [Effect]) {
        charge(peer, .inFlightBytes, -byteCount)
        sendReplies(to: peer, effects: &effects)
        lookForRoom(effects: &effects)
        // Also behind the end of the channel, so that nothing is left of the line.
        if isRoomWanted || peer.replies?.isInUse == false { askForReplies(peer, effects: &effects) }
        if byteCount > 0 { unblock(effects: &effects) }
        forgetRepliesIfOver(of: peer)
    }

    // MARK: The channel

    /// A channel of the client is its own from now on.
    func beginReplies(of peer: Peer) {
        if peer.replies == nil { peer.replies = ReplyLine() }
        peer.replies?.hasChannel = true
    }

    /// The client has no channel any more: it is answered as any other, behind the replies that are kept.
    public func channelGone(of name: ClientName, effects: inout [Effect]) {
        defer { eventEnded() }
        guard let peer = peers[name] else { return }
        releaseParts(of: peer)
        guard peer.replies != nil else { return }
        peer.replies?.hasChannel = false
        askForReplies(peer, effects: &effects)
        forgetRepliesIfOver(of: peer)
    }

    private func forgetRepliesIfOver(of peer: Peer) {
        if peer.replies?.isOver == true { peer.replies = nil }
        forgetIfUnused(peer)
    }
}
