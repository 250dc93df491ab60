// SPDX-License-Identifier: Apache-2.0
import CarillonCollections
import CarillonCore

/// The origin of messages: the session of a user on a machine. A bridge names it in its topics, and other sessions
/// receive it as `host` and `user` (G3).
struct Origin: Hashable, Sendable {
    let host: String
    let user: String

    /// Nil for texts that can't be the origin of a notification (``OutsideOrigin``).
    init?(host: String, user: String) {
        guard !host.isEmpty, !user.isEmpty, host.utf8.count <= OutsideOrigin.maxBytes,
            user.utf8.count <= OutsideOrigin.maxBytes, !host.utf8.contains(0), !user.utf8.contains(0)
        else { return nil }
        self.host = host
        self.user = user
    }

    /// The text for people.
    var text: String { "\(host)/\(user)" }

    // Compared byte for byte, as all texts here (D2).

    static func == (left: Origin, right: Origin) -> Bool {
        ExactText(left.host) == ExactText(right.host) && ExactText(left.user) == ExactText(right.user)
    }

    func hash(into hasher: inout Hasher) {
        hasher.combine(ExactText(host))
        hasher.combine(ExactText(user))
    }
}
