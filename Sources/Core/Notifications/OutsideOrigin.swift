// SPDX-License-Identifier: Apache-2.0
import CarillonCollections

/// The origin of a notification from another machine or session (G3): a claim of its poster, which is a bridge or the
/// service of another session. A notification of this session has no origin. A notification with an origin therefore
/// cannot pass for a local one.
public struct OutsideOrigin: Hashable, Sendable {
    /// The machine; nil for this one.
    public let host: String?
    /// The user of the session in which it was posted; nil where the poster does not state it.
    public let user: String?

    /// The maximum length of each part, in bytes; it exceeds the length of any host name.
    public static let maxBytes = 255

    /// Creates an origin; the result is nil when both parts are nil.
    ///
    /// - Parameters:
    ///   - host: the machine; nil for this one.
    ///   - user: the user of the session; nil where it is not stated.
    /// - Throws: ``CenterError/invalidOption(_:reason:)`` for a part that is empty, longer than ``maxBytes``, or
    ///   contains a NUL character.
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
            throw .invalidOption(detail.rawValue, reason: "it has at most \(maxBytes) bytes, not \(text.utf8.count)")
        }
        guard !text.utf8.contains(0) else {
            throw .invalidOption(detail.rawValue, reason: "a D-Bus string can't hold a NUL character")
        }
    }

    /// The size of both texts, in bytes.
    var byteCount: Int { (host?.utf8.count ?? 0) + (user?.utf8.count ?? 0) }

    // Texts are compared byte for byte, like names.

    public static func == (left: OutsideOrigin, right: OutsideOrigin) -> Bool {
        left.host.map(ExactText.init) == right.host.map(ExactText.init)
            && left.user.map(ExactText.init) == right.user.map(ExactText.init)
    }

    public func hash(into hasher: inout Hasher) {
        hasher.combine(host.map(ExactText.init))
        hasher.combine(user.map(ExactText.init))
    }
}
