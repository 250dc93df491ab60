// SPDX-License-Identifier: Apache-2.0
import Collections

/// Who follows what others want (G4): a bridge brings in nothing that nobody wants.
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
        if !client.followsInterest {
            client.followsInterest = true
            remember(.interestFollowed(name), effects: &effects)
        }
        if after.isEmpty { informed[client.number] = client }
        return Wanted(
            names: interest.names(
                after: after, most: most, besides: client.number, room: room, byteCount: byteCount),
            any: interest.isAnyWanted(besides: client.number))
    }

    /// Whoever follows and has been told what held before has to be told. It is, at the end of the event.
    ///
    /// That costs O(1) for each observer: each time that a client asks, it is told once.
    func noteInterest(_ change: Interest.Change) {
        switch change {
        case .nobody: return
        case .one(let number):
            if let client = informed.removeValue(forKey: number) { misinformed.append(client) }
        case .everybody(but: let number):
            guard !informed.isEmpty else { return }
            let own = informed.removeValue(forKey: number)
            misinformed += informed.values.sorted { $0.number < $1.number }
            informed = own.map { [number: $0] } ?? [:]
        }
    }

    func tellInterest(effects: inout [Effect]) {
        guard !misinformed.isEmpty else { return }
        for client in misinformed where !client.isGone {
            effects.append(.interestChanged(client.name))
            countSent(Self.signalSize, to: client.peer, effects: &effects)
        }
        misinformed = []
    }

    func checkInterest() throws(BrokenInvariant) {
        var found = Interest()
        for client in clients.values {
            for position in client.observers.values where !index[position].registration.options.isMonitor {
                _ = found.add(index[position].registration.name, of: client.number)
            }
        }
        try require(found == interest, "G4: what is wanted is what observers want")
        try require(misinformed.isEmpty, "G4: who has to be told that something else is wanted is told at once")
        for (number, client) in informed {
            try require(
                client.number == number && !client.isGone && client.followsInterest,
                "G4: who was told what is wanted is a client that follows it")
        }
    }
}
