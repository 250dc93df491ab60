// SPDX-License-Identifier: Apache-2.0
/// Losses between the service and a client (E5): messages that the bus refused because of a quota, or that were in
/// flight when a connection ended.
///
/// Notifications in such messages already have sequence numbers. Therefore they are a *possible loss*:
/// ``Effect/dropped(_:count:observers:reason:sequence:)`` reports how many of the numbers before the next notification
/// may be missing, and the sequence does not advance by it. If the bus does not report which signals it refused, the
/// count is an upper bound.
///
/// A `Dropped` signal may be lost in the same way. The losses in it are then reported again, but not counted again.
/// Control signals about suspension (S1), revoked observers (P3), interest (G4) and removed values (G5) are sent again
/// too.
extension DistributedCenter {
    /// Handles the bus's refusal of a signal to the client: notifications, or a control signal.
    ///
    /// The bus has no space for the client. Nothing more is sent to it until it has answered a new Ping, which shows
    /// that there is space again.
    ///
    /// - Parameters:
    ///   - notifications: the number of notifications in the signal. It is ignored if `losses` is greater than 0.
    ///   - losses: the number of losses that the signal reported; 0 unless it is a `Dropped` signal.
    public func deliveryRefused(
        _ name: ClientName, notifications: Int = 1, losses: UInt64 = 0, effects: inout [Effect]
    ) {
        defer { eventEnded() }
        guard let client = clients[name] else { return }
        notePossibleLoss(
            FlowWindow.NumberedContent(notifications: losses > 0 ? 0 : notifications, losses: losses), of: client,
            because: .busLimits, effects: &effects)
        block(client, effects: &effects)
    }

    /// Handles the bus's refusal of a Ping to the client. The driver repeats the Ping until the bus accepts it.
    ///
    /// - Parameter isCounted: whether the bus reports each refused signal, as dbus-daemon does, so that
    ///   ``deliveryRefused(_:notifications:losses:effects:)`` has counted them. dbus-broker refuses signals silently.
    ///   All unacknowledged messages of the client may then be lost.
    public func probeRefused(_ name: ClientName, isCounted: Bool, effects: inout [Effect]) {
        defer { eventEnded() }
        guard let client = clients[name] else { return }
        if !isCounted {
            notePossibleLoss(client.peer.flow.writeOff(), of: client, because: .busLimits, effects: &effects)
        }
        block(client, effects: &effects)
    }

    /// Handles the end of the service's connection to the bus, for a client to which notifications may be in flight.
    ///
    /// - Parameters:
    ///   - count: the maximum number of these notifications.
    ///   - losses: the maximum number of losses that were reported at the same time.
    ///   - unreachable: replaces `count` and `losses` if the messages in the client's channel may be lost too. The
    ///     client may never have received the channel, or it closed the channel with messages unread. The window does
    ///     not know these messages: they count as acknowledged once they are written.
    public func inFlightLost(
        _ name: ClientName, atMost count: Int, losses: UInt64,
        unreachable: (notifications: Int, losses: UInt64)? = nil, effects: inout [Effect]
    ) {
        defer { eventEnded() }
        guard let client = clients[name] else { return }
        let numbered = client.peer.flow.writeOff()
        let (notifications, losses) =
            unreachable ?? (min(count, numbered.notifications), min(losses, numbered.losses))
        notePossibleLoss(
            FlowWindow.NumberedContent(notifications: notifications, losses: losses), of: client,
            because: .busDisconnected,
            effects: &effects)
    }

    /// Handles the end of a channel with control signals that the client may never read, even if it acknowledged them.
    /// They are sent again.
    ///
    /// - Parameter revoked: the observers that these control signals revoked.
    public func controlSignalsLost(_ name: ClientName, revoked: Set<ObserverID>, effects: inout [Effect]) {
        defer { eventEnded() }
        if let client = clients[name] { loseControlSignals(to: client, revoked: revoked, effects: &effects) }
    }

    /// Marks control signals to the client as lost, even if it acknowledged them.
    func loseControlSignals(to client: Client, revoked: Set<ObserverID>, effects: inout [Effect]) {
        meter.count(revoked.count)
        // If the client acknowledged a revocation, it is no longer stored. It is added again.
        let forgotten = revoked.subtracting(client.revocation?.observers ?? [])
        if !forgotten.isEmpty {
            client.addRevocation(of: forgotten)
            remember(.observersRevoked(client.name, forgotten), effects: &effects)
        }
        markControlUnacked(to: client, evenIfAcked: true, effects: &effects)
    }

    /// Stops sending to the client until it answers a Ping, and sends the Ping.
    private func block(_ client: Client, effects: inout [Effect]) {
        markControlUnacked(to: client, effects: &effects)
        guard !client.peer.flow.isBlocked else { return }
        probe(client.peer, effects: &effects)
        client.peer.flow.block()
        closed(client.peer, effects: &effects)
    }

    /// Adds messages that may be lost to the client's possible loss, and logs it.
    ///
    /// - Parameters:
    ///   - numbered: the notifications and losses in these messages.
    ///   - last: the last of the client's sequence numbers that may be lost; nil for its last number of all.
    func notePossibleLoss(
        _ numbered: FlowWindow.NumberedContent, of client: Client, because reason: DropReason, upTo last: UInt64? = nil,
        effects: inout [Effect]
    ) {
        let count = UInt64(numbered.notifications)
        guard count + numbered.losses > 0 else { return }
        let isFirst = client.possibleLoss == nil
        client.lastLoss = reason
        client.possibleLoss = Client.PossibleLoss(
            count: (client.possibleLoss?.count ?? 0) + count + numbered.losses, reason: reason)
        rememberPossibleLoss(of: client, upTo: last, effects: &effects)
        client.counts.dropped += count
        counters.dropped += count
        if isFirst { effects.append(.overflowed(client.name, reason)) }
    }

    /// Reports the possible loss to a client that reads.
    ///
    /// - Parameter sequence: the client's last number before the report; nil for its last number of all.
    func announcePossibleLoss(to client: Client, sequence: UInt64? = nil, effects: inout [Effect]) {
        guard let possibleLoss = client.possibleLoss else { return }
        client.possibleLoss = nil
        // Logged before the report is sent, because the report may be lost too and is then a possible loss itself.
        rememberPossibleLoss(of: client, effects: &effects)
        effects.append(
            .dropped(
                client.name, count: possibleLoss.count, observers: [], reason: possibleLoss.reason,
                sequence: sequence ?? client.counts.sequence))
        countSent(
            Self.signalSize, content: FlowWindow.NumberedContent(losses: possibleLoss.count), to: client.peer,
            effects: &effects)
    }

    /// Marks control signals of the client as possibly lost. They are sent again when the client reads.
    ///
    /// - Parameter evenIfAcked: whether acknowledged ones are marked too; otherwise only unacknowledged ones.
    func markControlUnacked(to client: Client, evenIfAcked: Bool = false, effects: inout [Effect]) {
        if evenIfAcked || client.isSuspensionUnacked { markSuspensionUnacked(of: client, effects: &effects) }
        if let revocation = client.revocation,
            evenIfAcked || revocation.sentBytesWhenAnnounced > client.peer.surelyConfirmedBytes
        {
            client.revocation?.unannounced = revocation.observers
        }
        forgetRevocation(knownTo: client, effects: &effects)
        client.controlResendPending =
            interestFollowers.contains(client.number) || valueFollowers.contains(client.number)
    }

    /// Sends the signals about changed interest and removed values again, if they may be lost. A client that has asked
    /// for the list since needs none.
    func resendControl(to client: Client, effects: inout [Effect]) {
        guard client.controlResendPending else { return }
        client.controlResendPending = false
        interestFollowers.notifyAgain(client.number)
        valueFollowers.notifyAgain(client.number)
        announceInterest(effects: &effects)
        announceRemovedValues(effects: &effects)
    }

    /// Logs how many of the client's last sequence numbers may be lost; 0 when no possible loss is unreported. The
    /// logged number counts back from the client's last number, so it includes the numbers after `last`.
    private func rememberPossibleLoss(of client: Client, upTo last: UInt64? = nil, effects: inout [Effect]) {
        guard remembersChanges else { return }
        let count = client.possibleLoss.map { $0.count + client.counts.sequence - (last ?? client.counts.sequence) }
        effects.append(.possibleLoss(client.name, count: count ?? 0))
    }
}
