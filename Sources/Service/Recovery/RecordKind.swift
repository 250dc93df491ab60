// SPDX-License-Identifier: Apache-2.0
/// The kinds of record in the log, by their first byte.
enum RecordKind: UInt8 {
    /// A notification that records behind it mention by its serial.
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
    case unannouncedLoss
    case lossAnnounced
    case postQueued
    case postsReplaced
    case postTaken
    case suspendedByActivity
    /// No serial and no observer's number beyond these was given.
    case numbers
    /// What waits is not in the log: for each client the counters have how much it is.
    case queuesUnkept
    case suspensionOwed
    /// The address of the bus.
    case bus
    case options
    /// An observer that monitors, written as any other.
    case monitor
    case retained
    case unretained
    case owed
    case postsWithdrawn
    case delayed
    case delayEnded
    case suspensionOverridden
    case interestFollowed
    case valuesFollowed
    case observersRevoked
    case revocationsKnown
    case excess
}

/// How a list of observers is written.
enum ListCoding: UInt8 {
    case whole = 0
    /// It is the last long one of this client again.
    case again = 1
    /// It is the other one of the record.
    case same = 2

    /// From here on a list is long: it is worth a place in memory not to write it twice.
    static let long = 4
}
