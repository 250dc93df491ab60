// SPDX-License-Identifier: Apache-2.0

/// The amount of a resource that does not count in its total, and the lowered limit.
public struct Excess: Equatable, Sendable {
    public var amount: Int
    public var limit: Int

    public init(amount: Int, limit: Int) {
        self.amount = amount
        self.limit = limit
    }
}

/// The state of a limit that may be lowered below the usage.
struct Lowered {
    /// The limit when the excess was last computed.
    var limit: Int?
    /// The accounts with a part of the excess, and accounts that took over connections of these.
    var accounts: [AccountID: Account] = [:]
    /// The number of connections that moved to other accounts since the excess was distributed.
    var moves = 0
    /// The last excess that was logged for a later process.
    var remembered: Excess?
    /// The excess of an earlier process, until ``DistributedCenter/restoreExcess(effects:)`` has processed it.
    var restored: Excess?
    /// The maximum of the excess while restored connections turn out to belong to one process: the excess of the
    /// earlier service. It holds until the limit is lowered again.
    var maxExcess = Int.max
}

/// Limits that were lowered below the usage (E1, E4).
///
/// Nothing is taken away for a lowered limit. But the largest accounts could hold all of the new limit, and leave no
/// capacity to others. Therefore the usage of an account beyond the new limit, its **excess**, does not count in the
/// total. It ends when the account has given it back, or when others have given back so much that the total is within
/// the limit. Meanwhile the account gets nothing more.
///
/// Only a lowered limit makes the excess grow: a restart of the service frees no more capacity (E3).
extension DistributedCenter {
    /// The resources that have an excess. Queued notifications, and values of departed posters, are reclaimed instead.
    /// Values of present posters, and waiting calls, have shares that always leave some capacity to others.
    static let withExcess: [Resource] = [
        .clients, .observers, .observerBytes, .queuedPostBytes, .answerBytes, .inFlightBytes,
    ]

    /// The resources whose usage survives the process.
    private static let withLastingExcess: [Resource] = [.clients, .observers, .observerBytes, .queuedPostBytes]

    /// Applies changed limits, and unblocks connections that wait for quota.
    public func limitsChanged(effects: inout [Effect]) {
        defer { eventEnded() }
        findExcess()
        rememberExcess(effects: &effects)
        lookForRoom(effects: &effects)
        unblock(effects: &effects)
    }

    /// Computes the excess. Call after a change of limits.
    private func findExcess() {
        for resource in Self.withExcess {
            let limit = limit(of: resource)
            // The excess of the other resources shrinks by itself, and the limit of answers depends on the remaining
            // memory.
            let isLasting = Self.withLastingExcess.contains(resource)
            let isLowered = lowered[resource]?.limit.map { limit < $0 || !isLasting } ?? true
            lowered[resource, default: Lowered()].limit = limit
            if isLowered { lowered[resource]?.maxExcess = .max }
            distribute(isLowered ? newExcess(of: resource) : keptExcess(excess[resource], of: resource), of: resource)
            dropExcess(of: resource)
        }
    }

    /// Computes the excess of restored state. Call after the last change of the earlier process.
    func restoreExcess(effects: inout [Effect]) {
        for resource in Self.withExcess {
            let limit = limit(of: resource)
            lowered[resource, default: Lowered()].limit = limit
            if let before = lowered[resource]?.restored.take(), before.amount > 0, limit >= before.limit {
                lowered[resource]?.maxExcess = before.amount
                distribute(keptExcess(before.amount, of: resource), of: resource)
            } else {
                // The limit may be lower than that of the earlier process.
                distribute(newExcess(of: resource), of: resource)
            }
            dropExcess(of: resource)
        }
        rememberExcess(effects: &effects)
    }

    /// Logs changes of the excess.
    func rememberExcess(effects: inout [Effect]) {
        isExcessToRemember = false
        for resource in Self.withLastingExcess {
            guard let known = lowered[resource], let limit = known.limit else { continue }
            let now = Excess(amount: excess[resource], limit: limit)
            guard now != known.remembered, now.amount > 0 || known.remembered?.amount ?? 0 > 0 else { continue }
            lowered[resource]?.remembered = now
            if remembersChanges { effects.append(.remember(.excess(resource.limit, now))) }
        }
    }

    /// The excess for a later process; before ``restoreExcess(effects:)`` that of the earlier one.
    var rememberedExcess: [Change] {
        Self.withLastingExcess.compactMap { resource in
            guard let known = lowered[resource] else { return nil }
            let now = known.restored ?? known.limit.map { Excess(amount: excess[resource], limit: $0) }
            return now.flatMap { $0.amount > 0 ? .excess(resource.limit, $0) : nil }
        }
    }

    /// Restores the excess of an earlier process.
    func takeOver(_ before: Excess, _ key: Limits.Key) -> Bool {
        guard before.amount >= 0 else { return false }
        // Another version may have logged other resources.
        if let resource = Self.withLastingExcess.first(where: { $0.limit == key }) {
            lowered[resource, default: Lowered()].remembered = before
            lowered[resource]?.restored = before
        }
        return true
    }

    /// Distributes the same excess again when enough connections have moved to other accounts, as after a restart. The
    /// largest accounts get it. Call before a refusal because of excess.
    ///
    /// - Returns: whether an account may have less excess than before.
    func distributeExcess(of resource: Resource) -> Bool {
        guard excess[resource] > 0, let known = lowered[resource], known.moves > known.accounts.count / 4 else {
            return false
        }
        distribute(excess[resource], of: resource, among: Array(known.accounts.values))
        return true
    }

    /// Distributes an excess to the accounts with the largest usage, so that their remaining usage is equal. Among
    /// equal accounts the oldest get it.
    private func distribute(_ amount: Int, of resource: Resource, among accounts: [Account]? = nil) {
        for account in lowered[resource, default: Lowered()].accounts.values { account.excess[resource] = 0 }
        lowered[resource]?.accounts = [:]
        lowered[resource]?.moves = 0
        excess[resource] = amount
        guard amount > 0 else { return }
        let all = accounts.map { $0.reduce(0) { $0 + $1.usage[resource] } } ?? totals[resource]
        let accounts = accounts ?? Array(accountsByID.values)
        let smallestFirst = accounts.sorted {
            $0.usage[resource] == $1.usage[resource]
                ? $1.id.isOlder(than: $0.id) : $0.usage[resource] < $1.usage[resource]
        }
        meter.count(2 * accounts.count)
        meter.countSort(of: accounts.count)
        var rest = all - amount
        for (number, account) in smallestFirst.enumerated() {
            let left = smallestFirst.count - number
            let part = min(account.usage[resource], (rest + left - 1) / left)
            rest -= part
            guard account.usage[resource] > part else { continue }
            account.excess[resource] = account.usage[resource] - part
            lowered[resource]?.accounts[account.id] = account
        }
    }

    /// The usage of a resource that counts against its limit.
    func used(_ resource: Resource) -> Int { totals[resource] - excess[resource] }

    /// The usage of accounts beyond their maximum share. Where the total is over its limit, it is at least so much that
    /// some capacity is free.
    private func newExcess(of resource: Resource) -> Int {
        meter.count(accountsByID.count)
        let share = maxShare(of: resource)
        let counted = accountsByID.values.reduce(0) { $0 + min($1.usage[resource], share.one) }
        return totals[resource] - (totals[resource] > share.all ? min(counted, share.whenOver) : counted)
    }

    /// The same excess as before, but at most so much as a new one would free.
    private func keptExcess(_ amount: Int, of resource: Resource) -> Int {
        min(amount, max(0, totals[resource] - maxShare(of: resource).whenOver))
    }

    private func limit(of resource: Resource) -> Int {
        resource == .answerBytes ? answerLimit : Int(limits[resource.limit])
    }

    /// The maximum of all accounts together, the maximum of one account, and the usage that counts when the total is
    /// over its limit. Small totals have no shares.
    private func maxShare(of resource: Resource) -> (all: Int, one: Int, whenOver: Int) {
        let limit = limit(of: resource)
        switch resource {
        case .inFlightBytes, .answerBytes: return (limit, limit / 2, limit / 2)
        default:
            let most = limit < Self.smallestShared ? max(0, limit - max(1, limit / 8)) : limit / 8 * 7
            return (limit, limit < Self.smallestShared ? limit : most, most)
        }
    }

    /// Reduces the excess of an account that gave something back.
    func noteGivenBack(_ amount: Int, of account: Account, _ resource: Resource) {
        let less = min(amount, account.excess[resource])
        account.excess[resource] -= less
        excess[resource] -= less
        dropExcess(of: resource)
        if Self.withLastingExcess.contains(resource) { isExcessToRemember = true }
    }

    /// Reduces the excess when the total is within its limit: each account keeps only the excess beyond the maximum
    /// share.
    private func dropExcess(of resource: Resource) {
        let share = maxShare(of: resource)
        guard let accounts = lowered[resource]?.accounts, totals[resource] <= share.all else { return }
        meter.count(accounts.count)
        // Few accounts are left, as few can be beyond the maximum share. The next call is cheap.
        lowered[resource]?.accounts = accounts.filter { _, account in
            let rest = min(account.excess[resource], max(0, account.usage[resource] - share.one))
            excess[resource] -= account.excess[resource] - rest
            account.excess[resource] = rest
            return rest > 0
        }
    }

    /// Moves a connection's part of the excess to its new account. Call after its usage has moved.
    func moveExcess(of peer: Peer, from before: Account, to after: Account, effects: inout [Effect]) {
        for resource in Self.withExcess where peer.usage[resource] > 0 {
            if excess[resource] > 0 {
                let (usage, all) = (peer.usage[resource], before.excess[resource])
                let part = all.multipliedFullWidth(by: usage)
                let moved = max(
                    (before.usage[resource] + usage).dividingFullWidth(part).quotient, all - before.usage[resource])
                before.excess[resource] -= moved
                after.excess[resource] += moved
                lowered[resource]?.accounts[after.id] = after
                lowered[resource]?.moves += 1
            }
            if peer.isRestored { addExcess(of: after, resource) }
            dropExcess(of: resource)
        }
        peer.isRestored = false
        rememberExcess(effects: &effects)
    }

    /// Adds the usage of an account beyond the maximum share to the excess after a restart. When
    /// ``restoreExcess(effects:)`` ran, the connections of the process still had accounts of their own.
    private func addExcess(of account: Account, _ resource: Resource) {
        let more = min(
            account.usage[resource] - account.excess[resource] - maxShare(of: resource).one,
            (lowered[resource]?.maxExcess ?? .max) - excess[resource])
        guard more > 0 else { return }
        account.excess[resource] += more
        excess[resource] += more
        lowered[resource, default: Lowered()].accounts[account.id] = account
    }
}
