// SPDX-License-Identifier: Apache-2.0
import CarillonCollections

/// The identities of the last 16,384 notifications from other sessions of the machine (G1, G2), so that a notification
/// that arrives in two ways is delivered once. Earlier ones, and notifications before a start of the service, are
/// unknown.
struct Arrivals {
    private var known: Set<Int> = []
    private var order = Deque<Int>()
    private static let maxCount = 16_384

    /// Notes the arrival of a notification.
    ///
    /// - Parameters:
    ///   - identity: the identity of the notification in the session of its origin.
    ///   - user: the user of that session.
    /// - Returns: whether it is the first with this identity.
    mutating func note(_ identity: String, of user: String) -> Bool {
        var hasher = Hasher()
        hasher.combine(identity)
        hasher.combine(user)
        let hash = hasher.finalize()
        guard known.insert(hash).inserted else { return false }
        order.append(hash)
        if order.count > Self.maxCount, let oldest = order.popFirst() { known.remove(oldest) }
        return true
    }
}
