// SPDX-License-Identifier: Apache-2.0

/// Who follows what others want (G4): a bridge brings in nothing that nobody wants. And who follows which values there
/// are (G5): a bridge has others forget what is not kept here any more.
extension DistributedCenter {
    /// What observers of other clients want, as far as one answer tells. What only monitor counts for nothing.
    public struct Wanted: Equatable, Sendable {
        /// In the order of their bytes.
        public let names: [String]
        /// Whether somebody observes any name.
        public let any: Bool

        public init(names: [String], any: Bool) {
            self.names = names
            self.any = any
        }
    }

    /// Tells a client what others want. When it asks from the beginning, it is told once when that has changed
    /// (``Effect/interestChanged(_:)``), until it asks so again.
    ///
    /// - Parameters:
    ///   - after: the last name that it knows; empty for the beginning.
    ///   - most: of the names.
    ///   - byteCount: what one takes of `room`. The first one comes in any case.
    /// - Throws: ``CenterError/limitExceeded(_:value:)`` when it is a new client and there are too many.
    public func followInterest(
        of name: ClientName, after: String, most: Int, room: Int, byteCount: (String) -> Int, effects: inout [Effect]
    ) throws(CenterError) -> Wanted {
        defer { eventEnded() }
        // So that its leaving is noticed.
        let client = try client(name, effects: &effects)
        if interestFollowers.add(name, number: client.number) { remember(.interestFollowed(name), effects: &effects) }
        if after.isEmpty { interestFollowers.inform(client.number) }
        return Wanted(
            names: interest.names(
                after: after, most: most, besides: client.number, room: room, byteCount: byteCount),
            any: interest.isAnyWanted(besides: client.number))
    }

    /// Tells a client which values there are, without their content. When it asks from the beginning, it is told once when
    /// one has gone without another in its place (``Effect/valuesRemoved(_:)``), until it asks so again. Those that it
    /// posted itself do not count, as it knows.
    ///
    /// - Parameters:
    ///   - after: the last serial that it knows; 0 for the beginning.
    ///   - most: of the values.
    ///   - byteCount: what one takes of `room`. The first one comes in any case.
    /// - Returns: in the order of their serials.
    /// - Throws: ``CenterError/limitExceeded(_:value:)`` when it is a new client and there are too many.
    public func followValues(
        of name: ClientName, after: UInt64, most: Int, room: Int, byteCount: (Notification) -> Int,
        effects: inout [Effect]
    ) throws(CenterError) -> [Notification] {
        defer { eventEnded() }
        // So that its leaving is noticed.
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

    /// Something else is wanted: whoever follows that is told at the end of the event, by ``tellInterest(effects:)``.
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

    /// A value has gone, and whoever knows which there are is told.
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

    /// Has a follower told, which is a signal as any other on its way.
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
