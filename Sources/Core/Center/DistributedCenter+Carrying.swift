// SPDX-License-Identifier: Apache-2.0
/// What the bus did not carry, or perhaps not (E5): it refused a signal for want of room, or closed the connection while
/// some were on their way.
///
/// Such notifications have their sequence numbers already. So the client is told, by ``Effect/dropped``, that so many
/// of the numbers before the next notification may be missing; the count of the sequence does not go on by it. Where
/// the bus does not say which signals it refused, the count is an upper bound.
///
/// A word about losses gets lost in the same way. What it told is told again then, and not counted again. So is the word
/// that it is suspended or resumed (S1), that policy took observers from it (P3), that something else is wanted (G4), or
/// that a value has gone (G5).
extension DistributedCenter {
    /// The bus refused a signal that was sent to the client: with notifications, or a word about something else.
    ///
    /// Nothing more goes there until the client has answered a probe, which shows that there is room again.
    ///
    /// - Parameters:
    ///   - notifications: how many were in it.
    ///   - losses: how many it told of.
    public func deliveryRefused(
        _ name: ClientName, notifications: Int = 1, losses: UInt64 = 0, effects: inout [Effect]
    ) {
        defer { eventEnded() }
        guard let client = clients[name] else { return }
        notePossibleLoss(
            FlowWindow.Told(notifications: losses > 0 ? 0 : notifications, losses: losses), of: client,
            because: .busLimits, effects: &effects)
        block(client, effects: &effects)
    }

    /// The bus refused a probe of the client. The driver sends it again until it gets through.
    ///
    /// - Parameter isCounted: whether ``deliveryRefused(_:notifications:losses:effects:)`` told what else was refused. Otherwise all that the
    ///   client has not confirmed may be lost: dbus-broker refuses signals without a word.
    public func probeRefused(_ name: ClientName, isCounted: Bool, effects: inout [Effect]) {
        defer { eventEnded() }
        guard let client = clients[name] else { return }
        if !isCounted {
            notePossibleLoss(client.peer.flow.writeOff(), of: client, because: .busLimits, effects: &effects)
        }
        block(client, effects: &effects)
    }

    /// The connection ended while notifications to the client may have been on their way.
    ///
    /// - Parameters:
    ///   - count: of them, at most.
    ///   - losses: that it was told of at the same time, at most.
    ///   - unreachable: instead of those, what it did not get whatever it confirmed, at most: where it has a channel that it
    ///     may never have got, what was written there counts as confirmed.
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
            FlowWindow.Told(notifications: notifications, losses: losses), of: client, because: .busDisconnected,
            effects: &effects)
    }

    /// A channel ended with words about the client itself in it that it may never read, whatever it confirmed: it is to be
    /// sent them again.
    ///
    /// - Parameter revoked: the observers that such words are about.
    public func controlSignalsLost(_ name: ClientName, revoked: Set<ObserverID>, effects: inout [Effect]) {
        defer { eventEnded() }
        if let client = clients[name] { loseControlSignals(to: client, revoked: revoked, effects: &effects) }
    }

    func loseControlSignals(to client: Client, revoked: Set<ObserverID>, effects: inout [Effect]) {
        meter.count(revoked.count)
        // A revocation that it confirmed is forgotten here.
        let forgotten = revoked.subtracting(client.revocation?.observers ?? [])
        if !forgotten.isEmpty {
            client.oweRevocation(of: forgotten)
            remember(.observersRevoked(client.name, forgotten), effects: &effects)
        }
        markControlUnacked(to: client, whateverConfirmed: true, effects: &effects)
    }

    /// Sends nothing more until the client answers, which has to be asked for that.
    private func block(_ client: Client, effects: inout [Effect]) {
        markControlUnacked(to: client, effects: &effects)
        guard !client.peer.flow.isBlocked else { return }
        probe(client.peer, effects: &effects)
        client.peer.flow.block()
        closed(client.peer, effects: &effects)
    }

    /// - Parameter last: the client's last number that it may be about; nil where that is the last of all.
    func notePossibleLoss(
        _ told: FlowWindow.Told, of client: Client, because reason: DropReason, upTo last: UInt64? = nil,
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

    /// Tells the client, which reads again.
    ///
    /// - Parameter sequence: its last number before the word; nil for the last of all.
    func announcePossibleLoss(to client: Client, sequence: UInt64? = nil, effects: inout [Effect]) {
        guard let possibleLoss = client.possibleLoss else { return }
        client.possibleLoss = nil
        // Ahead of the word: from here on that is what has to be carried.
        rememberPossibleLoss(of: client, effects: &effects)
        effects.append(
            .dropped(
                client.name, count: possibleLoss.count, observers: [], reason: possibleLoss.reason,
                sequence: sequence ?? client.counts.sequence))
        countSent(
            Self.signalSize, telling: FlowWindow.Told(losses: possibleLoss.count), to: client.peer, effects: &effects)
    }

    /// What the client was told besides, and has not confirmed, may not have arrived: it is told again when it reads.
    func markControlUnacked(to client: Client, whateverConfirmed: Bool = false, effects: inout [Effect]) {
        if whateverConfirmed || client.isSuspensionOnTheWay { doubtSuspension(of: client, effects: &effects) }
        if let revocation = client.revocation,
            whateverConfirmed || revocation.sentWhenTold > client.peer.surelyConfirmedBytes
        {
            client.revocation?.untold = revocation.observers
        }
        forgetRevocation(knownTo: client, effects: &effects)
        client.controlResendPending =
            interestFollowers.contains(client.number) || valueFollowers.contains(client.number)
    }

    /// Tells a client, which reads again, what the bus may not have carried of what it follows, unless it has asked since.
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
