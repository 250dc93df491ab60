// SPDX-License-Identifier: Apache-2.0
/// Posters that are faster than observers who read (A4, E4).
///
/// A notification that does not fit into an observer's queue is lost to it. While the queue of one that reads is half full, or half of
/// what there is for all is full and a good part of it is its, posts are read at the pace at which it takes them, and a bus
/// that bounds what it keeps makes the poster wait. That pace has a bound below, as an observer may read as seldom as it
/// likes, and on purpose. One that has stopped reading slows nothing, and nor does a client that monitors (B3).
///
/// Whoever drives the center asks ``isUnderBackpressure`` after each event, and calls ``checkBackpressure()`` from time to time while
/// it is.
extension DistributedCenter {
    /// How often in a row ``checkBackpressure()`` finds that a client has read nothing before it counts as one that does not:
    /// a second. On a busy machine a client that reads gets no processor for a good part of that.
    private static let maxIdleChecks = 100

    /// Whether posts are to be read slowly.
    public var isUnderBackpressure: Bool { !underBackpressure.isEmpty }

    /// Looks whether a queue that grew is half full.
    func noteGrowth(of client: Client) {
        guard client.backpressure == nil, !client.isSlowConsumer, isOver(client, eighths: 4),
            mayApplyBackpressure(client)
        else { return }
        client.backpressure = Client.Backpressure(
            confirmed: client.peer.confirmedBytes, delivered: client.counts.delivered)
        underBackpressure.append(client)
    }

    /// Looks who still is crowded. Call about every 10 ms while anybody is.
    ///
    /// - Returns: how many notifications the slowest of them was sent since the last time.
    public func checkBackpressure() -> Int {
        defer { eventEnded() }
        meter.count(underBackpressure.count)
        var slowest = Int.max
        underBackpressure.removeAll { client in
            guard client.presence != .gone, mayApplyBackpressure(client), isOver(client, eighths: 3),
                var backpressure = client.backpressure
            else {
                client.backpressure = nil
                return true
            }
            slowest = min(slowest, Int(client.counts.delivered - backpressure.delivered))
            backpressure.delivered = client.counts.delivered
            backpressure.idleChecks =
                backpressure.confirmed == client.peer.confirmedBytes ? backpressure.idleChecks + 1 : 0
            backpressure.confirmed = client.peer.confirmedBytes
            client.isSlowConsumer = backpressure.idleChecks >= Self.maxIdleChecks
            client.backpressure = client.isSlowConsumer ? nil : backpressure
            return client.isSlowConsumer
        }
        return slowest == .max ? 0 : slowest
    }

    private func mayApplyBackpressure(_ client: Client) -> Bool {
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
