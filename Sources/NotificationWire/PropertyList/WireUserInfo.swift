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
        var checker = PropertyListChecker(limits: limits)
        byteCount = try checker.check(userInfo: &userInfo)
        commonBody = Self.commonBody(of: post.marshalledBody)
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
        var checker = PropertyListChecker(limits: limits)
        var reader = MessageReader(message)
        guard let name = try? reader.readString(), !name.isEmpty, let object = try? reader.readString(),
            let byteCount = try? checker.check(userInfo: &reader)
        else { return nil }
        return (name, object, WireUserInfo(commonBody: body, byteCount: byteCount))
    }

    /// The bytes up to the end of the third argument.
    private static func commonBody(of body: [UInt8]) -> [UInt8] {
        body.withUnsafeBytes { body in
            func length(at offset: Int) -> Int { Int(body.load(fromByteOffset: offset, as: UInt32.self)) }
            func aligned(_ offset: Int, _ alignment: Int) -> Int { (offset + alignment - 1) & ~(alignment - 1) }
            let object = aligned(4 + length(at: 0) + 1, 4)
            let userInfo = aligned(object + 4 + length(at: object) + 1, 4)
            let end = aligned(userInfo + 4, 8) + length(at: userInfo)
            return Array(UnsafeRawBufferPointer(rebasing: body[..<end]))
        }
    }
}
