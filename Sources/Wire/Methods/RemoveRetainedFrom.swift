// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCore
import CarillonDBus

/// The D-Bus method that removes the retained value of one name, object and origin, and replies with the number of
/// removed values: 1 or 0 (R1, G3). Values of the same name from different origins are separate.
public struct RemoveRetainedFrom: CenterMethod {
    /// The host of origin; empty for a value without a host. If ``host`` and ``user`` are empty, the origin is this
    /// session.
    public var host: String
    /// The user of origin; empty for a value without a user.
    public var user: String
    public var name: String
    /// The object; empty for the value without an object.
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

    /// Returns the origin; nil for this session.
    ///
    /// - Throws: ``CenterError`` for an origin that no value can have.
    public func origin() throws(CenterError) -> OutsideOrigin? {
        try OutsideOrigin(host: host.isEmpty ? nil : host, user: user.isEmpty ? nil : user)
    }
}
