// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonDBus

/// How the caller wants to be served (F1); what it does not mention stays as it is.
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
