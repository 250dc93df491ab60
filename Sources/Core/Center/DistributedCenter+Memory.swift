// SPDX-License-Identifier: Apache-2.0
import CarillonCollections

/// Memory that tables have left unused (E8).
extension DistributedCenter {
    /// Releases the unused memory of tables that are at most half full. It takes time in proportion to all state, so
    /// call it while no client waits.
    public func releaseMemory() {
        defer { eventEnded() }
        index.releaseMemory { observer, position in
            meter.count()
            observer.client.observers[observer.id]?.position = position
        }
        for client in clients.values {
            meter.count()
            client.observers.releaseMemory()
            client.replays.releaseMemory()
        }
        clients.releaseMemory()
        peers.releaseMemory()
        accountsByID.releaseMemory()
        waitingCallers.releaseMemory()
        partHolders.releaseMemory()
        interest.releaseMemory()
        interestFollowers.releaseMemory()
        valueFollowers.releaseMemory()
        retained.releaseMemory()
        postingQueues.releaseMemory()
        spareMatches = Matches()
    }
}
