// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCore
import CarillonDBus

/// The D-Bus method that lists the retained values without their content, in the order of their serials and in pages: a
/// reply contains values behind ``after`` (G5). The bridge finds removed values with it.
///
/// The first call also subscribes the caller to ``ValuesRemovedSignal``. This signal is sent at most once after each
/// call with 0 as ``after``, when a value is removed.
///
/// A reply may have fewer than ``most`` values even if more follow, since the service also limits its size. An empty
/// reply ends the list.
public struct FollowValues: CenterMethod {
    /// The identity and the origin of a retained value.
    public struct Listed: Equatable, Sendable {
        public var name: String
        /// The object of the value; empty for none.
        public var object: String
        /// The position of the value's post among all posts of the service.
        public var serial: UInt64
        /// The host of origin; nil for this machine.
        public var host: String?
        /// The user of origin; nil for this user.
        public var user: String?

        public init(name: String, object: String, serial: UInt64, host: String? = nil, user: String? = nil) {
            self.name = name
            self.object = object
            self.serial = serial
            self.host = host
            self.user = user
        }

        /// Whether the value was posted in this session.
        public var isOfThisSession: Bool { host == nil && user == nil }
    }

    /// The last known serial; 0 for the first page.
    public var after: UInt64
    /// The maximum number of values in the reply.
    public var most: UInt32

    public init(after: UInt64 = 0, most: UInt32 = 1024) {
        self.after = after
        self.most = most
    }

    public static let member: MemberName = "FollowValues"
    public static let inputs: [Interface.Argument] = [.init("after", "t"), .init("most", "u")]
    public static let outputs: [Interface.Argument] = [
        .init("values", "a(ssta{sv})", qtType: "QList<CarillonListedValue>")
    ]

    public init(from arguments: inout MessageReader) throws(BusError) {
        after = try arguments.read()
        most = try arguments.read()
    }

    public func append(to writer: inout MessageWriter) {
        writer.append(after)
        writer.append(most)
    }

    public static func readReply(from reader: inout MessageReader) throws(BusError) -> [Listed] {
        var values: [Listed] = []
        var structures = try reader.readContainer(.array)
        while !structures.isAtEnd {
            var structure = try structures.readContainer(.structure)
            var value = Listed(
                name: try structure.read(), object: try structure.read(), serial: try structure.read())
            let details = try UserInfoCoding.read(from: &structure)
            value.host = details[Detail.host.rawValue]?.string
            value.user = details[Detail.user.rawValue]?.string
            values.append(value)
        }
        return values
    }

    public static func append(_ reply: [Listed], to writer: inout MessageWriter) {
        writer.array(of: "(ssta{sv})") { writer in
            for value in reply {
                writer.structure { writer in
                    writer.append(value.name)
                    writer.append(value.object)
                    writer.append(value.serial)
                    var details: [String: PropertyList] = [:]
                    details[Detail.host.rawValue] = value.host.map { .string($0) }
                    details[Detail.user.rawValue] = value.user.map { .string($0) }
                    UserInfoCoding.append(checked: details, to: &writer)
                }
            }
        }
    }

    /// Returns the maximum size of a value in a reply, in bytes.
    public static func byteCount(of notification: Notification) -> Int {
        let origin = notification.identity?.origin
        return 128 + notification.name.utf8.count + notification.object.utf8.count + (origin?.host?.utf8.count ?? 0)
            + (origin?.user?.utf8.count ?? 0)
    }
}

extension FollowValues.Listed {
    /// The entry for a retained notification.
    public init(_ notification: Notification) {
        let origin = notification.identity?.origin
        self.init(
            name: notification.name, object: notification.object, serial: notification.serial, host: origin?.host,
            user: origin?.user)
    }
}
