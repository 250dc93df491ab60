// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCore
import CarillonDBus

/// The names of the bridge to other machines on the session bus (G2), version 1.
public enum BridgeWire {
    public static let busName: WellKnownName = "org.carillon.Bridge1"
    public static let path: ObjectPath = "/org/carillon/Bridge1"
    public static let interface: InterfaceName = "org.carillon.Bridge1"

    /// Methods. All except ``forget`` take no arguments.
    public static let getStatus: MemberName = "GetStatus"
    public static let test: MemberName = "Test"
    public static let reload: MemberName = "Reload"
    public static let forget: MemberName = "Forget"

    /// The error of a round trip that did not complete.
    public static let notConnected: InterfaceName = "org.carillon.Error.NotConnected"

    public static func methodCall(_ member: MemberName) -> Message {
        .methodCall(to: busName, path: path, interface: interface, member: member, startsService: false)
    }

    /// Returns a call of ``forget``.
    public static func forgetCall(host: String, user: String) -> Message {
        let call = methodCall(forget)
        var writer = MessageWriter(call)
        writer.append(host)
        writer.append(user)
        return call
    }

    /// Reads the reply of ``forget``.
    ///
    /// - Returns: The number of removed retained messages, the number that the broker refused to remove, and the
    ///   reason.
    public static func forgotten(in reply: Message) throws(BusError) -> (
        removed: UInt64, refused: UInt64, reason: String
    ) {
        var reader = MessageReader(reply)
        var entries = WireDictionary(try UserInfoCoding.read(from: &reader))
        return (
            try entries.take("removed") { $0.uint64 }, try entries.take("refused") { $0.uint64 },
            try entries.take("reason") { $0.string }
        )
    }

    public static func append(
        removed: UInt64, refused: UInt64, reason: String, to writer: inout MessageWriter
    ) {
        UserInfoCoding.append(
            checked: ["removed": .uint64(removed), "refused": .uint64(refused), "reason": .string(reason)], to: &writer)
    }

    /// Reads the reply of ``test``.
    ///
    /// - Returns: The duration of the round trip, in microseconds.
    public static func roundTrip(in reply: Message) throws(BusError) -> UInt64 {
        var reader = MessageReader(reply)
        var entries = WireDictionary(try UserInfoCoding.read(from: &reader))
        return try entries.take("round-trip") { $0.uint64 }
    }

    public static func append(roundTrip microseconds: UInt64, to writer: inout MessageWriter) {
        UserInfoCoding.append(checked: ["round-trip": .uint64(microseconds)], to: &writer)
    }
}

/// The status that a bridge reports.
public struct BridgeStatus: Equatable, Sendable {
    /// Another host of the realm.
    public struct Host: Equatable, Sendable {
        public var host: String
        public var user: String
        public var isOnline: Bool
        /// The software of the host; empty if the host does not report it.
        public var software: String

        public init(host: String, user: String, isOnline: Bool, software: String) {
            self.host = host
            self.user = user
            self.isOnline = isOnline
            self.software = software
        }
    }

    public var version = ""
    /// `starting`, `connecting`, `connected`, `waiting`, `taken-over`, `held` or `stopped`.
    public var state = ""
    /// The reason why the bridge is not connected or has reduced function; empty if there is none.
    public var reason = ""
    /// The host and port of the broker.
    public var broker = ""
    public var usesTLS = false
    public var realm = ""
    public var host = ""
    public var user = ""
    /// Names, and prefixes of names.
    public var exports: [String] = []
    public var imports: [String] = []
    public var subscriptions: UInt32 = 0
    /// The number of messages queued for sending, and their size in bytes.
    public var queued: UInt32 = 0
    public var queuedBytes: UInt64 = 0
    /// The number of messages sent and not acknowledged.
    public var inFlight: UInt32 = 0
    public var exported: UInt64 = 0
    public var imported: UInt64 = 0
    public var lostOutwards: UInt64 = 0
    public var lostInwards: UInt64 = 0
    public var refused: UInt64 = 0
    public var repeated: UInt64 = 0
    /// The time from the last message to its acknowledgement by the broker, in microseconds; 0 before the first.
    public var acknowledgement: UInt64 = 0
    /// Hosts whose messages arrive without their properties.
    public var stripped: [String] = []
    public var hosts: [Host] = []
    /// The configuration files, in ascending precedence.
    public var files: [String] = []
    /// The mistakes in the files: `FILE:LINE: reason`.
    public var errors: [String] = []
    /// Settings that are deprecated, dangerous or without effect.
    public var warnings: [String] = []

    public init() {}

    public var isConnected: Bool { state == "connected" }

    /// - Throws: InvalidArgs if the reply is not a status.
    public init(in reply: Message) throws(BusError) {
        var reader = MessageReader(reply)
        var entries = WireDictionary(try UserInfoCoding.read(from: &reader))
        version = try entries.take("version") { $0.string }
        state = try entries.take("state") { $0.string }
        reason = try entries.take("reason") { $0.string }
        broker = try entries.take("broker") { $0.string }
        usesTLS = try entries.take("tls") { $0.boolean }
        realm = try entries.take("realm") { $0.string }
        host = try entries.take("host") { $0.string }
        user = try entries.take("user") { $0.string }
        exports = try entries.take("export") { $0.strings }
        imports = try entries.take("import") { $0.strings }
        subscriptions = try entries.take("subscriptions") { $0.uint32 }
        queued = try entries.take("queued") { $0.uint32 }
        queuedBytes = try entries.take("queued-bytes") { $0.uint64 }
        inFlight = try entries.take("in-flight") { $0.uint32 }
        exported = try entries.take("exported") { $0.uint64 }
        imported = try entries.take("imported") { $0.uint64 }
        lostOutwards = try entries.take("lost-out") { $0.uint64 }
        lostInwards = try entries.take("lost-in") { $0.uint64 }
        refused = try entries.take("refused") { $0.uint64 }
        repeated = try entries.take("duplicates") { $0.uint64 }
        acknowledgement = try entries.take("acknowledgement") { $0.uint64 }
        stripped = try entries.take("stripped") { $0.strings }
        var hosts: [Host] = []
        for element in try entries.take("hosts", { $0.elements }) {
            guard let members = element.dictionary else { throw .invalidArgs("'hosts' has the wrong type") }
            var entries = WireDictionary(members)
            hosts.append(
                Host(
                    host: try entries.take("host") { $0.string }, user: try entries.take("user") { $0.string },
                    isOnline: try entries.take("online") { $0.boolean },
                    software: try entries.take("software", { $0.string }, orElse: "")))
        }
        self.hosts = hosts
        files = try entries.take("configuration-files", { $0.strings }, orElse: [])
        errors = try entries.take("configuration-errors", { $0.strings }, orElse: [])
        warnings = try entries.take("configuration-warnings", { $0.strings }, orElse: [])
    }

    public func append(to writer: inout MessageWriter) {
        UserInfoCoding.append(checked: entries, emptyArraysOf: { $0 == "hosts" ? "a{sv}" : "s" }, to: &writer)
    }

    /// The whole status, by the contract's keys.
    public var entries: [String: PropertyList] {
        func list(_ texts: [String]) -> PropertyList { .array(texts.map { .string($0) }) }
        let hosts: [PropertyList] = hosts.map { host in
            .dictionary([
                "host": .string(host.host), "user": .string(host.user), "online": .boolean(host.isOnline),
                "software": .string(host.software),
            ])
        }
        return [
            "version": .string(version), "connected": .boolean(isConnected), "state": .string(state),
            "reason": .string(reason), "broker": .string(broker), "tls": .boolean(usesTLS), "realm": .string(realm),
            "host": .string(host), "user": .string(user), "export": list(exports), "import": list(imports),
            "subscriptions": .uint32(subscriptions), "queued": .uint32(queued), "queued-bytes": .uint64(queuedBytes),
            "in-flight": .uint32(inFlight), "exported": .uint64(exported), "imported": .uint64(imported),
            "lost-out": .uint64(lostOutwards), "lost-in": .uint64(lostInwards), "refused": .uint64(refused),
            "duplicates": .uint64(repeated), "acknowledgement": .uint64(acknowledgement), "stripped": list(stripped),
            "hosts": .array(hosts), "configuration-files": list(files), "configuration-errors": list(errors),
            "configuration-warnings": list(warnings),
        ]
    }
}

extension PropertyList {
    fileprivate var elements: [PropertyList]? { if case .array(let value) = self { value } else { nil } }
}
