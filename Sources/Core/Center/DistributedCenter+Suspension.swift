// SPDX-License-Identifier: Apache-2.0
/// Who is suspended (S1, S2, S5).
///
/// Posts and changes of suspension are events of one sequence, that of the bus: each post falls before or after a
/// change, in one epoch, so that a resume that races a post neither loses nor repeats.
extension DistributedCenter {
    /// The client's explicit word, which overrides the activity of its application (A2).
    ///
    /// - Throws: ``CenterError/limitExceeded(_:value:)`` when it is a new client and there are too many.
    public func setSuspended(
        _ isSuspended: Bool, of name: ClientName, effects: inout [Effect]
    ) throws(CenterError) {
        defer { eventEnded() }
        let client = try client(name, effects: &effects)
        changeSuspension(of: client, effects: &effects) { $0.explicitSuspension = isSuspended }
    }

    /// Takes the explicit word back: from now on activity decides, and without a source of it the client is active.
    ///
    /// - Throws: ``CenterError/limitExceeded(_:value:)`` when it is a new client and there are too many.
    public func followActivity(of name: ClientName, effects: inout [Effect]) throws(CenterError) {
        defer { eventEnded() }
        let client = try client(name, effects: &effects)
        changeSuspension(of: client, effects: &effects) { $0.explicitSuspension = nil }
    }

    /// Somebody's word about another client, to test its application: it holds over the client's own word and over
    /// activity, until it is taken back or the client leaves (B3).
    ///
    /// - Parameter override: nil takes it back.
    /// - Returns: whether the center knows the client.
    public func overrideSuspension(
        _ override: SuspensionOverride?, of name: ClientName, effects: inout [Effect]
    ) -> Bool {
        defer { eventEnded() }
        guard let client = clients[name] else { return false }
        changeSuspension(of: client, effects: &effects) { $0.override = override }
        return true
    }

    /// Applies a change of what decides about suspension. What it resumes gets all that was held for it (S2).
    func changeSuspension(of client: Client, effects: inout [Effect], _ change: (Client) -> Void) {
        let before = (client.isSuspended, client.suspensionCause)
        let (word, override) = (client.explicitSuspension, client.override?.isSuspended)
        let wasByActivity = client.isSuspendedByActivity
        change(client)
        if before.0 != client.isSuspended { client.suspensionTime = clock.time() }
        if !before.0, client.isSuspended { hastenDelayed(to: client, effects: &effects) }
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

    /// Tells a client that reads whether it is suspended, if it does not know. One that does not read is told when it
    /// does, and only what holds by then.
    func tellSuspension(of client: Client, effects: inout [Effect]) {
        guard client.reads else {
            noteSuspensionOwed(to: client, effects: &effects)
            return findWitness(for: client.peer, effects: &effects)
        }
        if !client.knowsSuspension {
            client.toldSuspension = (client.isSuspended, client.suspensionCause)
            effects.append(
                .suspensionChanged(client.name, isSuspended: client.isSuspended, cause: client.suspensionCause))
            countSent(Self.signalSize, to: client.peer, effects: &effects)
            client.sentWhenTold = client.sentBytes
        }
        noteSuspensionOwed(to: client, effects: &effects)
    }

    /// What the client was told last may not have arrived: it is told again.
    func doubtSuspension(of client: Client, effects: inout [Effect]) {
        client.toldSuspension = nil
        noteSuspensionOwed(to: client, effects: &effects)
    }

    /// A later process has to tell what the client does not know, or has not confirmed: this one may end before the word
    /// is sent, or its connection before the bus has carried it. Hearing it twice tells nothing wrong.
    func noteSuspensionOwed(to client: Client, effects: inout [Effect]) {
        let isKnown = client.knowsSuspension && !client.isSuspensionOnTheWay
        guard client.suspensionNoticePending == isKnown else { return }
        client.suspensionNoticePending.toggle()
        remember(.suspensionOwed(client.name, client.suspensionNoticePending), effects: &effects)
    }
}
