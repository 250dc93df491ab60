// SPDX-License-Identifier: Apache-2.0
import CarillonCollections

/// That a notification comes from outside of the session, and from where (G3): by the word of who brought it here, which
/// is its poster. A notification of this session has none, so that nothing from outside can pretend to be local.
public struct OutsideOrigin: Hashable, Sendable {
    /// The machine; nil where it is this one.
    public let host: String?
    /// The user on whose session it was posted there.
    public let user: String?

    /// The most that each may have, in bytes: more than any name of a host.
    public static let maxBytes = 255

    /// Nil when both are.
    ///
    /// - Throws: ``CenterError/invalidOption(_:reason:)`` for what is no name of a host or a user.
    public init?(host: String?, user: String?) throws(CenterError) {
        guard host != nil || user != nil else { return nil }
        try Self.check(host, Detail.host)
        try Self.check(user, Detail.user)
        self.host = host
        self.user = user
    }

    private static func check(_ text: String?, _ detail: Detail) throws(CenterError) {
        guard let text else { return }
        guard !text.isEmpty else { throw .invalidOption(detail.rawValue, reason: "it must not be empty") }
        guard text.utf8.count <= maxBytes else {
            throw .invalidOption(detail.rawValue, reason: "it has \(maxBytes) bytes at most, not \(text.utf8.count)")
        }
        guard !text.utf8.contains(0) else {
            throw .invalidOption(detail.rawValue, reason: "a D-Bus string can't hold a NUL character")
        }
    }

    var byteCount: Int { (host?.utf8.count ?? 0) + (user?.utf8.count ?? 0) }

    // Byte for byte, as names are.

    public static func == (left: OutsideOrigin, right: OutsideOrigin) -> Bool {
        left.host.map(ExactText.init) == right.host.map(ExactText.init)
            && left.user.map(ExactText.init) == right.user.map(ExactText.init)
    }

    public func hash(into hasher: inout Hasher) {
        hasher.combine(host.map(ExactText.init))
        hasher.combine(user.map(ExactText.init))
    }
}
