// SPDX-License-Identifier: Apache-2.0
import CarillonCore

extension Change {
    /// Whether it is about what waits, for clients or in posters' queues.
    var isOfQueues: Bool {
        switch self {
        case .queuedDue, .held, .delayed, .delayEnded, .flushed, .popped, .lost, .unannouncedLoss, .lossAnnounced,
            .postQueued, .postsReplaced, .postsWithdrawn, .postTaken:
            true
        case .client, .clientGone, .observer, .observersRemoved, .observersRevoked, .revocationsKnown, .suspension,
            .suspensionOverridden, .options, .suspendedByActivity, .suspensionOwed, .interestFollowed, .valuesFollowed,
            .retained, .unretained, .owed, .excess:
            false
        }
    }

    /// The client for which something else may wait behind it; nil for a change that concerns no client's queue.
    var clientWhoseQueueChanges: ClientName? {
        switch self {
        case .queuedDue(let client, _, _, _), .held(let client, _, _, _), .flushed(let client), .popped(let client, _),
            .delayed(let client, _, _), .delayEnded(let client, _, _), .lost(let client, _),
            .unannouncedLoss(let client, _, _, _), .lossAnnounced(let client),
            .observersRemoved(let client, _), .observersRevoked(let client, _):
            client
        default: nil
        }
    }
}
