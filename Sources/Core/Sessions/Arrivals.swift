// SPDX-License-Identifier: Apache-2.0
import CarillonCollections

/// A filter of duplicates among the notifications from other sessions of the machine (G1, G2). A notification may
/// arrive both over the system bus and through the broker of the bridge; only the first copy is delivered.
///
/// It keeps the ids of the last 16,384 such notifications. Earlier ones are unknown, and so are all before a start of
/// the service: a copy of one of these is delivered again.
struct Arrivals {
    /// Hashes of id and user, to save memory. Two ids with the same hash of 64 bits are too rare to matter.
    private var known: Set<Int> = []
    /// The same hashes, the oldest first.
    private var order = Deque<Int>()
    private static let maxCount = 16_384

    /// Records the arrival of a notification.
    ///
    /// - Parameters:
    ///   - identity: the id of the notification, unique among the posts of its user (option `same-as`).
    ///   - user: the user of the session in which it was posted.
    /// - Returns: whether it is the first arrival with this id.
    mutating func note(_ deduplicationID: String, of user: String) -> Bool {
        var hasher = Hasher()
        hasher.combine(deduplicationID)
        hasher.combine(user)
        let hash = hasher.finalize()
        guard known.insert(hash).inserted else { return false }
        order.append(hash)
        if order.count > Self.maxCount, let oldest = order.popFirst() { known.remove(oldest) }
        return true
    }
}
