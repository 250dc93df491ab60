// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCore
import CarillonDBus

/// The signal `Notification` on the system bus, from the service of one session to the service of another (G1): a post
/// with the option `all-sessions`. Each session receives the names that it imports. ``SessionsWire`` lists the other
/// signals.
public struct SessionNotification {
    public let name: String
    /// The object; empty for none.
    public let object: String
    public let userInfo: WireUserInfo
    public var options: Options

    /// The last argument of the signal.
    public struct Options: Equatable, Sendable {
        /// The sequence number of the message among the sender's messages to this receiver: 1, 2, 3 … The receiver
        /// acknowledges it with ``TakenSignal``.
        public var number: UInt64 = 0
        /// The number of earlier posts that the sender discarded because its queue was full.
        public var lost: UInt64 = 0
        /// The option `deliver-immediately` of the post.
        public var deliverImmediately = false
        /// Whether the sender's session retains the notification as a value.
        public var isRetained = false
        /// Whether the value ends when its poster leaves. It is sent only to receivers with the feature
        /// ``UnderstandsSignal/values``.
        public var whileConnected = false
        /// Whether this is a retained value that the sender sends again, because the receiver may lack it. It requires
        /// the same feature.
        public var isKept = false
        /// The time until the notification expires, in seconds; nil for no expiry.
        public var expiresAfter: UInt32?
        /// The position among the posts of its session; nil if unknown. It is sent only to receivers with the feature
        /// ``UnderstandsSignal/identities``.
        public var serial: UInt64?
        /// The time of the post in microseconds since 1970; nil if unknown. It requires the same feature.
        public var time: Int64?
        // A deliberate fault for the tests of the simulation; only their build has this flag.
        #if CARILLON_PLANTED
            /// The user that the notification claims.
            package var claimedUser: UInt32?
        #endif

        public init() {}
    }

    public static let member: MemberName = "Notification"
    public static let arguments: [Interface.Argument] = [
        .init("name", "s"), .init("object", "s"), .init("user_info", "a{sv}"), .init("options", "a{sv}"),
    ]
    private static let signature: Signature = "ssa{sv}a{sv}"

    /// The options of a notification that concern acknowledgment and losses.
    public struct Place: Equatable, Sendable {
        /// The sequence number of the message among the sender's messages to this receiver.
        public var number: UInt64 = 0
        /// The number of earlier posts that the sender discarded because its queue was full.
        public var lost: UInt64 = 0
    }

    /// Reads the sequence number and the losses of an undecoded notification. The receiver can thus acknowledge a
    /// notification that it can't decode; options of a later version are ignored.
    ///
    /// - Throws: ``CenterError/invalidOption(_:reason:)`` without a number; InvalidArgs for other types.
    public static func place(of message: Message) throws(BusError) -> Place {
        guard message.hasSignature(signature) else { throw .invalidArgs("its signature is not a notification's") }
        var place = Place()
        try mappingCenterErrors { () throws(CenterError) in
            var reader = MessageReader(message)
            for _ in 0..<3 { reader.skip() }
            try readOptions(&reader) { option throws(CenterError) in
                switch option.key {
                case "number": place.number = try option.number()
                case "lost": place.lost = try option.number()
                default: break
                }
            }
            try check(place.number)
        }
        return place
    }

    /// Checks that there is a sequence number.
    fileprivate static func check(_ number: UInt64) throws(CenterError) {
        if number == 0 { throw .invalidOption("number", reason: "it is missing") }
    }

    /// Decodes an untrusted notification.
    ///
    /// - Parameter check: A check of name and object, run before userInfo is read.
    /// - Throws: The error of `check`; ``CenterError/invalidUserInfo(path:reason:)``,
    ///   ``CenterError/invalidOption(_:reason:)`` or ``CenterError/limitExceeded(_:value:)``; InvalidArgs for other
    ///   types.
    public init(
        _ message: Message, limits: Limits, checking check: (String, String) throws(CenterError) -> Void
    ) throws(BusError) {
        guard message.hasSignature(Self.signature) else { throw .invalidArgs("its signature is not a notification's") }
        var found: SessionNotification?
        try message.readMarshalledBody { body throws(BusError) in
            var reader = MarshalledReader(body)
            guard let name = reader.readString(), let object = reader.readString() else {
                throw BusError.malformedArguments
            }
            try mappingCenterErrors { () throws(CenterError) in try check(name, object) }
            let userInfo = try mappingCenterErrors { () throws(CenterError) in
                try WireUserInfo(at: &reader, limits: limits)
            }
            guard let entries = reader.readArray(alignedTo: 8), entries.upperBound == body.count else {
                throw BusError.malformedArguments
            }
            found = SessionNotification(
                name: name, object: object, userInfo: userInfo, options: try Options(at: entries, of: reader))
        }
        self = found!
    }

    private init(name: String, object: String, userInfo: WireUserInfo, options: Options) {
        self.name = name
        self.object = object
        self.userInfo = userInfo
        self.options = options
    }

    /// Encodes the signal; name, object and userInfo are copied in encoded form from the post.
    ///
    /// - Parameters:
    ///   - session: The receiver, a service on the system bus.
    ///   - serial: The serial of the D-Bus message, unique on its connection.
    public static func message(
        to session: UniqueName, _ userInfo: WireUserInfo, _ options: Options, serial: UInt32
    ) -> MarshalledMessage {
        let entries = options.entries
        let size = MarshalledBytes.maxBytesOfArray + entries.count * maxBytesOfEntry
        return form.head(to: session).message(serial: serial, userInfo.commonBody, size: size) { body in
            let holdsNoNUL = UserInfoLayout.append(entries: entries, to: &body)
            assert(holdsNoNUL, "the options contain no texts")
        }
    }

    /// The maximum size of an encoded option, in bytes.
    private static let maxBytesOfEntry = 64
    private static let form = MessageTemplate.signal(
        path: SessionsWire.path, interface: SessionsWire.interface, member: member, signature: "ssa{sv}a{sv}")
}

/// The deduplication ID of a notification among those of all sessions of a machine. Copies of the notification that
/// arrive over the system bus and over a bridge have the same ID (G1, G2).
public enum SessionIdentity {
    /// Returns the ID.
    ///
    /// - Parameters:
    ///   - userID: The user of the session in which the notification was posted.
    ///   - serial: The position among the posts of that session.
    ///   - time: The time of the post, in microseconds since 1970.
    public static func text(userID: UInt32, serial: UInt64, time: Int64) -> String { "\(userID)/\(serial)/\(time)" }
}

extension SessionNotification.Options {
    fileprivate var entries: [(key: String, value: PropertyList)] {
        var entries: [(key: String, value: PropertyList)] = [("number", .uint64(number))]
        if lost > 0 { entries.append(("lost", .uint64(lost))) }
        if deliverImmediately { entries.append(("deliver-immediately", .boolean(true))) }
        if isRetained { entries.append(("retain", .boolean(true))) }
        if whileConnected { entries.append(("while-connected", .boolean(true))) }
        if isKept { entries.append(("kept", .boolean(true))) }
        if let expiresAfter { entries.append(("expires-after", .uint32(expiresAfter))) }
        if let serial { entries.append(("serial", .uint64(serial))) }
        if let time { entries.append(("time", .int64(time))) }
        return entries
    }

    fileprivate init(at entries: Range<Int>, of arguments: MarshalledReader) throws(BusError) {
        self.init()
        try readMarshalledOptions(at: entries, of: arguments) { option throws(BusError) in
            switch option.key {
            case "number": number = try option.number()
            case "lost": lost = try option.number()
            case "deliver-immediately": deliverImmediately = try option.boolean()
            case "retain": isRetained = try option.boolean()
            case "while-connected": whileConnected = try option.boolean()
            case "kept": isKept = try option.boolean()
            case "expires-after": expiresAfter = try option.number()
            case "serial": serial = try option.number()
            case "time": time = try option.number()
            #if CARILLON_PLANTED
                case "uid" where PlantedFault.strikes(.unverifiedUser): claimedUser = try option.number()
            #endif
            default: throw BusError(WireOption.unknown(option.key))
            }
        }
        try mappingCenterErrors { () throws(CenterError) in try SessionNotification.check(number) }
        if expiresAfter == 0 { throw BusError(.invalidOption("expires-after", reason: "it must be at least 1 second")) }
    }
}
