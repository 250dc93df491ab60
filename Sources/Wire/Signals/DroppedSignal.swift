// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonDBus

/// `Dropped`: the service lost notifications for the client, which stand before what comes next (S4).
public struct DroppedSignal: CenterSignal, Equatable {
    public var count: UInt64
    /// Those of the client's observers that miss them.
    public var observers: [ObserverID]
    /// A ``DropReason``, or ``notAllowed``; later services may have more of them.
    public var reason: String

    public init(count: UInt64, observers: [ObserverID], reason: String) {
        self.count = count
        self.observers = observers
        self.reason = reason
    }

    /// Not that anything was lost so far: the observers are gone, as policy no longer allows them (P2).
    public static let notAllowed = "not-allowed"

    /// Whether the count is an upper bound, of numbers of the sequence that were given before.
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
