// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCore
import CarillonDBus

/// Removes the value of a name and an object that is from one place (R1, G3); answered with how many that was, 1 or 0.
public struct RemoveRetainedFrom: CenterMethod {
    /// Empty for those that have none. With an empty ``user`` besides, it is this session.
    public var host: String
    public var user: String
    public var name: String
    /// Empty for the one that has none.
    public var object: String

    public init(host: String, user: String, name: String, object: String = "") {
        self.host = host
        self.user = user
        self.name = name
        self.object = object
    }

    public static let member: MemberName = "RemoveRetainedFrom"
    public static let inputs: [Interface.Argument] = [
        .init("host", "s"), .init("user", "s"), .init("name", "s"), .init("object", "s"),
    ]
    public static let outputs = RemoveRetained.outputs

    public init(from arguments: inout MessageReader) throws(BusError) {
        host = try arguments.read()
        user = try arguments.read()
        name = try arguments.read()
        object = try arguments.read()
    }

    public func append(to writer: inout MessageWriter) {
        for text in [host, user, name, object] { writer.append(text) }
    }

    public static func readReply(from reader: inout MessageReader) throws(BusError) -> Int {
        try RemoveRetained.readReply(from: &reader)
    }

    public static func append(_ reply: Int, to writer: inout MessageWriter) {
        RemoveRetained.append(reply, to: &writer)
    }

    /// Nil for this session.
    ///
    /// - Throws: what no value can be from.
    public func origin() throws(CenterError) -> OutsideOrigin? {
        try OutsideOrigin(host: host.isEmpty ? nil : host, user: user.isEmpty ? nil : user)
    }
}
