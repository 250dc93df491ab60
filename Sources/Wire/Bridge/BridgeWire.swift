// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCore
import CarillonDBus

/// The D-Bus interface of the bridge on the session bus, version 1: its names, and the encoding of its calls and
/// replies (G2). The bridge serves it, and `carillon bridge` calls it.
public enum BridgeWire {
    public static let busName: WellKnownName = "org.carillon.Bridge1"
    public static let path: ObjectPath = "/org/carillon/Bridge1"
    public static let interface: InterfaceName = "org.carillon.Bridge1"

    /// The method that returns a ``BridgeStatus``.
    public static let getStatus: MemberName = "GetStatus"
    /// The method that sends a test message through the broker and back, and returns its round-trip time.
    public static let test: MemberName = "Test"
    /// The method that reads the configuration files again.
    public static let reload: MemberName = "Reload"
    /// The method that removes the retained messages of a host and user from the broker. Its call is
    /// ``forgetCall(host:user:)``.
    public static let forget: MemberName = "Forget"

    /// The error of ``test`` when the round trip did not complete.
    public static let notConnected: InterfaceName = "org.carillon.Error.NotConnected"

    /// Returns a call of the bridge without arguments. It does not start a bridge that is not running.
    public static func methodCall(_ member: MemberName) -> Message {
        .methodCall(to: busName, path: path, interface: interface, member: member, startsService: false)
    }

    /// Returns a call of ``forget`` for the retained messages of one host and user.
    public static func forgetCall(host: String, user: String) -> Message {
        let call = methodCall(forget)
        var writer = MessageWriter(call)
        writer.append(host)
        writer.append(user)
        return call
    }

    /// Reads the reply of ``forget``.
    ///
    /// - Returns: The number of removed retained messages, the number of messages that the broker refused to remove,
    ///   and the reason of the refusal.
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

    /// Appends the reply of ``forget``.
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

    /// Appends the reply of ``test``.
    public static func append(roundTrip microseconds: UInt64, to writer: inout MessageWriter) {
        UserInfoCoding.append(checked: ["round-trip": .uint64(microseconds)], to: &writer)
    }
}

/// The status of a bridge, the reply of ``BridgeWire/getStatus``. Counters begin when the bridge starts.
public struct BridgeStatus: Equatable, Sendable {
    /// Another host of the realm, which is the group of machines that exchange notifications through one broker.
    public struct Host: Equatable, Sendable {
        public var host: String
        public var user: String
        /// Whether its presence at the broker says that it is connected.
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

    /// The version of the bridge's software.
    public var version = ""
    /// The state of the connection to the broker:
    ///
    /// - `starting`, `connecting`, `connected`, `stopped`
    /// - `waiting`: the next attempt to connect is pending.
    /// - `taken-over`: another bridge has connected with the same realm, host and user.
    /// - `held`: the session has no notification center.
    public var state = ""
    /// The reason why the bridge is not connected or has reduced function; empty if there is none.
    public var reason = ""
    /// The host and port of the broker.
    public var broker = ""
    public var usesTLS = false
    /// The identity of the bridge at the broker.
    public var realm = ""
    public var host = ""
    public var user = ""
    /// The exported names, and prefixes of names.
    public var exports: [String] = []
    /// The imported names, and prefixes of names.
    public var imports: [String] = []
    /// The number of MQTT topic filters that the bridge has subscribed to.
    public var subscriptions: UInt32 = 0
    /// The number of messages queued for sending, and their size in bytes.
    public var queued: UInt32 = 0
    public var queuedBytes: UInt64 = 0
    /// The number of messages sent and not acknowledged.
    public var inFlight: UInt32 = 0
    /// The number of exported notifications.
    public var exported: UInt64 = 0
    /// The number of imported notifications.
    public var imported: UInt64 = 0
    /// The number of notifications lost on the way to the broker.
    public var lostOutwards: UInt64 = 0
    /// The number of notifications lost on the way from the broker.
    public var lostInwards: UInt64 = 0
    /// The number of received messages that were refused.
    public var refused: UInt64 = 0
    /// The number of received duplicates, which were not posted.
    public var repeated: UInt64 = 0
    /// The time from the last message to its acknowledgement by the broker, in microseconds; 0 before the first.
    public var acknowledgement: UInt64 = 0
    /// The hosts whose messages are refused, because they arrive without their MQTT properties.
    public var stripped: [String] = []
    /// The other hosts of the realm.
    public var hosts: [Host] = []
    /// The configuration files, in ascending precedence.
    public var files: [String] = []
    /// The mistakes in the files: `FILE:LINE: reason`.
    public var errors: [String] = []
    /// Settings that are deprecated, dangerous or without effect.
    public var warnings: [String] = []

    public init() {}

    public var isConnected: Bool { state == "connected" }

    /// Decodes the reply of ``BridgeWire/getStatus``.
    ///
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

    /// Appends the status as the reply.
    public func append(to writer: inout MessageWriter) {
        UserInfoCoding.append(checked: entries, emptyArraysOf: { $0 == "hosts" ? "a{sv}" : "s" }, to: &writer)
    }

    /// The whole status as a dictionary, by the keys of the D-Bus interface.
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
