// SPDX-License-Identifier: Apache-2.0
/// The counts of a client's deliveries and losses.
public struct ClientCounts: Equatable, Sendable {
    /// The sequence number of the last notification that was delivered, or announced as lost.
    public var sequence: UInt64
    public var delivered: UInt64
    public var dropped: UInt64

    // Open ends of an earlier process (E3); zero for a client of this process.

    /// The number of last sequence numbers whose notifications may not have left that process.
    public var unconfirmed: UInt64 = 0
    /// The serial of the notification with the last of these numbers.
    public var lastSerial: UInt64 = 0
    /// The number of waiting notifications that could not be preserved.
    public var unkept: UInt64 = 0

    public init(sequence: UInt64 = 0, delivered: UInt64 = 0, dropped: UInt64 = 0) {
        self.sequence = sequence
        self.delivered = delivered
        self.dropped = dropped
    }
}
