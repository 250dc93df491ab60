// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonDBus

/// The D-Bus method that lists the connections with the largest numbers of accepted posts, in the order in which they
/// connected to the bus (B3). `carillon` lists them.
///
/// A reply may have fewer than ``most`` connections even if there are more, since the service also limits its size.
public struct ListPosters: CenterMethod {
    /// The maximum number of connections in the reply.
    public var most: UInt32

    public init(most: UInt32 = .max) {
        self.most = most
    }

    public static let member: MemberName = "ListPosters"
    public static let inputs: [Interface.Argument] = [.init("most", "u")]
    public static let outputs: [Interface.Argument] = [.init("posters", "aa{sv}")]

    public init(from arguments: inout MessageReader) throws(BusError) {
        most = try arguments.read()
    }

    public func append(to writer: inout MessageWriter) {
        writer.append(most)
    }

    public static func readReply(from reader: inout MessageReader) throws(BusError) -> [ListedPoster] {
        var posters: [ListedPoster] = []
        var rows = try reader.readContainer(.array)
        while !rows.isAtEnd { posters.append(try ListedPoster(try UserInfoCoding.read(from: &rows))) }
        return posters
    }

    public static func append(_ reply: [ListedPoster], to writer: inout MessageWriter) {
        writer.array(of: "a{sv}") { writer in
            for poster in reply { UserInfoCoding.append(poster.entries, to: &writer) }
        }
    }
}

/// A connection that has posted, as the reply of ``ListPosters`` describes it.
public struct ListedPoster: Sendable {
    public var name: UniqueName
    /// The process ID; 0 if the bus does not know it.
    public var processID: UInt32
    /// The kernel's short name of the program; empty if unknown.
    public var process: String
    /// The application ID, which is the name of its desktop file; empty if unknown.
    public var application: String
    /// The user ID as verified by the bus; nil if unknown.
    public var userID: UInt32?
    /// The number of accepted posts.
    public var posted: UInt64
    /// The number of refused posts.
    public var refused: UInt64
    /// Additional entries of a later service, by their keys.
    public var others: [String: PropertyList] = [:]

    public init(
        name: UniqueName, processID: UInt32, process: String, application: String, userID: UInt32?, posted: UInt64,
        refused: UInt64
    ) {
        self.name = name
        self.processID = processID
        self.process = process
        self.application = application
        self.userID = userID
        self.posted = posted
        self.refused = refused
    }

    /// All entries by the keys of the D-Bus interface, in its order, followed by those of a later service.
    public var entries: [(key: String, value: PropertyList)] {
        var known: [(String, PropertyList)] = [
            ("name", .string(name.rawValue)), ("pid", .uint32(processID)), ("process", .string(process)),
            ("app", .string(application)),
        ]
        if let userID { known.append(("uid", .uint32(userID))) }
        known += [("posted", .uint64(posted)), ("refused", .uint64(refused))]
        return known + others.sorted { $0.key < $1.key }.map { ($0.key, $0.value) }
    }

    /// The approximate size in a reply, in bytes.
    public var byteCount: Int { 192 + name.rawValue.utf8.count + process.utf8.count + application.utf8.count }

    /// Decodes an entry of the reply.
    ///
    /// - Throws: InvalidArgs if a key of the contract is missing, or its value has the wrong type.
    init(_ entries: [String: PropertyList]) throws(BusError) {
        var rest = WireDictionary(entries)
        guard let name = UniqueName(rawValue: try rest.take("name", \.string)) else {
            throw .invalidArgs("a poster has no name")
        }
        self.name = name
        processID = try rest.take("pid", \.uint32)
        process = try rest.take("process", \.string)
        application = try rest.take("app", \.string)
        userID = try rest.takeOptional("uid", \.uint32)
        posted = try rest.take("posted", \.uint64)
        refused = try rest.take("refused", \.uint64)
        others = rest.entries
    }
}
