// SPDX-License-Identifier: Apache-2.0
import CarillonCollections

/// Memory that tables have left unused (E8).
extension DistributedCenter {
    /// Releases the unused memory of tables that are at most half full. It takes time in proportion to all state, so
    /// call it while no client waits.
    public func releaseRoom() {
        defer { eventEnded() }
        index.releaseRoom { observer, position in
            meter.count()
            observer.client.observers[observer.id]?.position = position
        }
        for client in clients.values {
            meter.count()
            client.observers.releaseRoom()
            client.replays.releaseRoom()
        }
        clients.releaseRoom()
        peers.releaseRoom()
        accountsByID.releaseRoom()
        waitingCallers.releaseRoom()
        partHolders.releaseRoom()
        interest.releaseRoom()
        interestFollowers.releaseRoom()
        valueFollowers.releaseRoom()
        retained.releaseRoom()
        postingQueues.releaseRoom()
        spareMatches = Matches()
    }
}
