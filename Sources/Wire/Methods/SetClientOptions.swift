// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonDBus

/// The D-Bus method that changes the delivery options of the caller, such as batches. Options that the call does not
/// contain keep their values (F1).
public struct SetClientOptions: CenterMethod {
    public var change: ClientOptionsChange

    public init(_ change: ClientOptionsChange) {
        self.change = change
    }

    public static let member: MemberName = "SetClientOptions"
    public static let inputs: [Interface.Argument] = [.init("options", "a{sv}")]

    public init(from arguments: inout MessageReader) throws(BusError) {
        change = try mappingCenterErrors { () throws(CenterError) in try ClientOptionsChange(from: &arguments) }
    }

    public func append(to writer: inout MessageWriter) {
        change.append(to: &writer)
    }
}
