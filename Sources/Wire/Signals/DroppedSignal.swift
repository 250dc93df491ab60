// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonDBus

/// `Dropped`: notifications for the client were lost. Their place in the client's stream is before the next message
/// (S4).
public struct DroppedSignal: CenterSignal, Equatable {
    /// The number of lost notifications.
    public var count: UInt64
    /// The client's observers that should have received them.
    public var observers: [ObserverID]
    /// The raw value of a ``DropReason``, or ``notAllowed``; later services may add reasons.
    public var reason: String

    public init(count: UInt64, observers: [ObserverID], reason: String) {
        self.count = count
        self.observers = observers
        self.reason = reason
    }

    /// The reason when a change of policy has removed observers (P2). It reports no loss; ``observers`` are the removed
    /// ones.
    public static let notAllowed = "not-allowed"

    /// Whether the count is an upper bound: the notifications had sequence numbers, and some of them may have arrived.
    public var isBound: Bool { DropReason(rawValue: reason)?.isBound ?? false }

    public static let member: MemberName = "Dropped"
    public static let arguments: [Interface.Argument] = [
        .init("count", "t"), .init("observers", "at"), .init("reason", "s"),
    ]

    public init(from reader: inout MessageReader) throws(BusError) {
        count = try reader.read()
        observers = try reader.readFixedArray().map(ObserverID.init)
        reason = try reader.read()
    }

    public func append(to writer: inout MessageWriter) {
        writer.append(count)
        writer.append(fixedArray: observers.map(\.rawValue))
        writer.append(reason)
    }
}
