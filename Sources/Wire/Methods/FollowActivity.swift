// SPDX-License-Identifier: Apache-2.0
import CarillonDBus

/// The method that returns control of the caller's suspension to the activity of its application (A2).
public struct FollowActivity: CenterMethod {
    public init() {}

    public static let member: MemberName = "FollowActivity"

    public init(from arguments: inout MessageReader) throws(BusError) {}

    public func append(to writer: inout MessageWriter) {}
}
