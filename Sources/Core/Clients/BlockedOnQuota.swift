// SPDX-License-Identifier: Apache-2.0
import CarillonCollections

/// The connections that are blocked on the in-flight quota (A4, E4): a queue for each account, and the accounts in
/// round-robin.
///
/// Accounts share the quota. When the first connection of an account does not fit, the others of that account need not
/// be checked.
struct BlockedOnQuota {
    /// The accounts with blocked connections, each once; also accounts of which all blocked connections have gone.
    private var accounts = Deque<Account>()
    /// The number of blocked connections, and of some that are blocked no more.
    private(set) var count = 0

    var isEmpty: Bool { count == 0 }
    var accountCount: Int { accounts.count }

    mutating func append(_ peer: Peer) {
        let account = peer.account
        account.blockedOnQuota.append(peer)
        count += 1
        // Drops obsolete places when they outnumber the connections.
        if account.blockedOnQuota.count > 2 * account.peers + 64 { dropStale(of: account) }
        guard !account.isInTurn else { return }
        account.isInTurn = true
        accounts.append(account)
    }

    /// Takes the next account in the round-robin. ``endTurn(of:)`` must follow.
    mutating func beginTurn() -> Account? { accounts.popFirst() }

    mutating func endTurn(of account: Account) {
        account.isInTurn = !account.blockedOnQuota.isEmpty
        if account.isInTurn { accounts.append(account) }
    }

    private mutating func dropStale(of account: Account) {
        let before = account.blockedOnQuota.count
        account.blockedOnQuota.removeAll { !isWaiting($0, in: account) }
        count -= before - account.blockedOnQuota.count
    }

    private func isWaiting(_ peer: Peer, in account: Account) -> Bool {
        peer.isKnown && peer.flow.isBlockedOnQuota && peer.account === account
    }

    /// The first blocked connection of an account.
    mutating func first(of account: Account) -> Peer? {
        while let peer = account.blockedOnQuota.first {
            if isWaiting(peer, in: account) { return peer }
            removeFirst(of: account)
        }
        return nil
    }

    mutating func removeFirst(of account: Account) {
        if account.blockedOnQuota.popFirst() != nil { count -= 1 }
    }

    /// Removes all connections of an account that is forgotten.
    mutating func forget(_ account: Account) {
        count -= account.blockedOnQuota.count
        account.blockedOnQuota = Deque()
    }
}
