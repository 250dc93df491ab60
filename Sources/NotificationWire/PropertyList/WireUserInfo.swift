import DBus
import NotificationCore

/// A userInfo that passes through: the marshalled bytes it came with go out again, types unchanged.
public final class WireUserInfo: UserInfo {
    public let byteCount: Int
    /// Name, object and userInfo, with which the bodies of the method `Post` and of the signal `Notification` both
    /// begin.
    public let commonBody: [UInt8]

    /// Takes the userInfo of a post whose signature is `ssa{sv}a{sv}`.
    ///
    /// - Parameter userInfo: a reader at its third argument, which it moves behind that.
    /// - Throws: ``CenterError/invalidUserInfo(path:reason:)`` for what is no property-list value, or
    ///   ``CenterError/limitExceeded(_:value:)`` (N3, E1).
    public init(of post: Message, at userInfo: inout MessageReader, limits: Limits) throws(CenterError) {
        (commonBody, byteCount) = try Self.check(post, limits: limits)
        userInfo.skip()
    }

    private init(commonBody: [UInt8], byteCount: Int) {
        self.commonBody = commonBody
        self.byteCount = byteCount
    }

    /// Checks bytes that were kept as a ``commonBody``, and may have been damaged since.
    ///
    /// - Returns: nil when they are no name, object and userInfo.
    public static func restored(
        fromCommonBody body: [UInt8]
    ) -> (name: String, object: String, userInfo: WireUserInfo)? {
        // libdbus validates bytes in a message, of whatever kind and name.
        let message = Message.signal(
            to: ":1.0", path: Wire.path, interface: Wire.interface, member: "NeverSent", serial: 1,
            signature: "ssa{sv}", body: body)
        guard let message else { return nil }
        var limits = Limits()
        limits[.userInfoBytes] = .max
        limits[.userInfoDepth] = .max
        var reader = MessageReader(message)
        guard let name = try? reader.readString(), !name.isEmpty, let object = try? reader.readString(),
            let (_, byteCount) = try? check(message, limits: limits)
        else { return nil }
        return (name, object, WireUserInfo(commonBody: body, byteCount: byteCount))
    }

    /// Checks the third argument of a message.
    ///
    /// - Returns: the bytes up to its end, and its size.
    private static func check(
        _ message: Message, limits: Limits
    ) throws(CenterError) -> (commonBody: [UInt8], byteCount: Int) {
        try message.withMarshalledBody { body throws(CenterError) in
            func endOfText(at offset: Int) -> Int {
                let start = (offset + 3) & ~3
                return start + 4 + Int(body.loadUnaligned(fromByteOffset: start, as: UInt32.self)) + 1
            }
            var checker = PropertyListChecker(body, at: endOfText(at: endOfText(at: 0)), limits: limits)
            let byteCount = try checker.check()
            return (Array(body[..<checker.offset]), byteCount)
        }
    }
}
