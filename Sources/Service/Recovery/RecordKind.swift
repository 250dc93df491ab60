// SPDX-License-Identifier: Apache-2.0
/// The kinds of records in the log, by their first byte.
enum RecordKind: UInt8 {
    /// A notification that later records refer to by its serial.
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
    /// The numbers beyond which no serial and no observer's number has been assigned.
    case numbers
    /// The mark of a log without queues. The counters have the length of each client's queue.
    case queuesUnkept
    case suspensionNoticePending
    /// The address of the bus.
    case bus
    case options
    /// An observer that is a monitor, coded like any other observer.
    case monitor
    case retained
    case unretained
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

/// The coding of a list of observers.
enum ListCoding: UInt8 {
    case whole = 0
    /// The same list as the last long one of this client.
    case again = 1
    /// The same list as the other one of the record.
    case same = 2

    /// The number of observers from which a list is long, and worth remembering so that it is not written twice.
    static let long = 4
}
