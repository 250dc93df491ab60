// SPDX-License-Identifier: Apache-2.0
import CarillonCore

extension Change {
    /// Whether the change is of the queues of clients or posters, which a log without queues omits (``RecoveryStore``).
    var isOfQueues: Bool {
        switch self {
        case .queuedDue, .held, .throttled, .throttleEnded, .flushed, .popped, .lost, .unreportedLoss, .lossAnnounced,
            .postQueued, .postsReplaced, .postsWithdrawn, .postTaken:
            true
        case .client, .clientGone, .observer, .observersRemoved, .observersRevoked, .revocationsKnown, .suspension,
            .suspensionOverridden, .options, .suspendedByActivity, .suspensionNoticePending, .interestFollowed,
            .valuesFollowed,
            .retained, .unretained, .replays, .excess:
            false
        }
    }

    /// The client whose queue length, which includes its unreported losses, the change may affect; nil for other
    /// changes.
    var clientWhoseQueueChanges: ClientName? {
        switch self {
        case .queuedDue(let client, _, _, _), .held(let client, _, _, _), .flushed(let client), .popped(let client, _),
            .throttled(let client, _, _), .throttleEnded(let client, _, _), .lost(let client, _),
            .unreportedLoss(let client, _, _, _), .lossAnnounced(let client),
            .observersRemoved(let client, _), .observersRevoked(let client, _):
            client
        default: nil
        }
    }
}
