// SPDX-License-Identifier: Apache-2.0
/// Messages that the bus did not carry, or may not have carried (E5): it refused a signal as a quota was used up, or
/// closed the connection with signals in flight.
///
/// The notifications in such messages already have sequence numbers. Therefore
/// ``Effect/dropped(_:count:observers:reason:sequence:)`` reports how many of the numbers before the next notification
/// may be missing, and the sequence does not advance by it. Where the bus does not report which signals it refused, the
/// count is an upper bound.
///
/// A `Dropped` signal may be lost in the same way. Its losses are then reported again, and not counted again. Control
/// signals about suspension (S1), revoked observers (P3), interest (G4) and removed values (G5) are sent again too.
extension DistributedCenter {
    /// Takes the bus's refusal of a signal to the client, with notifications or a control signal.
    ///
    /// Nothing more is sent to the client until it has answered a probe, which shows that the bus has capacity again.
    ///
    /// - Parameters:
    ///   - notifications: the number of notifications in the signal.
    ///   - losses: the number of losses that the signal reported.
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

    /// Takes the bus's refusal of a probe of the client. The driver sends the probe again until it gets through.
    ///
    /// - Parameter isCounted: whether ``deliveryRefused(_:notifications:losses:effects:)`` reported each other refusal.
    ///   Otherwise all unacknowledged messages of the client may be lost, as dbus-broker refuses signals silently.
    public func probeRefused(_ name: ClientName, isCounted: Bool, effects: inout [Effect]) {
        defer { eventEnded() }
        guard let client = clients[name] else { return }
        if !isCounted {
            notePossibleLoss(client.peer.flow.writeOff(), of: client, because: .busLimits, effects: &effects)
        }
        block(client, effects: &effects)
    }

    /// Takes the end of the connection to the bus with notifications to the client possibly in flight.
    ///
    /// - Parameters:
    ///   - count: the maximum number of these notifications.
    ///   - losses: the maximum number of losses that were reported at the same time.
    ///   - unreachable: replaces `count` and `losses` for a client that may never have received its channel. They are
    ///     the maximum in the channel, whose messages count as acknowledged once they are written.
    public func inFlightLost(
        _ name: ClientName, atMost count: Int, losses: UInt64,
        unreachable: (notifications: Int, losses: UInt64)? = nil, effects: inout [Effect]
    ) {
        defer { eventEnded() }
        guard let client = clients[name] else { return }
        let told = client.peer.flow.writeOff()
        let (notifications, losses) =
            unreachable ?? (min(count, told.notifications), min(losses, told.losses))
        notePossibleLoss(
            FlowWindow.NumberedContent(notifications: notifications, losses: losses), of: client,
            because: .busDisconnected,
            effects: &effects)
    }

    /// Takes the end of a channel with control signals that the client may never read, even if it acknowledged them.
    /// They are sent again.
    ///
    /// - Parameter revoked: the observers that these control signals revoked.
    public func controlSignalsLost(_ name: ClientName, revoked: Set<ObserverID>, effects: inout [Effect]) {
        defer { eventEnded() }
        if let client = clients[name] { loseControlSignals(to: client, revoked: revoked, effects: &effects) }
    }

    func loseControlSignals(to client: Client, revoked: Set<ObserverID>, effects: inout [Effect]) {
        meter.count(revoked.count)
        // A revocation that the client acknowledged is no longer stored.
        let forgotten = revoked.subtracting(client.revocation?.observers ?? [])
        if !forgotten.isEmpty {
            client.addRevocation(of: forgotten)
            remember(.observersRevoked(client.name, forgotten), effects: &effects)
        }
        markControlUnacked(to: client, whateverConfirmed: true, effects: &effects)
    }

    /// Stops sending until the client answers, and probes it for that.
    private func block(_ client: Client, effects: inout [Effect]) {
        markControlUnacked(to: client, effects: &effects)
        guard !client.peer.flow.isBlocked else { return }
        probe(client.peer, effects: &effects)
        client.peer.flow.block()
        closed(client.peer, effects: &effects)
    }

    /// - Parameter last: the last of the client's numbers that may be lost; nil for the last number of all.
    func notePossibleLoss(
        _ told: FlowWindow.NumberedContent, of client: Client, because reason: DropReason, upTo last: UInt64? = nil,
        effects: inout [Effect]
    ) {
        let count = UInt64(told.notifications)
        guard count + told.losses > 0 else { return }
        let isFirst = client.possibleLoss == nil
        client.lastLoss = reason
        client.possibleLoss = Client.PossibleLoss(
            count: (client.possibleLoss?.count ?? 0) + count + told.losses, reason: reason)
        rememberPossibleLoss(of: client, upTo: last, effects: &effects)
        client.counts.dropped += count
        counters.dropped += count
        if isFirst { effects.append(.overflowed(client.name, reason)) }
    }

    /// Reports the possible loss to the client, which reads again.
    ///
    /// - Parameter sequence: the client's last number before the report; nil for the last number of all.
    func announcePossibleLoss(to client: Client, sequence: UInt64? = nil, effects: inout [Effect]) {
        guard let possibleLoss = client.possibleLoss else { return }
        client.possibleLoss = nil
        // Logged before the report is sent: from here on the report itself has to be carried.
        rememberPossibleLoss(of: client, effects: &effects)
        effects.append(
            .dropped(
                client.name, count: possibleLoss.count, observers: [], reason: possibleLoss.reason,
                sequence: sequence ?? client.counts.sequence))
        countSent(
            Self.signalSize, content: FlowWindow.NumberedContent(losses: possibleLoss.count), to: client.peer,
            effects: &effects)
    }

    /// Marks the unacknowledged control signals of the client as possibly lost. They are sent again when the client
    /// reads.
    func markControlUnacked(to client: Client, whateverConfirmed: Bool = false, effects: inout [Effect]) {
        if whateverConfirmed || client.isSuspensionUnacked { markSuspensionUnacked(of: client, effects: &effects) }
        if let revocation = client.revocation,
            whateverConfirmed || revocation.sentBytesWhenAnnounced > client.peer.surelyConfirmedBytes
        {
            client.revocation?.unannounced = revocation.observers
        }
        forgetRevocation(knownTo: client, effects: &effects)
        client.controlResendPending =
            interestFollowers.contains(client.number) || valueFollowers.contains(client.number)
    }

    /// Sends again the change signals about followed interest and values that may be lost, unless the client has asked
    /// since.
    func resendControl(to client: Client, effects: inout [Effect]) {
        guard client.controlResendPending else { return }
        client.controlResendPending = false
        interestFollowers.distrust(client.number)
        valueFollowers.distrust(client.number)
        tellInterest(effects: &effects)
        tellValues(effects: &effects)
    }

    private func rememberPossibleLoss(of client: Client, upTo last: UInt64? = nil, effects: inout [Effect]) {
        guard remembersChanges else { return }
        let count = client.possibleLoss.map { $0.count + client.counts.sequence - (last ?? client.counts.sequence) }
        effects.append(.possibleLoss(client.name, count: count ?? 0))
    }
}
