// SPDX-License-Identifier: Apache-2.0

/// Clients that follow the interest of other clients (G4), so that a bridge brings in only wanted notifications. And
/// clients that follow the retained values (G5), so that a bridge removes values elsewhere that are gone here.
extension DistributedCenter {
    /// A part of the names that observers of other clients want. Monitors do not count.
    public struct Wanted: Equatable, Sendable {
        /// The names in the order of their bytes.
        public let names: [String]
        /// Whether an observer of any name exists.
        public let any: Bool

        public init(names: [String], any: Bool) {
            self.names = names
            self.any = any
        }
    }

    /// Returns the names that other clients want. A client that asks from the beginning gets one
    /// ``Effect/interestChanged(_:)`` at the next change, and no other before it asks so again.
    ///
    /// - Parameters:
    ///   - after: the last name that the client knows; empty for the beginning.
    ///   - most: the maximum number of names.
    ///   - room: the maximum size of the answer, in the unit of `byteCount`.
    ///   - byteCount: the size of a name in the answer. The first name is returned in any case.
    /// - Throws: ``CenterError/limitExceeded(_:value:)`` or ``CenterError/shareExceeded(_:value:)`` for a new client
    ///   when there are too many clients.
    public func followInterest(
        of name: ClientName, after: String, most: Int, room: Int, byteCount: (String) -> Int, effects: inout [Effect]
    ) throws(CenterError) -> Wanted {
        defer { eventEnded() }
        // A client is watched, so that its end is noticed.
        let client = try client(name, effects: &effects)
        if interestFollowers.add(name, number: client.number) { remember(.interestFollowed(name), effects: &effects) }
        if after.isEmpty { interestFollowers.inform(client.number) }
        return Wanted(
            names: interest.names(
                after: after, most: most, besides: client.number, room: room, byteCount: byteCount),
            any: interest.isAnyWanted(besides: client.number))
    }

    /// Returns the retained values, whose content the caller leaves out. A client that asks from the beginning gets one
    /// ``Effect/valuesRemoved(_:)`` when a value is removed without a replacement, and no other before it asks so
    /// again. Removed values that it posted itself do not count.
    ///
    /// - Parameters:
    ///   - after: the last serial that the client knows; 0 for the beginning.
    ///   - most: the maximum number of values.
    ///   - room: the maximum size of the answer, in the unit of `byteCount`.
    ///   - byteCount: the size of a value in the answer. The first value is returned in any case.
    /// - Returns: the values in the order of their serials.
    /// - Throws: ``CenterError/limitExceeded(_:value:)`` or ``CenterError/shareExceeded(_:value:)`` for a new client
    ///   when there are too many clients.
    public func followValues(
        of name: ClientName, after: UInt64, most: Int, room: Int, byteCount: (Notification) -> Int,
        effects: inout [Effect]
    ) throws(CenterError) -> [Notification] {
        defer { eventEnded() }
        // A client is watched, so that its end is noticed.
        let client = try client(name, effects: &effects)
        removeExpired(effects: &effects)
        if valueFollowers.add(name, number: client.number) { remember(.valuesFollowed(name), effects: &effects) }
        if after == 0 { valueFollowers.inform(client.number) }
        var (found, room): ([Notification], Int) = ([], room)
        for value in retained.matching(name: nil, object: nil, after: after, now: clock.uptime()) {
            room -= byteCount(value.notification)
            guard found.count < most, found.isEmpty || room >= 0 else { break }
            found.append(value.notification)
        }
        return found
    }

    // MARK: Changes

    /// Notes a change of interest. ``tellInterest(effects:)`` reports it to followers at the end of the event.
    func noteInterest(_ change: Interest.Change) {
        switch change {
        case .nobody: return
        #if CARILLON_PLANTED
            case .one where PlantedFault.strikes(.wishUntold): return
        #endif
        case .one(let number): interestFollowers.changed(for: number)
        case .everybody(but: let number): interestFollowers.changed(forAllBut: number)
        }
    }

    func tellInterest(effects: inout [Effect]) {
        for name in interestFollowers.takeOutdated() { send(.interestChanged(name), to: name, effects: &effects) }
    }

    /// Reports the removal of a value to the followers of values.
    func tellValueGone(of poster: ClientName, effects: inout [Effect]) {
        #if CARILLON_PLANTED
            if PlantedFault.strikes(.removalUntold, oneOf: 4) { return }
        #endif
        valueFollowers.changed(forAllBut: clients[poster]?.number)
        tellValues(effects: &effects)
    }

    func tellValues(effects: inout [Effect]) {
        for name in valueFollowers.takeOutdated() { send(.valuesRemoved(name), to: name, effects: &effects) }
    }

    /// Sends a signal to a follower, and counts it in the window.
    private func send(_ signal: Effect, to name: ClientName, effects: inout [Effect]) {
        guard let peer = peers[name] else { preconditionFailure("D8: a follower is a client") }
        effects.append(signal)
        countSent(Self.signalSize, to: peer, effects: &effects)
    }

    // MARK: Invariants

    func checkFollowers() throws(BrokenInvariant) {
        var found = Interest(meter: meter)
        for client in clients.values {
            for observer in client.observers.values where !observer.registration.options.isMonitor {
                _ = found.add(observer.registration.name, of: client.number)
            }
        }
        try require(found == interest, "G4: what is wanted is what observers want")
        try interestFollowers.checkInvariants { clients[$0]?.number }
        try valueFollowers.checkInvariants { clients[$0]?.number }
    }
}
