// SPDX-License-Identifier: Apache-2.0
/// What a client was sent so far.
public struct ClientCounts: Equatable, Sendable {
    /// The sequence number of the last notification that was delivered, or announced as lost.
    public var sequence: UInt64
    public var delivered: UInt64
    public var dropped: UInt64

    // What an earlier process left open (E3); zero in one that lives.

    /// How many of the last numbers were given, and may not have left that process.
    public var unconfirmed: UInt64 = 0
    /// The serial of the notification that was given the last of the numbers.
    public var lastSerial: UInt64 = 0
    /// Notifications that waited, and could not be kept.
    public var unkept: UInt64 = 0

    public init(sequence: UInt64 = 0, delivered: UInt64 = 0, dropped: UInt64 = 0) {
        self.sequence = sequence
        self.delivered = delivered
        self.dropped = dropped
    }
}
