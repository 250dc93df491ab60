// SPDX-License-Identifier: Apache-2.0
/// Backpressure on posters that are faster than observers that read (A4, E4).
///
/// A client loses a notification that does not fit into its queue. Therefore posts are served at the pace of a client
/// that reads while one of these holds:
///
/// - Its queue is half full.
/// - Half of the space for all queues is used, and more than a 128th of `queued-bytes` by this client.
///
/// A bus that bounds its own queues then makes the poster wait. The pace has a minimum, as a client may read slowly on
/// purpose. A client that has stopped reading, and a client that monitors (B3), slow nothing.
///
/// The driver asks ``isUnderBackpressure`` after each event. While that is true, it calls ``checkBackpressure()`` about
/// every 10 ms.
extension DistributedCenter {
    /// The number of consecutive calls of ``checkBackpressure()`` without an acknowledgment after which a client counts
    /// as a slow consumer: a second. On a busy machine a client that reads may get no processor for a good part of
    /// that.
    private static let maxIdleChecks = 100

    /// Whether posts are to be served slowly.
    public var isUnderBackpressure: Bool { !congested.isEmpty }

    /// Puts a client whose queue has grown to half of a limit under backpressure.
    func noteGrowth(of client: Client) {
        guard client.backpressure == nil, !client.isSlowConsumer, isOver(client, eighths: 4),
            mayApplyBackpressure(client)
        else { return }
        client.backpressure = Client.Backpressure(
            confirmed: client.peer.confirmedBytes, delivered: client.counts.delivered)
        congested.append(client)
    }

    /// Updates which clients are under backpressure. Call about every 10 ms while there are any.
    ///
    /// - Returns: the number of notifications that the slowest of them was sent since the last call.
    public func checkBackpressure() -> Int {
        defer { eventEnded() }
        meter.count(congested.count)
        var slowest = Int.max
        congested.removeAll { client in
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

    /// The divisor of `queued-bytes` for the part beyond which a client is under backpressure for a full total.
    private static let goodPart: UInt64 = 128
}
