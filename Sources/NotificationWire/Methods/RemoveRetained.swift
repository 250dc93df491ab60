import DBus

/// Removes the values that are kept of a name and an object (R1); answered with how many.
public struct RemoveRetained: CenterMethod {
    /// Empty for whatever name.
    public var name: String
    /// Empty for whatever object.
    public var object: String

    public init(name: String, object: String = "") {
        self.name = name
        self.object = object
    }

    public static let member: MemberName = "RemoveRetained"
    public static let inputs: [Interface.Argument] = [.init("name", "s"), .init("object", "s")]
    public static let outputs: [Interface.Argument] = [.init("removed", "u")]

    public init(from arguments: inout MessageReader) throws(BusError) {
        name = try arguments.read()
        object = try arguments.read()
    }

    public func append(to writer: inout MessageWriter) {
        writer.append(name)
        writer.append(object)
    }

    public static func readReply(from reader: inout MessageReader) throws(BusError) -> Int {
        Int(try reader.read(UInt32.self))
    }

    public static func append(_ reply: Int, to writer: inout MessageWriter) {
        writer.append(UInt32(reply))
    }
}
