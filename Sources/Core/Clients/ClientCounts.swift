// SPDX-License-Identifier: Apache-2.0
/// The numbers of a client's delivered and lost notifications. The service shows them in its status, and keeps them in
/// the recovery files.
public struct ClientCounts: Equatable, Sendable {
    /// The last sequence number that a notification or a reported loss of the client has taken.
    public var sequence: UInt64
    /// The number of notifications that were sent to the client.
    public var delivered: UInt64
    /// The number of notifications that the client lost, reported or not.
    public var dropped: UInt64

    // The state at the end of an earlier process, in the counts that a new process restores (E3). In the counts of a
    // present client these are zero.

    /// The number of the last sequence numbers for which nothing shows that the bus accepted the notification.
    public var unconfirmed: UInt64 = 0
    /// The serial of the notification with the last sequence number. A serial is the position of a notification among
    /// all posts.
    public var lastSerial: UInt64 = 0
    /// The number of waiting notifications and unreported losses that are not in the recovery files. It is 0 if the
    /// recovery log has the queues.
    public var unkept: UInt64 = 0

    public init(sequence: UInt64 = 0, delivered: UInt64 = 0, dropped: UInt64 = 0) {
        self.sequence = sequence
        self.delivered = delivered
        self.dropped = dropped
    }
}
