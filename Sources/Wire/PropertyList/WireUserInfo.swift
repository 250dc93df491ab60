// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonDBus

/// The userInfo of a post in the service, in encoded form: the service copies the received bytes into the messages to
/// observers, so that values keep their types and are never decoded.
public final class WireUserInfo: UserInfo {
    /// The encoded size of userInfo alone, in bytes.
    public let byteCount: Int
    /// The encoded name, object and userInfo, the common beginning of the bodies of the method `Post` and the signal
    /// `Notification`.
    public let commonBody: [UInt8]
    /// The memory that the limits account for, in bytes. Name and object count only beyond 128 bytes; up to that size
    /// they are part of the fixed cost of a notification.
    public var heldByteCount: Int { max(byteCount, commonBody.count - Self.shortTexts) }
    private static let shortTexts = 128

    /// Takes the userInfo of a post whose signature is `ssa{sv}a{sv}`.
    ///
    /// - Parameter arguments: A reader at the third argument. It is moved behind that argument.
    /// - Throws: ``CenterError/invalidUserInfo(path:reason:)`` for a value outside property lists, or
    ///   ``CenterError/limitExceeded(_:value:)`` (N3, E1).
    public init(at arguments: inout MarshalledReader, limits: Limits) throws(CenterError) {
        var checker = PropertyListChecker(at: arguments, limits: limits)
        byteCount = try checker.check()
        arguments = checker.reader
        commonBody = Array(arguments.bytes[..<arguments.offset])
    }

    /// Restores a userInfo from a ``commonBody`` in the recovery files, whose bytes may be corrupt.
    ///
    /// - Returns: nil if the bytes are not a name, an object and a userInfo.
    public static func restored(
        fromCommonBody body: UnsafeRawBufferPointer
    ) -> (name: String, object: String, userInfo: WireUserInfo)? {
        var reader = MarshalledReader(body)
        guard let name = reader.readString(), !name.isEmpty, let object = reader.readString(),
            let userInfo = try? WireUserInfo(at: &reader, limits: PropertyListChecker.withoutLimits), reader.isAtEnd
        else { return nil }
        return (name, object, userInfo)
    }
}
