// SPDX-License-Identifier: Apache-2.0
import CarillonDBus

/// The D-Bus method that makes the service read its configuration files again. If a file has a mistake, the call fails
/// with an error that names file and line (E1).
public struct ReloadConfiguration: CenterMethod {
    public init() {}

    public static let member: MemberName = "ReloadConfiguration"

    public init(from arguments: inout MessageReader) throws(BusError) {}

    public func append(to writer: inout MessageWriter) {}
}
