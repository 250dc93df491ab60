// SPDX-License-Identifier: Apache-2.0
/// The type of a record in the recovery log, which is its first byte.
///
/// Most types are the cases of ``Change`` with the same names. The numbers are the format of the log, so a new type
/// goes to the end.
enum RecordKind: UInt8 {
    /// A notification, without its receivers. Later records refer to it by its serial, so that it is written only once.
    case notification = 1
    case client
    case clientGone
    case observer
    case observersRemoved
    case suspension
    case queuedDue
    case held
    case flushed
    case popped
    case lost
    case unreportedLoss
    case lossAnnounced
    case postQueued
    case postsReplaced
    case postTaken
    case suspendedByActivity
    /// The reserved numbers: no greater serial of a notification and no greater number of an observer has been
    /// assigned.
    case numbers
    /// The log has no queues. The counters then have the length of each client's queue.
    case queuesUnkept
    case suspensionNoticePending
    /// The address of the bus; the first record of a log.
    case bus
    case options
    /// An observer that is a monitor, with the same content as `observer`.
    case monitor
    case retained
    case unretained
    /// The position of one observer's retained replay.
    case replays
    case postsWithdrawn
    case throttled
    case throttleEnded
    case suspensionOverridden
    case interestFollowed
    case valuesFollowed
    case observersRevoked
    case revocationsKnown
    case excess
}

/// The encoding of a list of observers in a record, which is the byte before the list. Repeated lists are not written
/// again.
enum ListCoding: UInt8 {
    /// The list follows.
    case whole = 0
    /// The same list as the client's last long one.
    case again = 1
    /// The same list as the first one in this record.
    case same = 2

    /// The number of observers from which a list is long. Encoder and decoder remember a client's last long list.
    static let long = 4
}
