// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonDBus

/// The connections on the bus that have posted: the busiest, in the order in which they connected (B3).
///
/// An answer with fewer than ``most`` need not be all: the service bounds it by its size too.
public struct ListPosters: CenterMethod {
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

/// A connection that has posted, as the service shows it to others.
public struct ListedPoster: Sendable {
    public var name: UniqueName
    /// 0 when the bus does not know it.
    public var processID: UInt32
    /// The kernel's short name of the program; empty when it is not known.
    public var process: String
    /// The id of its application, as its desktop file is named; empty where nothing tells.
    public var application: String
    /// Its user, as the bus verified it; nil when that is not known.
    public var userID: UInt32?
    /// Posts of it that were accepted.
    public var posted: UInt64
    /// Posts of it that were refused.
    public var refused: UInt64
    /// What a later service tells besides, by its keys.
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

    /// All that is told, under the contract's keys and in its order; after that what a later service adds.
    public var entries: [(key: String, value: PropertyList)] {
        var known: [(String, PropertyList)] = [
            ("name", .string(name.rawValue)), ("pid", .uint32(processID)), ("process", .string(process)),
            ("app", .string(application)),
        ]
        if let userID { known.append(("uid", .uint32(userID))) }
        known += [("posted", .uint64(posted)), ("refused", .uint64(refused))]
        return known + others.sorted { $0.key < $1.key }.map { ($0.key, $0.value) }
    }

    /// What it takes in an answer, in bytes, roughly.
    public var byteCount: Int { 192 + name.rawValue.utf8.count + process.utf8.count + application.utf8.count }

    /// - Throws: InvalidArgs when a key of the contract is missing, or its value is of another type.
    init(_ entries: [String: PropertyList]) throws(BusError) {
        var rest = WireDictionary(entries)
        guard let name = UniqueName(rawValue: try rest.take("name", \.string)) else {
            throw .invalidArgs("a poster has no name")
        }
        self.name = name
        processID = try rest.take("pid", \.uint32)
        process = try rest.take("process", \.string)
        application = try rest.take("app", \.string)
        userID = try rest.takeIfThere("uid", \.uint32)
        posted = try rest.take("posted", \.uint64)
        refused = try rest.take("refused", \.uint64)
        others = rest.entries
    }
}
