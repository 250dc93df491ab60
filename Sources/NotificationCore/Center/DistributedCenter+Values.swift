// SPDX-License-Identifier: Apache-2.0

/// Who follows which values there are (G5): a bridge has others forget what is not kept here any more.
extension DistributedCenter {
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
        if !client.followsValues {
            client.followsValues = true
            remember(.valuesFollowed(name), effects: &effects)
        }
        if after == 0 { knowingValues[client.number] = client }
        var (found, room): ([Notification], Int) = ([], room)
        for value in retained.all(after: after) {
            room -= byteCount(value.notification)
            guard found.count < most, found.isEmpty || room >= 0 else { break }
            found.append(value.notification)
        }
        return found
    }

    /// A value has gone, and whoever knows which there are has to be told.
    ///
    /// That costs O(1) for each value: each time that a client asks, it is told once.
    func tellValueGone(of poster: ClientName, effects: inout [Effect]) {
        guard !knowingValues.isEmpty else { return }
        tellValuesGone(
            to: knowingValues.values.filter { $0.name != poster }.sorted { $0.number < $1.number }, effects: &effects)
    }

    func tellValuesGone(to clients: [Client], effects: inout [Effect]) {
        for client in clients {
            knowingValues[client.number] = nil
            effects.append(.valuesRemoved(client.name))
            countSent(Self.signalSize, to: client.peer, effects: &effects)
        }
    }

    func checkValueFollowers() throws(BrokenInvariant) {
        for (number, client) in knowingValues {
            try require(
                client.number == number && !client.isGone && client.followsValues,
                "G5: who knows which values there are is a client that follows them")
        }
    }
}
