// SPDX-License-Identifier: Apache-2.0
import CarillonDBus

/// The D-Bus method that explains to a user why a client would receive a notification now, later or not at all (B3).
/// The reply consists of sentences; `carillon why` shows them.
public struct Explain: CenterMethod {
    /// The unique name of the client; a text, as the caller may send any string.
    public var client: String
    /// The name of the notification; empty for all names that the client observes.
    public var name: String
    /// The object of the notification; empty for none.
    public var object: String

    public init(_ client: String, name: String = "", object: String = "") {
        self.client = client
        self.name = name
        self.object = object
    }

    public static let member: MemberName = "Explain"
    public static let inputs: [Interface.Argument] = [
        .init("client", "s"), .init("name", "s"), .init("object", "s"),
    ]
    public static let outputs: [Interface.Argument] = [.init("reasons", "as")]

    public init(from arguments: inout MessageReader) throws(BusError) {
        client = try arguments.read()
        name = try arguments.read()
        object = try arguments.read()
    }

    public func append(to writer: inout MessageWriter) {
        writer.append(client)
        writer.append(name)
        writer.append(object)
    }

    public static func readReply(from reader: inout MessageReader) throws(BusError) -> [String] {
        var reasons: [String] = []
        var texts = try reader.readContainer(.array)
        while !texts.isAtEnd { reasons.append(try texts.read()) }
        return reasons
    }

    public static func append(_ reply: [String], to writer: inout MessageWriter) {
        writer.array(of: "s") { writer in reply.forEach { writer.append($0) } }
    }
}
