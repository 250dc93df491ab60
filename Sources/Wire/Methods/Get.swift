// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCore
import CarillonDBus

/// The D-Bus method that returns the retained values of a name and an object, in the order of their serials (R3).
///
/// If the reply would exceed ``Wire/maxAnswerBytes``, the call fails with LimitExceeded.
public struct Get: MatchingMethod {
    /// The name; empty for any name.
    public var name: String
    /// The object; empty for any object.
    public var object: String

    public init(name: String, object: String = "") {
        self.name = name
        self.object = object
    }

    public static let member: MemberName = "Get"
    public static let outputs: [Interface.Argument] = [
        .init("values", "a(ssa{sv}a{sv})", qtType: "QList<CarillonValue>")
    ]

    public static func readReply(from reader: inout MessageReader) throws(BusError) -> [RetainedValueInfo] {
        var values: [RetainedValueInfo] = []
        var structures = try reader.readContainer(.array)
        while !structures.isAtEnd {
            var structure = try structures.readContainer(.structure)
            values.append(try RetainedValueInfo(from: &structure))
        }
        return values
    }

    public static func append(_ reply: [RetainedValueInfo], to writer: inout MessageWriter) {
        writer.array(of: "(ssa{sv}a{sv})") { writer in
            for value in reply {
                writer.structure { writer in
                    writer.append(value.name)
                    writer.append(value.object)
                    UserInfoCoding.append(checked: value.userInfo, to: &writer)
                    UserInfoCoding.append(checked: value.details, to: &writer)
                }
            }
        }
    }

    private static func tooLong(_ size: Int) -> BusError {
        BusError(
            .limitExceeded,
            message: "a reply has at most \(Wire.maxAnswerBytes) bytes, and this one would have \(size) or more; "
                + "ask for one name, or one object, at a time")
    }

    /// Replies to a call; the service uses it. The name, the object and the userInfo of each value are copied in
    /// encoded form from its post.
    ///
    /// - Parameters:
    ///   - call: A call of this method.
    ///   - values: The values of the reply.
    ///   - isVisible: Returns whether the caller may see a detail of a notification.
    /// - Throws: LimitExceeded if the reply would be too long.
    public static func answer(
        _ call: MethodCall, with values: [DistributedCenter.Kept], showing isVisible: (Detail) -> Bool
    ) throws(BusError) {
        // This check precedes all encoding, since there may be tens of thousands of values.
        let least = values.reduce(0) { $0 + $1.notification.userInfo.heldByteCount }
        guard least <= Wire.maxAnswerBytes else { throw tooLong(least) }
        let bodies = values.map { value in
            guard let userInfo = value.notification.userInfo as? WireUserInfo else {
                preconditionFailure("every post of this service carries a WireUserInfo")
            }
            return (userInfo.commonBody, details(of: value, showing: isVisible))
        }
        let size = bodies.reduce(MarshalledBytes.maxBytesOfArray) { $0 + 8 + $1.0.count + maxBytes(of: $1.1) }
        guard size <= Wire.maxAnswerBytes else { throw tooLong(size) }
        call.answer.reply(in: form, size: size) { body in
            body.array { structures in
                for (common, details) in bodies {
                    structures.append(bytes: common)
                    let holdsNoNUL = UserInfoLayout.append(entries: details, to: &structures)
                    assert(holdsNoNUL, "the texts of an identity contain no NUL character (P1)")
                }
            }
        }
    }

    private static let form = MessageTemplate.methodReturn(signature: "a(ssa{sv}a{sv})")

    /// Returns the details of a value that the caller may see; unknown ones are left out.
    private static func details(
        of kept: DistributedCenter.Kept, showing isVisible: (Detail) -> Bool
    ) -> [(key: String, value: PropertyList)] {
        let notification = kept.notification
        var details: [(key: String, value: PropertyList)] = [
            ("serial", .uint64(notification.serial)), ("time", .int64(notification.time)),
            ("poster", .string(notification.poster.rawValue)),
        ]
        func add(_ detail: Detail, _ value: PropertyList?) {
            if let value, isVisible(detail) { details.append((detail.rawValue, value)) }
        }
        add(.expiry, kept.expiryTime.map(PropertyList.int64))
        let identity = notification.identity
        add(.userID, identity?.userID.map(PropertyList.uint32))
        add(.application, identity?.application.map(PropertyList.string))
        add(.host, identity?.origin?.host.map(PropertyList.string))
        add(.user, identity?.origin?.user.map(PropertyList.string))
        return details
    }

    /// Returns the maximum size of the encoded details, in bytes: 48 for each entry, without its text.
    private static func maxBytes(of details: [(key: String, value: PropertyList)]) -> Int {
        details.reduce(MarshalledBytes.maxBytesOfArray) { sum, detail in
            let text = if case .string(let text) = detail.value { text.utf8.count } else { 0 }
            return sum + 48 + text
        }
    }
}

/// A value retained by the service (R1).
public struct RetainedValueInfo: Equatable, Sendable {
    public var name: String
    /// The object of the value; empty for none.
    public var object: String
    public var userInfo: [String: PropertyList]
    /// The details by their keys: `serial`, `time`, `poster`, `expiry` if the value expires, and the known identity of
    /// the poster.
    public var details: [String: PropertyList]

    public init(
        name: String, object: String, userInfo: [String: PropertyList], details: [String: PropertyList]
    ) {
        self.name = name
        self.object = object
        self.userInfo = userInfo
        self.details = details
    }

    init(from reader: inout MessageReader) throws(BusError) {
        name = try reader.read()
        object = try reader.read()
        userInfo = try UserInfoCoding.read(from: &reader)
        details = try UserInfoCoding.read(from: &reader)
    }

    /// The position of the value among all posts.
    public var serial: UInt64? { details["serial"]?.uint64 }
    /// The time of the post, in microseconds since 1970 in UTC.
    public var time: Int64? { if case .int64(let time)? = details["time"] { time } else { nil } }
    /// The unique name of the poster.
    public var poster: String? { details["poster"]?.string }
    /// The host of origin; nil for this machine (G3).
    public var host: String? { details["host"]?.string }
    /// The user in whose session the value was posted; nil for this session.
    public var user: String? { details["user"]?.string }
}
