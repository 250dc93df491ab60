// SPDX-License-Identifier: Apache-2.0
/// Suspension of clients (S1, S2, S5): the calls that change it, and its announcement to the client.
///
/// Three sources can decide, in this order: an override by another program, the client's own setting, and the activity
/// of its application. Posts and changes of suspension are events in one order, that of the bus. A post is therefore
/// before or after a resume, and is neither lost nor delivered twice.
extension DistributedCenter {
    /// Sets the client's own suspension, which overrides the activity of its application (A2).
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

    /// Removes the client's own setting: from now on the activity of its application decides. Without a source of
    /// activity the client is active.
    ///
    /// - Throws: ``CenterError/limitExceeded(_:value:)`` or ``CenterError/shareExceeded(_:value:)`` for a new client
    ///   when there are too many clients.
    public func followActivity(of name: ClientName, effects: inout [Effect]) throws(CenterError) {
        defer { eventEnded() }
        let client = try client(name, effects: &effects)
        changeSuspension(of: client, effects: &effects) { $0.explicitSuspension = nil }
    }

    /// Sets the suspension of a client on behalf of another program, to test the client's application (B3). It
    /// overrides the client's own setting and activity, until it is removed or the client leaves.
    ///
    /// - Parameter override: the suspension; nil removes the override.
    /// - Returns: whether the center knows the client.
    public func overrideSuspension(
        _ override: SuspensionOverride?, of name: ClientName, effects: inout [Effect]
    ) -> Bool {
        defer { eventEnded() }
        guard let client = clients[name] else { return false }
        changeSuspension(of: client, effects: &effects) { $0.override = override }
        return true
    }

    /// Applies a change of the client that may suspend or resume it, with all consequences: the announcement, the log,
    /// and for a resumed client the delivery of its held notifications (S2).
    ///
    /// - Parameter change: changes properties of the client that decide about suspension, such as its observers.
    func changeSuspension(of client: Client, effects: inout [Effect], _ change: (Client) -> Void) {
        let before = (client.isSuspended, client.suspensionCause)
        let (ownChoice, override) = (client.explicitSuspension, client.override?.isSuspended)
        let wasByActivity = client.isSuspendedByActivity
        change(client)
        if before.0 != client.isSuspended { client.suspensionTime = clock.time() }
        // R5: throttled notifications were posted before the suspension, so they are sent before it is announced.
        if !before.0, client.isSuspended { flushThrottled(to: client, effects: &effects) }
        if before != (client.isSuspended, client.suspensionCause) { announceSuspension(of: client, effects: &effects) }
        if ownChoice != client.explicitSuspension {
            remember(.suspension(client.name, client.explicitSuspension), effects: &effects)
        }
        // Code under CARILLON_PLANTED injects a fault, in builds that test whether the simulation finds it (E7).
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

    /// Announces the suspension to a client that reads, unless the last announcement was the same. A client that does
    /// not read gets the state of the moment when it reads again.
    func announceSuspension(of client: Client, effects: inout [Effect]) {
        guard client.reads else {
            noteSuspensionNoticePending(to: client, effects: &effects)
            return probeBacklogIfNeeded(for: client.peer, effects: &effects)
        }
        if !client.isSuspensionAnnounced {
            client.announcedSuspension = (client.isSuspended, client.suspensionCause)
            effects.append(
                .suspensionChanged(client.name, isSuspended: client.isSuspended, cause: client.suspensionCause))
            countSent(Self.signalSize, to: client.peer, effects: &effects)
            client.sentBytesWhenAnnounced = client.sentBytes
        }
        noteSuspensionNoticePending(to: client, effects: &effects)
    }

    /// Marks the last announcement of suspension as possibly lost. It is sent again when the client reads.
    func markSuspensionUnacked(of client: Client, effects: inout [Effect]) {
        client.announcedSuspension = nil
        noteSuspensionNoticePending(to: client, effects: &effects)
    }

    /// Logs whether a later process has to announce the suspension, because the client may not know it: the
    /// announcement is not sent, or it is unacknowledged. A repeated announcement does no harm.
    func noteSuspensionNoticePending(to client: Client, effects: inout [Effect]) {
        let isKnown = client.isSuspensionAnnounced && !client.isSuspensionUnacked
        // A notice is pending exactly while the state is not known. Otherwise the logged state is outdated.
        guard client.suspensionNoticePending == isKnown else { return }
        client.suspensionNoticePending.toggle()
        remember(.suspensionNoticePending(client.name, client.suspensionNoticePending), effects: &effects)
    }
}
