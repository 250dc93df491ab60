// SPDX-License-Identifier: Apache-2.0
import CarillonDBus

/// `InterestChanged`: the list of names observed by other clients has changed since the receiver's last call of
/// ``FollowInterest`` with an empty `after`. The receiver calls it again to get the list.
public struct InterestChangedSignal: CenterSignal, Equatable {
    public init() {}

    public static let member: MemberName = "InterestChanged"
    public static let arguments: [Interface.Argument] = []

    public init(from reader: inout MessageReader) throws(BusError) {}

    public func append(to writer: inout MessageWriter) {}
}
