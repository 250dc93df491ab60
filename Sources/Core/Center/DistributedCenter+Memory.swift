// SPDX-License-Identifier: Apache-2.0
import CarillonCollections

/// Memory that tables have kept of what is gone (E8).
extension DistributedCenter {
    /// Gives up what tables do not need any more, where that is at least half of one. Takes time in proportion to what there
    /// is, so it is for a moment in which nobody waits.
    public func releaseRoom() {
        defer { eventEnded() }
        index.releaseRoom { observer, position in
            meter.count()
            observer.client.observers[observer.id]?.position = position
        }
        for client in clients.values {
            meter.count()
            client.observers.releaseRoom()
            client.owed.releaseRoom()
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
