// SPDX-License-Identifier: Apache-2.0
import CarillonDBus

/// `ValuesRemoved`: a retained value was removed since the receiver's last call of ``FollowValues`` with 0 as `after`.
/// The receiver calls it again to find out which one.
public struct ValuesRemovedSignal: CenterSignal, Equatable {
    public init() {}

    public static let member: MemberName = "ValuesRemoved"
    public static let arguments: [Interface.Argument] = []

    public init(from reader: inout MessageReader) throws(BusError) {}

    public func append(to writer: inout MessageWriter) {}
}
