// SPDX-License-Identifier: Apache-2.0
/// Clients that have a channel (F2): what goes to them is written to a socket of their own. The windows are the same; that
/// all of one was written confirms it, as what is in the socket reaches the client without anybody's help.
extension DistributedCenter {
    /// What a client had not confirmed on the bus when it got its channel.
    public struct SentBeforeChannel: Sendable {
        /// With what it was sent before earlier channels, and replies.
        public let byteCount: Int
        /// Whether it is so much that the answers are waited for.
        public let needsAnswers: Bool
        /// That may still be answered.
        public let probes: Int
        /// Whether it is being found out in another way whether the client reads.
        public let isBacklogProbed: Bool
    }

    /// The connection gets a channel; it is a client from now on.
    ///
    /// What went to it by the bus is asked about there, once more. If it is little, that need not be answered: somebody who
    /// reads the channel only is served, too. But what was written to the channel tells nothing of it.
    ///
    /// - Parameter mostUnasked: how much that may be, in bytes.
    /// - Throws: ``CenterError/limitExceeded(_:value:)`` when it is a new client and there are too many.
    public func channelOpened(
        of name: ClientName, maxUnasked: Int = .max, effects: inout [Effect]
    ) throws(CenterError) -> SentBeforeChannel {
        defer { eventEnded() }
        let peer = try client(name, effects: &effects).peer
        if peer.flow.isAnythingUnprobed {
            probe(peer, effects: &effects)
            if !peer.flow.isOpen { closed(peer, effects: &effects) }
        }
        beginReplies(of: peer)
        let onBus = peer.flow.unconfirmed.bytes + peer.flow.staleBytes + (peer.replies?.flow.unconfirmed.bytes ?? 0)
        if onBus <= maxUnasked { peer.flow.answersNeedNotCome() }
        peer.confirmedBeforeChannel = peer.confirmedBytes
        return SentBeforeChannel(
            byteCount: onBus, needsAnswers: onBus > maxUnasked, probes: peer.flow.unansweredProbes,
            isBacklogProbed: peer.flow.isBacklogProbed)
    }

    /// The bus has carried the client's end of its channel to it, and so all that was sent to it on the bus before.
    public func channelCarried(to name: ClientName, effects: inout [Effect]) {
        defer { eventEnded() }
        guard let client = clients[name] else { return }
        client.peer.confirmedBeforeChannel = nil
        noteSuspensionOwed(to: client, effects: &effects)
        forgetRevocation(knownTo: client, effects: &effects)
    }

    /// The client's channel ended with words about itself in it that it may never read: they are sent again on the bus,
    /// whatever it confirmed.
    ///
    /// - Parameter revoked: the observers that such words are about.
    public func channelEnded(of name: ClientName, revoked: Set<ObserverID>, effects: inout [Effect]) {
        defer { eventEnded() }
        guard let client = clients[name] else { return }
        loseControlSignals(to: client, revoked: revoked, effects: &effects)
        pump(client, effects: &effects)
    }

    /// The client's channel ended before the bus was known to have carried the descriptor to it: what it was told since it
    /// was opened, or before and had not confirmed, is sent again on the bus.
    public func channelEndedUncarried(of name: ClientName, effects: inout [Effect]) {
        defer { eventEnded() }
        guard let client = clients[name] else { return }
        markControlUnacked(to: client, effects: &effects)
        client.peer.confirmedBeforeChannel = nil
        pump(client, effects: &effects)
    }

    /// The client has answered a Ping that is not waited for any more: it is known to answer.
    public func clientAnswers(_ name: ClientName) {
        defer { eventEnded() }
        peers[name]?.flow.noteAnswering()
    }

    /// The client has answered a Ping that its channel waited for, as much had gone to it by the bus.
    public func channelAnswered(_ name: ClientName, effects: inout [Effect]) {
        defer { eventEnded() }
        guard let peer = peers[name] else { return }
        peer.flow.noteAnswering()
        confirm(peer.flow.answered(), of: peer, effects: &effects)
    }

    /// All that was given for the client's channel before its oldest probe has been written.
    public func channelDrained(_ name: ClientName, effects: inout [Effect]) {
        defer { eventEnded() }
        guard let peer = peers[name] else { return }
        confirm(peer.flow.answered(byPeer: false), of: peer, effects: &effects)
    }

    /// The client's channel ended before the client had read all that was written, perhaps. It is told at once, ahead of
    /// what was not written.
    ///
    /// - Parameters:
    ///   - count: of the notifications that it may miss, at most.
    ///   - losses: that it was told of at the same time, at most.
    ///   - last: the number before the first that was not written; nil when all were.
    public func channelCut(
        _ name: ClientName, atMost count: Int, losses: UInt64, last: UInt64?, effects: inout [Effect]
    ) {
        defer { eventEnded() }
        guard let client = clients[name] else { return }
        notePossibleLoss(
            FlowWindow.Told(notifications: count, losses: losses), of: client, because: .channelEnded,
            upTo: last, effects: &effects)
        announcePossibleLoss(to: client, sequence: last, effects: &effects)
    }
}
