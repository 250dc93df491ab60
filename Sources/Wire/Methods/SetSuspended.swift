// SPDX-License-Identifier: Apache-2.0
import CarillonDBus

/// The D-Bus method by which the caller suspends or resumes its own notifications. This state overrides the activity of
/// its application until ``FollowActivity`` (S1).
public struct SetSuspended: CenterMethod {
    public var isSuspended: Bool

    public init(_ isSuspended: Bool) {
        self.isSuspended = isSuspended
    }

    public static let member: MemberName = "SetSuspended"
    public static let inputs: [Interface.Argument] = [.init("suspended", "b")]

    public init(from arguments: inout MessageReader) throws(BusError) {
        isSuspended = try arguments.read()
    }

    public func append(to writer: inout MessageWriter) {
        writer.append(isSuspended)
    }
}
