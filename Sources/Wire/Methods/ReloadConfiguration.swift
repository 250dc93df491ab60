// SPDX-License-Identifier: Apache-2.0
import CarillonDBus

/// Has the service read its configuration files again; refused with the file and the line of a mistake (E1).
public struct ReloadConfiguration: CenterMethod {
    public init() {}

    public static let member: MemberName = "ReloadConfiguration"

    public init(from arguments: inout MessageReader) throws(BusError) {}

    public func append(to writer: inout MessageWriter) {}
}
