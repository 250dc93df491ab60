// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonDBus

/// The clients that the service knows.
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

/// A client as the service shows it to others.
public struct ListedClient: Sendable {
    public var name: UniqueName
    /// 0 when the bus does not know it.
    public var processID: UInt32
    /// The kernel's short name of the program; empty when it is not known.
    public var process: String
    public var isSuspended: Bool
    /// Why it is suspended or not: `none`, `explicit` or `activity`, and what later services add.
    public var cause: String
    public var observers: UInt32
    /// Notifications that wait for it.
    public var queued: UInt32
    public var delivered: UInt64
    public var dropped: UInt64
    /// Whether it reads, as far as that is known: `open`, `waiting` or `unanswered`, and what later services add; empty
    /// from a service that does not tell.
    public var flow: String
    /// Messages that were sent to it and that it has not confirmed.
    public var unconfirmed: UInt32
    /// Posts that it made.
    public var posted: UInt64
    /// Its user, as the bus verified it; nil when that is not known.
    public var userID: UInt32?
    /// The id of its application, as its desktop file is named; empty where nothing tells.
    public var application: String
    /// Whether it has a channel.
    public var hasChannel: Bool
    /// What a later service tells besides, by its keys.
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

    /// All that is told, under the contract's keys and in its order; after that what a later service adds.
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

    /// - Throws: InvalidArgs when a key of the contract is missing, or its value is of another type.
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
        userID = try rest.takeIfThere("uid", \.uint32)
        hasChannel = try rest.take("channel", \.boolean, orElse: false)
        others = rest.entries
    }
}
