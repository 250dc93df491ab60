// SPDX-License-Identifier: Apache-2.0
/// Suspension of clients (S1, S2, S5).
///
/// Posts and changes of suspension are events of one sequence, that of the bus. Each post is before or after a change,
/// in one epoch, so that a resume that races a post neither loses nor repeats.
extension DistributedCenter {
    /// Sets the client's own choice of suspension, which overrides the activity of its application (A2).
    ///
    /// - Throws: ``CenterError/limitExceeded(_:value:)`` or ``CenterError/shareExceeded(_:value:)`` for a new client
    ///   when there are too many clients.
    public func setSuspended(
        _ isSuspended: Bool, of name: ClientName, effects: inout [Effect]
    ) throws(CenterError) {
        defer { eventEnded() }
        let client = try client(name, effects: &effects)
        changeSuspension(of: client, effects: &effects) { $0.explicitSuspension = isSuspended }
    }

    /// Takes the client's own choice back: from now on activity decides, and without a source of activity the client is
    /// active.
    ///
    /// - Throws: ``CenterError/limitExceeded(_:value:)`` or ``CenterError/shareExceeded(_:value:)`` for a new client
    ///   when there are too many clients.
    public func followActivity(of name: ClientName, effects: inout [Effect]) throws(CenterError) {
        defer { eventEnded() }
        let client = try client(name, effects: &effects)
        changeSuspension(of: client, effects: &effects) { $0.explicitSuspension = nil }
    }

    /// Sets the suspension of a client for another program, to test the client's application. It overrides the client's
    /// own choice and activity, until it is taken back or the client leaves (B3).
    ///
    /// - Parameter override: the suspension; nil takes it back.
    /// - Returns: whether the center knows the client.
    public func overrideSuspension(
        _ override: SuspensionOverride?, of name: ClientName, effects: inout [Effect]
    ) -> Bool {
        defer { eventEnded() }
        guard let client = clients[name] else { return false }
        changeSuspension(of: client, effects: &effects) { $0.override = override }
        return true
    }

    /// Applies a change of the state that decides about suspension. A client that it resumes gets its held
    /// notifications (S2).
    func changeSuspension(of client: Client, effects: inout [Effect], _ change: (Client) -> Void) {
        let before = (client.isSuspended, client.suspensionCause)
        let (word, override) = (client.explicitSuspension, client.override?.isSuspended)
        let wasByActivity = client.isSuspendedByActivity
        change(client)
        if before.0 != client.isSuspended { client.suspensionTime = clock.time() }
        if !before.0, client.isSuspended { flushThrottled(to: client, effects: &effects) }
        if before != (client.isSuspended, client.suspensionCause) { tellSuspension(of: client, effects: &effects) }
        if word != client.explicitSuspension {
            remember(.suspension(client.name, client.explicitSuspension), effects: &effects)
        }
        #if CARILLON_PLANTED
            let isOverrideKept = !PlantedFault.strikes(.overrideForgotten)
        #else
            let isOverrideKept = true
        #endif
        if override != client.override?.isSuspended, isOverrideKept {
            remember(.suspensionOverridden(client.name, client.override?.isSuspended), effects: &effects)
        }
        if wasByActivity != client.isSuspendedByActivity {
            remember(.suspendedByActivity(client.name, client.isSuspendedByActivity), effects: &effects)
        }
        #if CARILLON_PLANTED
            if PlantedFault.strikes(.droppedFlush, oneOf: 4) { return }
        #endif
        if before.0, !client.isSuspended { flush(client, effects: &effects) }
    }

    /// Announces the suspension to a client that reads, if it does not know it. A client that does not read gets the
    /// state of the time when it reads again.
    func tellSuspension(of client: Client, effects: inout [Effect]) {
        guard client.reads else {
            noteSuspensionNoticePending(to: client, effects: &effects)
            return probeBacklogIfNeeded(for: client.peer, effects: &effects)
        }
        if !client.knowsSuspension {
            client.announcedSuspension = (client.isSuspended, client.suspensionCause)
            effects.append(
                .suspensionChanged(client.name, isSuspended: client.isSuspended, cause: client.suspensionCause))
            countSent(Self.signalSize, to: client.peer, effects: &effects)
            client.sentBytesWhenAnnounced = client.sentBytes
        }
        noteSuspensionNoticePending(to: client, effects: &effects)
    }

    /// Marks the last announcement of suspension as possibly lost: it is sent again.
    func markSuspensionUnacked(of client: Client, effects: inout [Effect]) {
        client.announcedSuspension = nil
        noteSuspensionNoticePending(to: client, effects: &effects)
    }

    /// Logs whether a later process has to announce the suspension: the client does not know it, or has not
    /// acknowledged the signal. This process may end before it sends the signal, or its connection before the bus has
    /// carried it. A second announcement does no harm.
    func noteSuspensionNoticePending(to client: Client, effects: inout [Effect]) {
        let isKnown = client.knowsSuspension && !client.isSuspensionUnacked
        guard client.suspensionNoticePending == isKnown else { return }
        client.suspensionNoticePending.toggle()
        remember(.suspensionNoticePending(client.name, client.suspensionNoticePending), effects: &effects)
    }
}
