// SPDX-License-Identifier: Apache-2.0
import CarillonCollections
import CarillonCore

/// The origin of messages, called *host* in short: the session of a user on a machine. A bridge names it in its topics,
/// and other sessions receive it in the details `host` and `user` of a notification (G3).
struct Origin: Hashable, Sendable {
    /// The name of the machine.
    let host: String
    /// The name of the user.
    let user: String

    /// Nil for texts that are empty, too long or contain NUL, and so can't be the origin of a notification
    /// (``OutsideOrigin``).
    init?(host: String, user: String) {
        guard !host.isEmpty, !user.isEmpty, host.utf8.count <= OutsideOrigin.maxBytes,
            user.utf8.count <= OutsideOrigin.maxBytes, !host.utf8.contains(0), !user.utf8.contains(0)
        else { return nil }
        self.host = host
        self.user = user
    }

    /// The text for people.
    var text: String { "\(host)/\(user)" }

    // Names are compared byte for byte, and not by Unicode equivalence (D2).

    static func == (left: Origin, right: Origin) -> Bool {
        ExactText(left.host) == ExactText(right.host) && ExactText(left.user) == ExactText(right.user)
    }

    func hash(into hasher: inout Hasher) {
        hasher.combine(ExactText(host))
        hasher.combine(ExactText(user))
    }
}
