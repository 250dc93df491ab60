// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonDBus

/// The D-Bus method that registers an observer of the caller (D2).
public struct AddObserver: CenterMethod {
    /// The observed name; empty for any name.
    public var name: String
    /// The observed object; empty for any object.
    public var object: String
    public var options: ObserverOptions

    public init(name: String, object: String, options: ObserverOptions = ObserverOptions()) {
        self.name = name
        self.object = object
        self.options = options
    }

    public static let member: MemberName = "AddObserver"
    public static let inputs: [Interface.Argument] = [
        .init("name", "s"), .init("object", "s"), .init("options", "a{sv}"),
    ]
    public static let outputs: [Interface.Argument] = [.init("observer", "t")]

    public init(from arguments: inout MessageReader) throws(BusError) {
        name = try arguments.read()
        object = try arguments.read()
        options = try mappingCenterErrors { () throws(CenterError) in try ObserverOptions(from: &arguments) }
    }

    public func append(to writer: inout MessageWriter) {
        writer.append(name)
        writer.append(object)
        options.append(to: &writer)
    }

    public static func readReply(from reader: inout MessageReader) throws(BusError) -> ObserverID {
        ObserverID(rawValue: try reader.read())
    }

    public static func append(_ reply: ObserverID, to writer: inout MessageWriter) {
        writer.append(reply.rawValue)
    }
}
