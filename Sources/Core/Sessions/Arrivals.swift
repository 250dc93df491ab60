// SPDX-License-Identifier: Apache-2.0
import CarillonCollections

/// The identities of what came from other sessions of the machine (G1, G2), so that what comes by two ways is told once. The last
/// that came; of those before, and of those before a start of the service, nobody knows any more that they did.
struct Arrivals {
    private var known: Set<Int> = []
    private var order = Deque<Int>()
    private static let maxCount = 16_384

    /// Something came.
    ///
    /// - Parameters:
    ///   - identity: that of the notification in the session that it comes from.
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
