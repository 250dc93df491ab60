// SPDX-License-Identifier: Apache-2.0
import CarillonDBus

/// The caller's explicit word about its suspension (S1), which overrides activity.
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
