// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCore
import CarillonDBus

/// The D-Bus method that returns the verified identity of a connection that has called the service: its user, process
/// and application (P1). The service answers for up to one minute after the connection left.
///
/// For a client that is unknown to the service, or hidden from the caller, the call fails with the bus's error
/// NameHasNoOwner.
public struct GetClient: CenterMethod {
    /// The unique name of the client; a text, as the caller may send any string.
    public var client: String

    public init(_ client: String) {
        self.client = client
    }

    public static let member: MemberName = "GetClient"
    public static let inputs: [Interface.Argument] = [.init("client", "s")]
    public static let outputs: [Interface.Argument] = [.init("facts", "a{sv}")]

    public init(from arguments: inout MessageReader) throws(BusError) {
        client = try arguments.read()
    }

    public func append(to writer: inout MessageWriter) {
        writer.append(client)
    }

    public static func readReply(from reader: inout MessageReader) throws(BusError) -> KnownClient {
        try KnownClient(try UserInfoCoding.read(from: &reader))
    }

    public static func append(_ reply: KnownClient, to writer: inout MessageWriter) {
        UserInfoCoding.append(reply.entries, to: &writer)
    }
}

/// The known identity of a connection. Unknown facts are nil.
public struct KnownClient: Sendable {
    public var name: UniqueName
    /// The identity; nil if nothing is known.
    public var identity: Identity?

    public init(name: UniqueName, identity: Identity?) {
        self.name = name
        self.identity = identity
    }

    /// The known facts by the keys of the D-Bus interface, in its order.
    public var entries: [(key: String, value: PropertyList)] {
        var entries: [(key: String, value: PropertyList)] = [("name", .string(name.rawValue))]
        guard let identity else { return entries }
        if let id = identity.userID { entries.append(("uid", .uint32(id))) }
        if let id = identity.processID { entries.append(("pid", .uint32(id))) }
        for (key, text) in [
            ("process", identity.process), ("app", identity.application), ("sandbox", identity.sandbox),
            ("unit", identity.unit),
        ] {
            if let text { entries.append((key, .string(text))) }
        }
        return entries
    }

    /// Decodes the reply.
    ///
    /// - Throws: InvalidArgs if the name is missing, or a value has the wrong type.
    init(_ entries: [String: PropertyList]) throws(BusError) {
        var rest = WireDictionary(entries)
        guard let name = UniqueName(rawValue: try rest.take("name", \.string)) else {
            throw .invalidArgs("a client has no name")
        }
        self.name = name
        identity = Identity(
            userID: try rest.takeOptional("uid", \.uint32), processID: try rest.takeOptional("pid", \.uint32),
            process: try rest.takeOptional("process", \.string), application: try rest.takeOptional("app", \.string),
            sandbox: try rest.takeOptional("sandbox", \.string), unit: try rest.takeOptional("unit", \.string))
    }
}
