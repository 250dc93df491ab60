// SPDX-License-Identifier: Apache-2.0
/// Clients with a channel (F2): a socket between client and service, on which notifications go beside the bus.
///
/// Windows work as on the bus, with another acknowledgment: a window is acknowledged when all of it is written to the
/// socket. The reason: the client can read bytes in the socket even if the service ends. The events here come from the
/// driver's channels (`Channels` in the service).
///
/// The end of a channel is up to three events, in this order:
///
/// 1. ``channelCut(_:atMost:losses:last:effects:)``, if the client may not have read all notifications.
/// 2. For control signals, ``channelEndedUndelivered(of:effects:)`` or ``channelEnded(of:revoked:effects:)``.
/// 3. ``channelGone(of:effects:)`` in any case (`+Replies`).
extension DistributedCenter {
    /// The messages that a client had not acknowledged on the bus when its channel was opened.
    public struct SentBeforeChannel: Sendable {
        /// Their size in bytes, with messages from before earlier channels, and with replies.
        public let byteCount: Int
        /// Whether the channel sends nothing before these messages are acknowledged, because there are too many bytes.
        public let needsAnswers: Bool
        /// The number of Pings on the bus whose answers may still come.
        public let probes: Int
        /// Whether a socket backlog probe of the client is under way.
        public let isBacklogProbed: Bool
    }

    /// Registers a new channel of a connection, which is a client from now on.
    ///
    /// Messages that were sent to it on the bus are probed there once more. Writes to the channel do not acknowledge
    /// them. The channel waits for their acknowledgment only if they are large: a client that reads only the channel
    /// must be served too.
    ///
    /// - Parameter maxUnasked: the size in bytes up to which the channel does not wait.
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

    /// Handles the bus's confirmation that it has carried the descriptor of the channel to the client. All earlier
    /// messages on the bus have then reached the client as well.
    public func channelCarried(to name: ClientName, effects: inout [Effect]) {
        defer { eventEnded() }
        guard let client = clients[name] else { return }
        client.peer.confirmedBeforeChannel = nil
        noteSuspensionNoticePending(to: client, effects: &effects)
        forgetRevocation(knownTo: client, effects: &effects)
    }

    /// Handles the end of a channel with control signals that the client may never read. They are sent again on the
    /// bus, even if the client acknowledged them.
    ///
    /// - Parameter revoked: the observers that these control signals revoked.
    public func channelEnded(of name: ClientName, revoked: Set<ObserverID>, effects: inout [Effect]) {
        defer { eventEnded() }
        guard let client = clients[name] else { return }
        loseControlSignals(to: client, revoked: revoked, effects: &effects)
        pump(client, effects: &effects)
    }

    /// Handles the end of a channel before the bus had confirmed the delivery of its descriptor. Control signals that
    /// were sent on the channel, or were unacknowledged before, are sent again on the bus.
    public func channelEndedUndelivered(of name: ClientName, effects: inout [Effect]) {
        defer { eventEnded() }
        guard let client = clients[name] else { return }
        markControlUnacked(to: client, effects: &effects)
        client.peer.confirmedBeforeChannel = nil
        pump(client, effects: &effects)
    }

    /// Handles an answer to a Ping that nothing waits for. It shows that the client answers Pings.
    public func clientAnswers(_ name: ClientName) {
        defer { eventEnded() }
        peers[name]?.flow.noteAnswering()
    }

    /// Handles an answer to a Ping from before the channel, for which the channel waits
    /// (``SentBeforeChannel/needsAnswers``).
    public func channelAnswered(_ name: ClientName, effects: inout [Effect]) {
        defer { eventEnded() }
        guard let peer = peers[name] else { return }
        peer.flow.noteAnswering()
        confirm(peer.flow.answered(), of: peer, effects: &effects)
    }

    /// Handles the end of a write: all bytes before the client's oldest probe are in the channel's socket, so they
    /// count as acknowledged.
    public func channelDrained(_ name: ClientName, effects: inout [Effect]) {
        defer { eventEnded() }
        guard let peer = peers[name] else { return }
        confirm(peer.flow.answered(byPeer: false), of: peer, effects: &effects)
    }

    /// Handles the end of a channel of which the client may not have read all. The possible loss is reported at once,
    /// ahead of the notifications that were not written and are now sent on the bus.
    ///
    /// - Parameters:
    ///   - count: the maximum number of missing notifications.
    ///   - losses: the maximum number of reported losses in the missing messages.
    ///   - last: the sequence number before the first notification that was not written; nil when all were written.
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
