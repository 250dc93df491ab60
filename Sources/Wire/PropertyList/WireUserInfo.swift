// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonDBus

/// A userInfo that passes through: the marshalled bytes it came with go out again, types unchanged.
public final class WireUserInfo: UserInfo {
    public let byteCount: Int
    /// Name, object and userInfo, with which the bodies of the method `Post` and of the signal `Notification` both
    /// begin.
    public let commonBody: [UInt8]
    /// The name and the object are here, too. Short ones count among what each notification takes besides.
    public var heldByteCount: Int { max(byteCount, commonBody.count - Self.shortTexts) }
    private static let shortTexts = 128

    /// Takes the userInfo of a post whose signature is `ssa{sv}a{sv}`.
    ///
    /// - Parameter arguments: a reader at its third, which it moves behind that.
    /// - Throws: ``CenterError/invalidUserInfo(path:reason:)`` for what is no property-list value, or
    ///   ``CenterError/limitExceeded(_:value:)`` (N3, E1).
    public init(at arguments: inout MarshalledReader, limits: Limits) throws(CenterError) {
        var checker = PropertyListChecker(at: arguments, limits: limits)
        byteCount = try checker.check()
        arguments = checker.reader
        commonBody = Array(arguments.bytes[..<arguments.offset])
    }

    /// Checks bytes that were kept as a ``commonBody``, and may have been damaged since.
    ///
    /// - Returns: nil when they are no name, object and userInfo.
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
