// SPDX-License-Identifier: Apache-2.0
import CarillonCollections

/// The connections that are blocked on the in-flight quota (A4, E4): a FIFO queue for each account, and round-robin
/// among the accounts.
///
/// The quota limits the sent and unacknowledged bytes of all connections, and gives each account a share. When the
/// first connection of an account does not fit, no other connection of that account need be checked.
/// ``DistributedCenter/unblock(effects:)`` takes the accounts in rotation when quota becomes free.
struct BlockedOnQuota {
    /// The accounts in the round-robin, each once. An account may be in it although all of its blocked connections have
    /// gone.
    private var accounts = Deque<Account>()
    /// The number of elements in the queues of all accounts. It includes obsolete elements, of connections that are
    /// blocked no more.
    private(set) var count = 0

    var isEmpty: Bool { count == 0 }
    /// The number of accounts in the round-robin.
    var accountCount: Int { accounts.count }

    /// Appends a blocked connection to the queue of its account.
    mutating func append(_ peer: Peer) {
        let account = peer.account
        account.blockedOnQuota.append(peer)
        count += 1
        // Obsolete elements are removed when they outnumber the connections.
        if account.blockedOnQuota.count > 2 * account.peers + 64 { dropStale(of: account) }
        guard !account.isInRotation else { return }
        account.isInRotation = true
        accounts.append(account)
    }

    /// Takes the next account out of the round-robin. ``putBackAccount(of:)`` must follow.
    mutating func takeNextAccount() -> Account? { accounts.popFirst() }

    /// Puts the account at the end of the round-robin if it still has blocked connections.
    mutating func putBackAccount(of account: Account) {
        account.isInRotation = !account.blockedOnQuota.isEmpty
        if account.isInRotation { accounts.append(account) }
    }

    /// Removes the obsolete elements of an account.
    private mutating func dropStale(of account: Account) {
        let before = account.blockedOnQuota.count
        account.blockedOnQuota.removeAll { !isWaiting($0, in: account) }
        count -= before - account.blockedOnQuota.count
    }

    /// Whether an element of an account is not obsolete. A connection may have left, been unblocked, or moved to
    /// another account.
    private func isWaiting(_ peer: Peer, in account: Account) -> Bool {
        peer.isKnown && peer.flow.isBlockedOnQuota && peer.account === account
    }

    /// The first blocked connection of an account. Obsolete elements before it are removed.
    mutating func first(of account: Account) -> Peer? {
        while let peer = account.blockedOnQuota.first {
            if isWaiting(peer, in: account) { return peer }
            removeFirst(of: account)
        }
        return nil
    }

    /// Removes the connection that ``first(of:)`` returned.
    mutating func removeFirst(of account: Account) {
        if account.blockedOnQuota.popFirst() != nil { count -= 1 }
    }

    /// Removes all connections of an account that is forgotten.
    mutating func forget(_ account: Account) {
        count -= account.blockedOnQuota.count
        account.blockedOnQuota = Deque()
    }
}
