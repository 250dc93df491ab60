// SPDX-License-Identifier: Apache-2.0
/// The values that an observer has yet to get because it asked for them (R2): those that were there when it registered,
/// and still are when it is sent them. What took a value's place since, it gets as every observer does.
public struct OwedValues: Equatable, Sendable {
    public let observer: ObserverID
    /// It got those up to this serial, or they are gone.
    public var after: UInt64
    /// The last serial that was given when it registered.
    public let through: UInt64
    /// Whether that waits until its client is resumed.
    public var isHeld: Bool

    public init(observer: ObserverID, after: UInt64, through: UInt64, isHeld: Bool) {
        self.observer = observer
        self.after = after
        self.through = through
        self.isHeld = isHeld
    }
}
