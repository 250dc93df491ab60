// SPDX-License-Identifier: Apache-2.0
import CarillonCollections

/// Connections that wait for room on the way (A4, E4): of each account in their order, and the accounts by turns.
///
/// Room is shared by accounts, so that of an account whose first one finds none nobody has to be looked at.
struct BlockedOnQuota {
    /// Those of which some wait; also of which all that waited have gone. Each once.
    private var accounts = Deque<Account>()
    /// Those that wait, and some that do not any more.
    private(set) var count = 0

    var isEmpty: Bool { count == 0 }
    var accountCount: Int { accounts.count }

    mutating func append(_ peer: Peer) {
        let account = peer.account
        account.blockedOnQuota.append(peer)
        count += 1
        // Connections that come and go leave no more places than there are connections.
        if account.blockedOnQuota.count > 2 * account.peers + 64 { dropStale(of: account) }
        guard !account.isInTurn else { return }
        account.isInTurn = true
        accounts.append(account)
    }

    /// The account whose turn it is. ``endTurn(of:)`` follows.
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

    /// The first of an account.
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

    /// An account is forgotten: nobody of it waits.
    mutating func forget(_ account: Account) {
        count -= account.blockedOnQuota.count
        account.blockedOnQuota = Deque()
    }
}
