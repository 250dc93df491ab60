// SPDX-License-Identifier: Apache-2.0

/// Followers: clients that ask for a list, and get a signal when it has changed.
///
/// - Followers of **interest** ask for the names that observers of other clients want (G4). A bridge thus brings in
///   only wanted notifications from other machines.
/// - Followers of **values** ask for the retained values (G5). A bridge thus removes values on other machines that were
///   removed here.
///
/// The list is read in pages. After one signal the client gets no other before it reads the list from its beginning
/// again, so that frequent changes cost little.
extension DistributedCenter {
    /// A page of the names that observers of other clients want. Monitors do not count.
    public struct Wanted: Equatable, Sendable {
        /// The names in the order of their bytes.
        public let names: [String]
        /// Whether another client has an observer of any name.
        public let any: Bool

        public init(names: [String], any: Bool) {
            self.names = names
            self.any = any
        }
    }

    /// Returns a page of the names that other clients want, and makes the client a follower of interest. A client that
    /// asks for the first page gets one ``Effect/interestChanged(_:)`` at the next change.
    ///
    /// - Parameters:
    ///   - after: the last name of the previous page; empty for the first page.
    ///   - most: the maximum number of names.
    ///   - room: the maximum size of the page, in the unit of `byteCount`.
    ///   - byteCount: the size of a name in the answer. The first name is returned in any case.
    /// - Throws: ``CenterError/limitExceeded(_:value:)`` or ``CenterError/shareExceeded(_:value:)`` for a new client
    ///   when there are too many clients.
    public func followInterest(
        of name: ClientName, after: String, most: Int, room: Int, byteCount: (String) -> Int, effects: inout [Effect]
    ) throws(CenterError) -> Wanted {
        defer { eventEnded() }
        // A follower is a client: clients are watched, so that their departure is reported.
        let client = try client(name, effects: &effects)
        if interestFollowers.add(name, number: client.number) { remember(.interestFollowed(name), effects: &effects) }
        if after.isEmpty { interestFollowers.inform(client.number) }
        return Wanted(
            names: interest.names(
                after: after, most: most, besides: client.number, room: room, byteCount: byteCount),
            any: interest.isAnyWanted(besides: client.number))
    }

    /// Returns a page of the retained values, and makes the client a follower of values. A client that asks for the
    /// first page gets one ``Effect/valuesRemoved(_:)`` when a value is removed without a replacement. The removal of
    /// values that it posted itself does not count.
    ///
    /// - Parameters:
    ///   - after: the last serial of the previous page; 0 for the first page.
    ///   - most: the maximum number of values.
    ///   - room: the maximum size of the page, in the unit of `byteCount`.
    ///   - byteCount: the size of a value in the answer. The first value is returned in any case.
    /// - Returns: the values in the order of their serials. The caller's answer omits their content.
    /// - Throws: ``CenterError/limitExceeded(_:value:)`` or ``CenterError/shareExceeded(_:value:)`` for a new client
    ///   when there are too many clients.
    public func followValues(
        of name: ClientName, after: UInt64, most: Int, room: Int, byteCount: (Notification) -> Int,
        effects: inout [Effect]
    ) throws(CenterError) -> [Notification] {
        defer { eventEnded() }
        // A follower is a client: clients are watched, so that their departure is reported.
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

    /// Notes the followers that a change of interest concerns. ``announceInterest(effects:)`` sends them the signals.
    func noteInterest(_ change: Interest.Change) {
        switch change {
        case .nobody: return
        // Code under CARILLON_PLANTED injects a fault, in builds that test whether the simulation finds it (E7).
        #if CARILLON_PLANTED
            case .one where PlantedFault.strikes(.interestUnreported): return
        #endif
        case .one(let number): interestFollowers.changed(for: number)
        case .everybody(but: let number): interestFollowers.changed(forAllBut: number)
        }
    }

    /// Sends the pending signals to followers of interest.
    func announceInterest(effects: inout [Effect]) {
        for name in interestFollowers.takeOutdated() { send(.interestChanged(name), to: name, effects: &effects) }
    }

    /// Sends followers of values the signal that a value was removed. Its poster gets none.
    func noteValueRemoved(of poster: ClientName, effects: inout [Effect]) {
        #if CARILLON_PLANTED
            if PlantedFault.strikes(.removalUnreported, oneOf: 4) { return }
        #endif
        valueFollowers.changed(forAllBut: clients[poster]?.number)
        announceRemovedValues(effects: &effects)
    }

    /// Sends the pending signals to followers of values.
    func announceRemovedValues(effects: inout [Effect]) {
        for name in valueFollowers.takeOutdated() { send(.valuesRemoved(name), to: name, effects: &effects) }
    }

    /// Sends a signal to a follower, and counts it in the follower's window.
    private func send(_ signal: Effect, to name: ClientName, effects: inout [Effect]) {
        guard let peer = peers[name] else { preconditionFailure("D8: a follower is a client") }
        effects.append(signal)
        countSent(Self.signalSize, to: peer, effects: &effects)
    }

    // MARK: Invariants

    /// Checks that the index of wanted names has exactly the names of all observers, and that followers are clients.
    func checkFollowers() throws(BrokenInvariant) {
        var found = Interest(meter: meter)
        for client in clients.values {
            for observer in client.observers.values where !observer.registration.options.isMonitor {
                _ = found.add(observer.registration.name, of: client.number)
            }
        }
        try require(found == interest, "G4: the index of wanted names has the names of all observers")
        try interestFollowers.checkInvariants { clients[$0]?.number }
        try valueFollowers.checkInvariants { clients[$0]?.number }
    }
}
