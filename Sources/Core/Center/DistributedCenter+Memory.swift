// SPDX-License-Identifier: Apache-2.0
import CarillonCollections

/// The release of memory that hash tables keep after their entries are removed (E8).
extension DistributedCenter {
    /// Releases the unused memory of tables that are at most half full. The driver calls it in a quiet moment after a
    /// load, because it visits all state.
    public func releaseMemory() {
        defer { eventEnded() }
        // The index moves its entries, so each observer gets its new position.
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
