// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonDBus

/// `Dropped`: the service lost notifications for the client, which preceded the next message (S4).
public struct DroppedSignal: CenterSignal, Equatable {
    public var count: UInt64
    /// The client's observers that miss them.
    public var observers: [ObserverID]
    /// A ``DropReason``, or ``notAllowed``; later services may add reasons.
    public var reason: String

    public init(count: UInt64, observers: [ObserverID], reason: String) {
        self.count = count
        self.observers = observers
        self.reason = reason
    }

    /// The reason for removed observers that policy no longer allows (P2). It reports no loss up to then.
    public static let notAllowed = "not-allowed"

    /// Whether the count is an upper bound, for sequence numbers that were assigned before.
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
