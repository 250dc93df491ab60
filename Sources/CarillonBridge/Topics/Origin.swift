// SPDX-License-Identifier: Apache-2.0
import CarillonCollections
import CarillonCore

/// Whose bridge it is: a user's session on a machine. What it says of itself in topics, and what others learn as `host`
/// and `user` (G3).
struct Origin: Hashable, Sendable {
    let host: String
    let user: String

    /// Nil for what can't be the origin of a notification (``OutsideOrigin``).
    init?(host: String, user: String) {
        guard !host.isEmpty, !user.isEmpty, host.utf8.count <= OutsideOrigin.maxBytes,
            user.utf8.count <= OutsideOrigin.maxBytes, !host.utf8.contains(0), !user.utf8.contains(0)
        else { return nil }
        self.host = host
        self.user = user
    }

    /// As people read it.
    var text: String { "\(host)/\(user)" }

    // Byte for byte, as everything that is text here (D2).

    static func == (left: Origin, right: Origin) -> Bool {
        ExactText(left.host) == ExactText(right.host) && ExactText(left.user) == ExactText(right.user)
    }

    func hash(into hasher: inout Hasher) {
        hasher.combine(ExactText(host))
        hasher.combine(ExactText(user))
    }
}
