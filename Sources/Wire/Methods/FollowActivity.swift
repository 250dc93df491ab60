// SPDX-License-Identifier: Apache-2.0
import CarillonDBus

/// The D-Bus method that revokes the caller's ``SetSuspended``: from then on, the activity of its application controls
/// whether it is suspended (A2).
public struct FollowActivity: CenterMethod {
    public init() {}

    public static let member: MemberName = "FollowActivity"

    public init(from arguments: inout MessageReader) throws(BusError) {}

    public func append(to writer: inout MessageWriter) {}
}
