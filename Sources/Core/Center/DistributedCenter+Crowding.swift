// SPDX-License-Identifier: Apache-2.0
/// Posters that are faster than observers who read (A4, E4).
///
/// A notification that does not fit into an observer's queue is lost to it. While the queue of one that reads is half full, or half of
/// what there is for all is full and a good part of it is its, posts are read at the pace at which it takes them, and a bus
/// that bounds what it keeps makes the poster wait. That pace has a bound below, as an observer may read as seldom as it
/// likes, and on purpose. One that has stopped reading slows nothing, and nor does a client that monitors (B3).
///
/// Whoever drives the center asks ``isCrowded`` after each event, and calls ``checkCrowding()`` from time to time while
/// it is.
extension DistributedCenter {
    /// How often in a row ``checkCrowding()`` finds that a client has read nothing before it counts as one that does not:
    /// a second. On a busy machine a client that reads gets no processor for a good part of that.
    private static let maxIdleChecks = 100

    /// Whether posts are to be read slowly.
    public var isCrowded: Bool { !crowded.isEmpty }

    /// Looks whether a queue that grew is half full.
    func noteGrowth(of client: Client) {
        guard client.crowding == nil, !client.isStalled, isOver(client, eighths: 4), mayCrowd(client) else { return }
        client.crowding = Client.Crowding(
            confirmed: client.peer.confirmedBytes, delivered: client.counts.delivered)
        crowded.append(client)
    }

    /// Looks who still is crowded. Call about every 10 ms while anybody is.
    ///
    /// - Returns: how many notifications the slowest of them was sent since the last time.
    public func checkCrowding() -> Int {
        defer { eventEnded() }
        meter.count(crowded.count)
        var slowest = Int.max
        crowded.removeAll { client in
            guard client.presence != .gone, mayCrowd(client), isOver(client, eighths: 3), var crowding = client.crowding
            else {
                client.crowding = nil
                return true
            }
            slowest = min(slowest, Int(client.counts.delivered - crowding.delivered))
            crowding.delivered = client.counts.delivered
            crowding.idleChecks = crowding.confirmed == client.peer.confirmedBytes ? crowding.idleChecks + 1 : 0
            crowding.confirmed = client.peer.confirmedBytes
            client.isStalled = crowding.idleChecks >= Self.maxIdleChecks
            client.crowding = client.isStalled ? nil : crowding
            return client.isStalled
        }
        return slowest == .max ? 0 : slowest
    }

    private func mayCrowd(_ client: Client) -> Bool {
        client.presence == .here && !client.isSuspended && client.monitors == 0
    }

    private func isOver(_ client: Client, eighths: UInt64) -> Bool {
        let byteCount = UInt64(client.queue.byteCount)
        return UInt64(client.queue.count) > limits[.queuedPerClient] / 8 * eighths
            || byteCount > limits[.queuedBytesPerClient] / 8 * eighths
            || byteCount > limits[.queuedBytes] / Self.goodPart
                && UInt64(totals[.queuedBytes]) > UInt64(max(0, maxWaitingMemory)) / 8 * eighths
    }

    /// This part of what there is for all.
    private static let goodPart: UInt64 = 128
}
