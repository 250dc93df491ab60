// SPDX-License-Identifier: Apache-2.0
/// Backpressure: posts are slowed down while clients that read can't keep up with them (A4, E4).
///
/// A client loses a notification that does not fit into its queue. Therefore posts are served only as fast as the
/// slowest client acknowledges, while a client that reads is under backpressure. That is so in two cases:
///
/// - Its queue is half full.
/// - All queues together are half full, and this client has more than a 128th of `queued-bytes`.
///
/// Posts then wait in the service's call queue and in the bus; a bus that bounds its own queues makes the poster wait.
/// The pace has a minimum, because a client may read slowly on purpose. A client that has stopped reading (a slow
/// consumer), a suspended client, and a monitor (B3) slow nothing.
///
/// The call queue of the service asks ``isUnderBackpressure`` before it serves calls. While that is true, it calls
/// ``checkBackpressure()`` about every 10 ms.
extension DistributedCenter {
    /// The number of consecutive calls of ``checkBackpressure()`` without an acknowledgment after which a client counts
    /// as a slow consumer. At 10 ms each this is a second: on a busy machine a client may get no processor time for a
    /// part of it.
    private static let maxIdleChecks = 100

    /// Whether the driver must serve posts slowly.
    public var isUnderBackpressure: Bool { !congested.isEmpty }

    /// Puts a client under backpressure if its queue has grown to half of a limit. Called for each queued notification.
    func noteGrowth(of client: Client) {
        guard client.backpressure == nil, !client.isSlowConsumer, isOver(client, eighths: 4),
            mayApplyBackpressure(client)
        else { return }
        client.backpressure = Client.Backpressure(
            confirmed: client.peer.confirmedBytes, delivered: client.counts.delivered)
        congested.append(client)
    }

    /// Updates the clients under backpressure. Call it about every 10 ms while there are any.
    ///
    /// A client leaves backpressure when its queue is below three eighths, or when it counts as a slow consumer.
    ///
    /// - Returns: the number of notifications that were sent to the slowest of these clients since the last call. The
    ///   driver serves as many posts until the next call.
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

    /// Whether the client may slow down posts: not when it has left, is suspended, or is a monitor.
    private func mayApplyBackpressure(_ client: Client) -> Bool {
        client.presence == .here && !client.isSuspended && client.monitors == 0
    }

    /// Whether the queue exceeds so many eighths of a limit: of its own, or of the total if the queue is large.
    private func isOver(_ client: Client, eighths: UInt64) -> Bool {
        let byteCount = UInt64(client.queue.byteCount)
        return UInt64(client.queue.count) > limits[.queuedPerClient] / 8 * eighths
            || byteCount > limits[.queuedBytesPerClient] / 8 * eighths
            || byteCount > limits[.queuedBytes] / Self.largeQueueDivisor
                && UInt64(totals[.queuedBytes]) > UInt64(max(0, maxWaitingMemory)) / 8 * eighths
    }

    /// The divisor of `queued-bytes` that gives the size from which a queue counts when all queues are half full: a
    /// 128th. A smaller queue does not slow posts only because the queues of others are large.
    private static let largeQueueDivisor: UInt64 = 128
}
