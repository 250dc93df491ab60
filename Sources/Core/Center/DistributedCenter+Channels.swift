// SPDX-License-Identifier: Apache-2.0
/// Clients with a channel (F2): their notifications are written to a socket of their own. The windows are the same. A
/// window is acknowledged when all of it was written, as the client can read the bytes in the socket without the
/// service.
extension DistributedCenter {
    /// The messages that a client had not acknowledged on the bus when it got its channel.
    public struct SentBeforeChannel: Sendable {
        /// Their size in bytes, with messages from before earlier channels, and replies.
        public let byteCount: Int
        /// Whether the channel waits for the acknowledgments, as the size is beyond the limit.
        public let needsAnswers: Bool
        /// The number of probes that may still be answered.
        public let probes: Int
        /// Whether a backlog probe is under way.
        public let isBacklogProbed: Bool
    }

    /// Registers a channel of a connection, which is a client from now on.
    ///
    /// Messages that were sent to it on the bus are probed there once more. A small amount need not be acknowledged, so
    /// that a client that reads only the channel is served too. Writes to the channel acknowledge nothing of it.
    ///
    /// - Parameter maxUnasked: the size up to which the channel does not wait for acknowledgments, in bytes.
    /// - Throws: ``CenterError/limitExceeded(_:value:)`` or ``CenterError/shareExceeded(_:value:)`` for a new client
    ///   when there are too many clients.
    public func channelOpened(
        of name: ClientName, maxUnasked: Int = .max, effects: inout [Effect]
    ) throws(CenterError) -> SentBeforeChannel {
        defer { eventEnded() }
        let peer = try client(name, effects: &effects).peer
        if peer.flow.hasUnprobed {
            probe(peer, effects: &effects)
            if !peer.flow.isOpen { closed(peer, effects: &effects) }
        }
        beginReplies(of: peer)
        let onBus = peer.flow.unconfirmed.bytes + peer.flow.staleBytes + (peer.replies?.flow.unconfirmed.bytes ?? 0)
        if onBus <= maxUnasked { peer.flow.abandonBusAcks() }
        peer.confirmedBeforeChannel = peer.confirmedBytes
        return SentBeforeChannel(
            byteCount: onBus, needsAnswers: onBus > maxUnasked, probes: peer.flow.unansweredProbes,
            isBacklogProbed: peer.flow.isBacklogProbed)
    }

    /// Takes the bus's delivery of the client's end of the channel, and thus of all earlier messages to it.
    public func channelCarried(to name: ClientName, effects: inout [Effect]) {
        defer { eventEnded() }
        guard let client = clients[name] else { return }
        client.peer.confirmedBeforeChannel = nil
        noteSuspensionNoticePending(to: client, effects: &effects)
        forgetRevocation(knownTo: client, effects: &effects)
    }

    /// Takes the end of the client's channel with control signals that the client may never read. They are sent again
    /// on the bus, even if the client acknowledged them.
    ///
    /// - Parameter revoked: the observers that these control signals revoked.
    public func channelEnded(of name: ClientName, revoked: Set<ObserverID>, effects: inout [Effect]) {
        defer { eventEnded() }
        guard let client = clients[name] else { return }
        loseControlSignals(to: client, revoked: revoked, effects: &effects)
        pump(client, effects: &effects)
    }

    /// Takes the end of a channel before the bus was known to have carried its descriptor to the client. Control
    /// signals that were sent since the channel was opened, or unacknowledged before, are sent again on the bus.
    public func channelEndedUndelivered(of name: ClientName, effects: inout [Effect]) {
        defer { eventEnded() }
        guard let client = clients[name] else { return }
        markControlUnacked(to: client, effects: &effects)
        client.peer.confirmedBeforeChannel = nil
        pump(client, effects: &effects)
    }

    /// Takes an answer to a Ping that is no longer awaited: the client is known to answer.
    public func clientAnswers(_ name: ClientName) {
        defer { eventEnded() }
        peers[name]?.flow.noteAnswering()
    }

    /// Takes an answer to a Ping that the client's channel waited for, as much had been sent on the bus before.
    public func channelAnswered(_ name: ClientName, effects: inout [Effect]) {
        defer { eventEnded() }
        guard let peer = peers[name] else { return }
        peer.flow.noteAnswering()
        confirm(peer.flow.answered(), of: peer, effects: &effects)
    }

    /// Takes the end of a write: all bytes before the client's oldest probe were written to the channel.
    public func channelDrained(_ name: ClientName, effects: inout [Effect]) {
        defer { eventEnded() }
        guard let peer = peers[name] else { return }
        confirm(peer.flow.answered(byPeer: false), of: peer, effects: &effects)
    }

    /// Takes the end of a channel whose client may not have read all of it. The possible loss is reported at once,
    /// ahead of the notifications that were not written.
    ///
    /// - Parameters:
    ///   - count: the maximum number of missing notifications.
    ///   - losses: the maximum number of losses that were reported at the same time.
    ///   - last: the number before the first notification that was not written; nil when all were written.
    public func channelCut(
        _ name: ClientName, atMost count: Int, losses: UInt64, last: UInt64?, effects: inout [Effect]
    ) {
        defer { eventEnded() }
        guard let client = clients[name] else { return }
        notePossibleLoss(
            FlowWindow.NumberedContent(notifications: count, losses: losses), of: client, because: .channelEnded,
            upTo: last, effects: &effects)
        announcePossibleLoss(to: client, sequence: last, effects: &effects)
    }
}
