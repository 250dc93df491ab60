// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonDBus

/// The D-Bus method that lists the clients known to the service.
public struct ListClients: CenterMethod {
    public init() {}

    public static let member: MemberName = "ListClients"
    public static let outputs: [Interface.Argument] = [.init("clients", "aa{sv}")]

    public init(from arguments: inout MessageReader) throws(BusError) {}

    public func append(to writer: inout MessageWriter) {}

    public static func readReply(from reader: inout MessageReader) throws(BusError) -> [ListedClient] {
        var clients: [ListedClient] = []
        var rows = try reader.readContainer(.array)
        while !rows.isAtEnd { clients.append(try ListedClient(try UserInfoCoding.read(from: &rows))) }
        return clients
    }

    public static func append(_ reply: [ListedClient], to writer: inout MessageWriter) {
        writer.array(of: "a{sv}") { writer in
            for client in reply { UserInfoCoding.append(client.entries, to: &writer) }
        }
    }
}

/// A client as the reply of ``ListClients`` describes it.
public struct ListedClient: Sendable {
    public var name: UniqueName
    /// The process ID; 0 if the bus does not know it.
    public var processID: UInt32
    /// The kernel's short name of the program; empty if unknown.
    public var process: String
    public var isSuspended: Bool
    /// The cause of the suspension state: `none`, `explicit`, `activity` or `override`, and values of later services.
    public var cause: String
    /// The number of the client's observers.
    public var observers: UInt32
    /// The number of notifications queued for the client.
    public var queued: UInt32
    /// The number of notifications sent to the client.
    public var delivered: UInt64
    /// The number of notifications lost for the client.
    public var dropped: UInt64
    /// The state of flow control, and possibly values of later services; empty if an older service does not report it:
    ///
    /// - `open`: the service may send more.
    /// - `waiting`: the windows are full and unacknowledged, or the in-flight quota has no space.
    /// - `unanswered`: the windows are full, and the client has never answered a probe.
    public var flow: String
    /// The number of messages sent to the client and not acknowledged.
    public var unconfirmed: UInt32
    /// The number of the client's accepted posts.
    public var posted: UInt64
    /// The user ID as verified by the bus; nil if unknown.
    public var userID: UInt32?
    /// The application ID, which is the name of its desktop file; empty if unknown.
    public var application: String
    /// Whether the client has a channel.
    public var hasChannel: Bool
    /// Additional entries of a later service, by their keys.
    public var others: [String: PropertyList] = [:]

    public init(
        name: UniqueName, processID: UInt32, process: String, isSuspended: Bool, cause: String, observers: UInt32,
        queued: UInt32, delivered: UInt64, dropped: UInt64, flow: String, unconfirmed: UInt32, posted: UInt64,
        userID: UInt32?, application: String, hasChannel: Bool = false
    ) {
        self.name = name
        self.processID = processID
        self.process = process
        self.isSuspended = isSuspended
        self.cause = cause
        self.observers = observers
        self.queued = queued
        self.delivered = delivered
        self.dropped = dropped
        self.flow = flow
        self.unconfirmed = unconfirmed
        self.posted = posted
        self.userID = userID
        self.application = application
        self.hasChannel = hasChannel
    }

    /// All entries by the keys of the D-Bus interface, in its order, followed by those of a later service.
    public var entries: [(key: String, value: PropertyList)] {
        var known: [(String, PropertyList)] = [
            ("name", .string(name.rawValue)), ("pid", .uint32(processID)), ("process", .string(process)),
            ("suspended", .boolean(isSuspended)), ("cause", .string(cause)), ("observers", .uint32(observers)),
            ("queued", .uint32(queued)), ("delivered", .uint64(delivered)), ("dropped", .uint64(dropped)),
            ("flow", .string(flow)), ("unconfirmed", .uint32(unconfirmed)), ("posted", .uint64(posted)),
        ]
        known.append(("app", .string(application)))
        if let userID { known.append(("uid", .uint32(userID))) }
        known.append(("channel", .boolean(hasChannel)))
        return known + others.sorted { $0.key < $1.key }.map { ($0.key, $0.value) }
    }

    /// Decodes an entry of the reply.
    ///
    /// - Throws: InvalidArgs if a key of the contract is missing, or its value has the wrong type.
    init(_ entries: [String: PropertyList]) throws(BusError) {
        var rest = WireDictionary(entries)
        guard let name = UniqueName(rawValue: try rest.take("name", \.string)) else {
            throw .invalidArgs("a client has no name")
        }
        self.name = name
        processID = try rest.take("pid", \.uint32)
        process = try rest.take("process", \.string)
        isSuspended = try rest.take("suspended", \.boolean)
        cause = try rest.take("cause", \.string)
        observers = try rest.take("observers", \.uint32)
        queued = try rest.take("queued", \.uint32)
        delivered = try rest.take("delivered", \.uint64)
        dropped = try rest.take("dropped", \.uint64)
        flow = try rest.take("flow", \.string, orElse: "")
        unconfirmed = try rest.take("unconfirmed", \.uint32, orElse: 0)
        posted = try rest.take("posted", \.uint64, orElse: 0)
        application = try rest.take("app", \.string, orElse: "")
        userID = try rest.takeOptional("uid", \.uint32)
        hasChannel = try rest.take("channel", \.boolean, orElse: false)
        others = rest.entries
    }
}
