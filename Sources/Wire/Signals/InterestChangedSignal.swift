// SPDX-License-Identifier: Apache-2.0
import CarillonDBus

/// `InterestChanged`: the observed names have changed since the receiver called ``FollowInterest``.
public struct InterestChangedSignal: CenterSignal, Equatable {
    public init() {}

    public static let member: MemberName = "InterestChanged"
    public static let arguments: [Interface.Argument] = []

    public init(from reader: inout MessageReader) throws(BusError) {}

    public func append(to writer: inout MessageWriter) {}
}
