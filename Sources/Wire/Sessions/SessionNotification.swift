// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCore
import CarillonDBus

/// `Notification`, between sessions (G1): what was posted in one for all that want it.
public struct SessionNotification {
    public let name: String
    /// Empty for none.
    public let object: String
    public let userInfo: WireUserInfo
    public var options: Options

    public struct Options: Equatable, Sendable {
        /// 1, 2, 3 … from the sender to this receiver.
        public var number: UInt64 = 0
        /// How many before it the sender had no room for.
        public var lost: UInt64 = 0
        public var deliverImmediately = false
        /// Whether its own session keeps it.
        public var isRetained = false
        /// Whether it is over there when its poster leaves. The other side has to understand it.
        public var whileConnected = false
        /// Whether it was posted before, and is told as the other side may not have it. The same.
        public var isKept = false
        /// In seconds; nil for never.
        public var expiresAfter: UInt32?
        /// Its place among the posts of its session, and when it was posted in microseconds since 1970; the other side has to
        /// understand both. Nil where they are not told.
        public var serial: UInt64?
        public var time: Int64?
        #if CARILLON_PLANTED
            /// The user that the notification names.
            package var claimedUser: UInt32?
        #endif

        public init() {}
    }

    public static let member: MemberName = "Notification"
    public static let arguments: [Interface.Argument] = [
        .init("name", "s"), .init("object", "s"), .init("user_info", "a{sv}"), .init("options", "a{sv}"),
    ]
    private static let signature: Signature = "ssa{sv}a{sv}"

    /// The place of a notification in what its sender sends to this receiver.
    public struct Place: Equatable, Sendable {
        /// As ``Options/number``.
        public var number: UInt64 = 0
        /// As ``Options/lost``.
        public var lost: UInt64 = 0
    }

    /// The place of a notification that is not read yet. Options of a later version do not keep it from being found.
    ///
    /// - Throws: ``CenterError/invalidOption(_:reason:)`` without a number; InvalidArgs for other types.
    public static func place(of message: Message) throws(BusError) -> Place {
        guard message.hasSignature(signature) else { throw .invalidArgs("its types are no notification's") }
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

    fileprivate static func check(_ number: UInt64) throws(CenterError) {
        if number == 0 { throw .invalidOption("number", reason: "it is missing") }
    }

    /// What nobody has checked yet.
    ///
    /// - Parameter check: of name and object, before userInfo is looked at.
    /// - Throws: what `check` throws; ``CenterError/invalidUserInfo(path:reason:)``,
    ///   ``CenterError/invalidOption(_:reason:)`` or ``CenterError/limitExceeded(_:value:)``; InvalidArgs for other types.
    public init(
        _ message: Message, limits: Limits, checking check: (String, String) throws(CenterError) -> Void
    ) throws(BusError) {
        guard message.hasSignature(Self.signature) else { throw .invalidArgs("its types are no notification's") }
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

    /// The signal, out of the bytes that the post came in.
    ///
    /// - Parameter serial: of the message, unique among those of the connection.
    public static func message(
        to session: UniqueName, _ userInfo: WireUserInfo, _ options: Options, serial: UInt32
    ) -> MarshalledMessage {
        let entries = options.entries
        let size = MarshalledBytes.maxBytesOfArray + entries.count * maxBytesOfEntry
        return form.head(to: session).message(serial: serial, userInfo.commonBody, size: size) { body in
            let holdsNoNUL = UserInfoLayout.append(entries: entries, to: &body)
            assert(holdsNoNUL, "there is no text among them")
        }
    }

    private static let maxBytesOfEntry = 64
    private static let form = MessageForm.signal(
        path: SessionsWire.path, interface: SessionsWire.interface, member: member, signature: "ssa{sv}a{sv}")
}

/// The identity of a notification among those of all sessions of a machine, by whichever way it comes (G1, G2).
public enum SessionIdentity {
    /// - Parameters:
    ///   - userID: of the session in which it was posted.
    ///   - serial: its place among the posts of that session.
    ///   - time: when it was posted, in microseconds since 1970.
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
                case "uid" where PlantedFault.strikes(.claimBelieved): claimedUser = try option.number()
            #endif
            default: throw BusError(WireOption.unknown(option.key))
            }
        }
        try mappingCenterErrors { () throws(CenterError) in try SessionNotification.check(number) }
        if expiresAfter == 0 { throw BusError(.invalidOption("expires-after", reason: "it is 1 second at least")) }
    }
}
