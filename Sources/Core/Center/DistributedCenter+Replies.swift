// SPDX-License-Identifier: Apache-2.0
/// Replies to the method calls of clients that have channels (F2, A4).
///
/// The notifications for such a client go to its channel, and unread ones use up its window. Its calls still come on
/// the bus. A single-threaded program waits for the reply to its call before it reads anything else. Therefore the
/// replies on the bus have a window of their own (``BusReplyFlow``), which the client acknowledges on the bus.
///
/// Without a channel the same replies are *answers* (`+Flow`).
extension DistributedCenter {
    /// The moment at which the driver sends a reply.
    public enum ReplyTurn: Sendable {
        case now
        /// At an ``Effect/sendAnswer(_:)``, after the pending answers of a connection without a channel.
        case atSendAnswer
        /// At an ``Effect/sendReply(_:)``, after the pending replies beside the channel.
        case atSendReply
    }

    /// Counts a reply on the bus to a call of a connection, with or without a channel. The driver keeps a reply that is
    /// not sent now.
    public func mayReply(to name: ClientName, byteCount: Int, effects: inout [Effect]) -> ReplyTurn {
        if let peer = peers[name], peer.replies?.isInUse == true {
            defer { eventEnded() }
            return mayReply(to: peer, byteCount: byteCount, effects: &effects) ? .now : .atSendReply
        }
        return mayAnswer(name, byteCount: byteCount, effects: &effects) ? .now : .atSendAnswer
    }

    /// Counts a reply beside a channel.
    ///
    /// - Returns: whether to send it now.
    private func mayReply(to peer: Peer, byteCount: Int, effects: inout [Effect]) -> Bool {
        guard var replies = peer.replies.take() else { return false }
        if replies.kept.isEmpty, replies.flow.isOpen, fitsInFlightQuota(for: peer, byteCount) {
            peer.replies = replies
            countReply(byteCount, to: peer, effects: &effects)
            return true
        }
        // The program may wait for this reply before it reads anything else (``sendOnlyReply(to:effects:)``).
        if replies.kept.isEmpty, replies.flow.sendsSingleReply(byteCount: byteCount) {
            peer.replies = replies
            charge(peer, .inFlightBytes, byteCount)
            return true
        }
        let isOpen = replies.flow.isOpen
        replies.kept.append(byteCount + Self.answerOverhead)
        peer.replies = replies
        charge(peer, .answerBytes, byteCount + Self.answerOverhead)
        if isOpen { blockOnQuota(peer, effects: &effects) }
        probeReplyBacklogIfNeeded(for: peer, effects: &effects)
        return false
    }

    /// Sends the pending replies of a client with a channel, as far as their window and the in-flight quota allow.
    func sendReplies(to peer: Peer, effects: inout [Effect]) {
        defer { probeReplyBacklogIfNeeded(for: peer, effects: &effects) }
        while let byteCount = peer.replies?.kept.first, peer.replies?.flow.isOpen == true {
            guard fitsInFlightQuota(for: peer, byteCount) else { return blockOnQuota(peer, effects: &effects) }
            meter.count()
            peer.replies?.kept.popFirst()
            charge(peer, .answerBytes, -byteCount)
            effects.append(.sendReply(peer.name))
            countReply(byteCount, to: peer, effects: &effects)
        }
    }

    /// Sends the only pending reply although the window is full, because the client may wait for it before it reads.
    /// ``sendOnlyAnswer(to:effects:)`` does the same for a connection without a channel.
    private func sendOnlyReply(to peer: Peer, effects: inout [Effect]) {
        peer.replies?.flow.allowSingleReplies()
        guard peer.replies?.kept.count == 1, let byteCount = peer.replies?.kept.first,
            peer.replies?.flow.sendsSingleReply(byteCount: byteCount) == true
        else { return }
        peer.replies?.kept.popFirst()
        charge(peer, .answerBytes, -byteCount)
        effects.append(.sendReply(peer.name))
        charge(peer, .inFlightBytes, byteCount)
    }

    /// Counts a reply that is sent now, and probes the window of replies when it is full or quota is needed.
    private func countReply(_ byteCount: Int, to peer: Peer, effects: inout [Effect]) {
        charge(peer, .inFlightBytes, byteCount)
        updateQuotaLow(effects: &effects)
        let isFull =
            peer.replies?.flow.sent(byteCount: byteCount, content: FlowWindow.NumberedContent(), fills: false) == true
        guard isFull || isQuotaWanted && peer.replies?.flow.isIdle == true else { return }
        probeReplies(of: peer, effects: &effects)
    }

    /// Sends a Ping on the bus that acknowledges the replies so far.
    private func probeReplies(of peer: Peer, effects: inout [Effect]) {
        peer.replies?.flow.probe()
        effects.append(.probeReplies(peer.name))
        probeReplyBacklogIfNeeded(for: peer, effects: &effects)
    }

    /// Probes the replies that were sent since the last probe, unless a probe is unanswered.
    func probeUnprobedReplies(_ peer: Peer, effects: inout [Effect]) {
        guard let flow = peer.replies?.flow, flow.isIdle, flow.hasUnprobed else { return }
        probeReplies(of: peer, effects: &effects)
    }

    /// Starts a socket backlog probe if replies or other connections wait, and the client never answers Pings.
    func probeReplyBacklogIfNeeded(for peer: Peer, effects: inout [Effect]) {
        guard let isKept = peer.replies.map({ !$0.kept.isEmpty }), isKept || isAnyBlocked else { return }
        guard peer.replies?.flow.needsBacklogProbe(isQuotaWanted: isAnyBlocked, isAnswerDue: isKept) == true else {
            return
        }
        effects.append(.probeReplyBacklog(peer.name))
    }

    // MARK: Acknowledgments

    /// Handles the client's answer to ``Effect/probeReplies(_:)``.
    public func repliesAnswered(by name: ClientName, effects: inout [Effect]) {
        defer { eventEnded() }
        guard let peer = peers[name], let byteCount = peer.replies?.flow.answered() else { return }
        confirmReplies(byteCount, of: peer, effects: &effects)
    }

    /// Handles the result of a socket backlog probe, ``Effect/probeReplyBacklog(_:)``.
    ///
    /// - Parameter hasRead: as for ``backlogProbed(_:hasRead:effects:)``.
    public func replyBacklogProbed(of name: ClientName, hasRead: Bool, effects: inout [Effect]) {
        defer { eventEnded() }
        guard let peer = peers[name], let byteCount = peer.replies?.flow.backlogProbed(all: hasRead) else { return }
        if !hasRead, peer.replies?.flow.answersProbes == true { sendOnlyReply(to: peer, effects: &effects) }
        confirmReplies(byteCount, of: peer, effects: &effects)
    }

    /// Handles an acknowledgment of replies: credits its bytes. Then pending replies are sent, and connections are
    /// unblocked.
    private func confirmReplies(_ byteCount: Int, of peer: Peer, effects: inout [Effect]) {
        charge(peer, .inFlightBytes, -byteCount)
        sendReplies(to: peer, effects: &effects)
        updateQuotaLow(effects: &effects)
        // Also after the end of the channel: once all replies are acknowledged, their window can be removed.
        if isQuotaWanted || peer.replies?.isInUse == false { probeUnprobedReplies(peer, effects: &effects) }
        if byteCount > 0 { unblock(effects: &effects) }
        forgetRepliesIfOver(of: peer)
    }

    // MARK: Channel

    /// Begins the separate window of replies, for a client that has a channel from now on.
    func beginReplies(of peer: Peer) {
        if peer.replies == nil { peer.replies = BusReplyFlow() }
        peer.replies?.hasChannel = true
    }

    /// Handles the end of the client's channel. The pending replies are sent first. Then the client gets answers like
    /// any connection without a channel.
    public func channelGone(of name: ClientName, effects: inout [Effect]) {
        defer { eventEnded() }
        guard let peer = peers[name] else { return }
        releaseParts(of: peer)
        guard peer.replies != nil else { return }
        peer.replies?.hasChannel = false
        probeUnprobedReplies(peer, effects: &effects)
        forgetRepliesIfOver(of: peer)
    }

    /// Removes the window of replies when the channel has ended and all replies are acknowledged.
    private func forgetRepliesIfOver(of peer: Peer) {
        if peer.replies?.isOver == true { peer.replies = nil }
        forgetIfUnused(peer)
    }
}
