// SPDX-License-Identifier: Apache-2.0
import CarillonDBus

/// `ValuesRemoved`: a retained value was removed since the receiver called ``FollowValues``.
public struct ValuesRemovedSignal: CenterSignal, Equatable {
    public init() {}

    public static let member: MemberName = "ValuesRemoved"
    public static let arguments: [Interface.Argument] = []

    public init(from reader: inout MessageReader) throws(BusError) {}

    public func append(to writer: inout MessageWriter) {}
}
