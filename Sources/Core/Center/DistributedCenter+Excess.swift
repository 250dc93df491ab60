// SPDX-License-Identifier: Apache-2.0

/// The excess of a resource, with the limit for which it was computed. The recovery log has it for a later process.
public struct Excess: Equatable, Sendable {
    /// The usage that does not count in the total, in the unit of the resource.
    public var amount: Int
    /// The limit for which the excess was computed.
    public var limit: Int

    public init(amount: Int, limit: Int) {
        self.amount = amount
        self.limit = limit
    }
}

/// The state of a limit that may be lower than the usage.
struct Lowered {
    /// The limit when the excess was last computed; nil before the first time.
    var limit: Int?
    /// The accounts with a part of the excess. Accounts that took over a connection of these are included.
    var accounts: [AccountID: Account] = [:]
    /// The number of connections that moved to other accounts since the excess was distributed.
    var moves = 0
    /// The last excess that was written to the recovery log.
    var remembered: Excess?
    /// The excess that an earlier process logged, until ``DistributedCenter/restoreExcess(effects:)`` has processed it.
    var restored: Excess?
    /// The maximum to which ``DistributedCenter/addExcess(of:_:)`` may raise the excess after a restart: the excess of
    /// the earlier process. It holds until the limit is lowered again.
    var maxExcess = Int.max
}

/// Limits that were lowered below the usage (E1, E4).
///
/// A lowered limit takes nothing away. But the largest accounts could then hold all of the new limit and leave no
/// capacity to others. Therefore the usage of an account beyond its maximum share of the new limit, its **excess**,
/// does not count in the total. Meanwhile the account gets nothing more. Example: a limit is lowered to 1000, and one
/// account uses 2000. Its maximum share is 875 (7/8), so its excess is 1125, and 125 are free for others.
///
/// The excess of an account ends in one of two ways: the account has given it back, or others have given back so much
/// that the total with all excess is within the limit. In the second case an account keeps only the excess beyond its
/// maximum share.
///
/// Only a lowered limit makes the excess grow. Otherwise each restart of the service would free more capacity (E3).
extension DistributedCenter {
    /// The resources that have an excess. Others need none: queued notifications, and values of departed posters, are
    /// reclaimed; values of present posters, and waiting calls, have shares that always leave some capacity to others.
    static let withExcess: [Resource] = [
        .clients, .observers, .observerBytes, .queuedPostBytes, .answerBytes, .inFlightBytes,
    ]

    /// The resources whose usage survives the process, so that the recovery log has their excess.
    private static let withLastingExcess: [Resource] = [.clients, .observers, .observerBytes, .queuedPostBytes]

    /// Applies changed limits: computes the excess, and unblocks connections if the in-flight quota has grown.
    public func limitsChanged(effects: inout [Effect]) {
        defer { eventEnded() }
        findExcess()
        rememberExcess(effects: &effects)
        updateQuotaLow(effects: &effects)
        unblock(effects: &effects)
    }

    /// Computes the excess of each resource after a change of limits. Without a lowered limit the excess can only
    /// shrink. Exception: the excess of answers and in-flight bytes is always computed anew. It lasts only until
    /// callers read, and the limit of answers depends on the remaining memory.
    private func findExcess() {
        for resource in Self.withExcess {
            let limit = limit(of: resource)
            let isLasting = Self.withLastingExcess.contains(resource)
            // The first limit counts as lowered: there is no excess to keep.
            let isLowered = lowered[resource]?.limit.map { limit < $0 || !isLasting } ?? true
            lowered[resource, default: Lowered()].limit = limit
            if isLowered { lowered[resource]?.maxExcess = .max }
            distribute(isLowered ? newExcess(of: resource) : keptExcess(excess[resource], of: resource), of: resource)
            dropExcess(of: resource)
        }
    }

    /// Computes the excess of restored state. Call it once, after the last change of the earlier process.
    func restoreExcess(effects: inout [Effect]) {
        for resource in Self.withExcess {
            let limit = limit(of: resource)
            lowered[resource, default: Lowered()].limit = limit
            if let before = lowered[resource]?.restored.take(), before.amount > 0, limit >= before.limit {
                lowered[resource]?.maxExcess = before.amount
                distribute(keptExcess(before.amount, of: resource), of: resource)
            } else {
                // No excess was logged, or the limit is lower than that of the earlier process.
                distribute(newExcess(of: resource), of: resource)
            }
            dropExcess(of: resource)
        }
        rememberExcess(effects: &effects)
    }

    /// Logs the excess of each resource for which it has changed.
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

    /// The excess for a snapshot of the state. Before ``restoreExcess(effects:)`` it is that of the earlier process.
    var rememberedExcess: [Change] {
        Self.withLastingExcess.compactMap { resource in
            guard let known = lowered[resource] else { return nil }
            let now = known.restored ?? known.limit.map { Excess(amount: excess[resource], limit: $0) }
            return now.flatMap { $0.amount > 0 ? .excess(resource.limit, $0) : nil }
        }
    }

    /// Keeps the excess that an earlier process logged for ``restoreExcess(effects:)``.
    ///
    /// - Returns: false for a negative amount, which comes from corrupt bytes.
    func takeOver(_ before: Excess, _ key: Limits.Key) -> Bool {
        guard before.amount >= 0 else { return false }
        // Another version may have logged other resources.
        if let resource = Self.withLastingExcess.first(where: { $0.limit == key }) {
            lowered[resource, default: Lowered()].remembered = before
            lowered[resource]?.restored = before
        }
        return true
    }

    /// Distributes the present excess again, to the accounts that are now the largest, if many connections have moved
    /// to other accounts since. After a restart connections move when their processes are known. Call it before a
    /// request is refused because of excess.
    ///
    /// - Returns: whether it was distributed, so that an account may have less excess than before.
    func distributeExcess(of resource: Resource) -> Bool {
        // A distribution visits all of these accounts. At least a quarter as many moves must precede it, so that its
        // cost for each move is bounded.
        guard excess[resource] > 0, let known = lowered[resource], known.moves > known.accounts.count / 4 else {
            return false
        }
        distribute(excess[resource], of: resource, among: Array(known.accounts.values))
        return true
    }

    /// Assigns an excess to the accounts with the largest usage, so that the remaining, counted usage of these accounts
    /// is equal. Among equal accounts the oldest get it.
    ///
    /// - Parameter accounts: the accounts to consider; nil for all.
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
        // `rest` is the usage that still counts. Each account gets an equal part of it, rounded up, but no more than
        // its usage. An account with less usage leaves more of the rest to the larger accounts behind it.
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

    /// The usage of a resource that counts against its limit: the total without the excess.
    func used(_ resource: Resource) -> Int { totals[resource] - excess[resource] }

    /// The excess after a limit was lowered: the usage of accounts beyond their maximum share. If the total is over its
    /// limit, the excess is at least so large that some capacity is free.
    private func newExcess(of resource: Resource) -> Int {
        meter.count(accountsByID.count)
        let share = maxShare(of: resource)
        let counted = accountsByID.values.reduce(0) { $0 + min($1.usage[resource], share.one) }
        return totals[resource] - (totals[resource] > share.all ? min(counted, share.whenOver) : counted)
    }

    /// The excess after a limit was raised or restored: the same amount, but at most the excess that would free some
    /// capacity.
    private func keptExcess(_ amount: Int, of resource: Resource) -> Int {
        min(amount, max(0, totals[resource] - maxShare(of: resource).whenOver))
    }

    /// The limit of a resource. That of answers may be lower than the configured one, when memory is short.
    private func limit(of resource: Resource) -> Int {
        resource == .answerBytes ? answerLimit : Int(limits[resource.limit])
    }

    /// The maximum of all accounts together (`all`), the maximum of one account (`one`), and the usage that counts when
    /// the total is over its limit (`whenOver`). Small totals have no shares, so `one` is all of it.
    ///
    /// An account may use at most as many in-flight bytes and answers as remain free, which is half of the limit. Its
    /// share of other resources is 7/8.
    private func maxShare(of resource: Resource) -> (all: Int, one: Int, whenOver: Int) {
        let limit = limit(of: resource)
        switch resource {
        case .inFlightBytes, .answerBytes: return (limit, limit / 2, limit / 2)
        default:
            let most = limit < Self.smallestShared ? max(0, limit - max(1, limit / 8)) : limit / 8 * 7
            return (limit, limit < Self.smallestShared ? limit : most, most)
        }
    }

    /// Reduces the excess of an account by an amount that the account has just given back.
    func noteCredit(_ amount: Int, of account: Account, _ resource: Resource) {
        let less = min(amount, account.excess[resource])
        account.excess[resource] -= less
        excess[resource] -= less
        dropExcess(of: resource)
        if Self.withLastingExcess.contains(resource) { isExcessToRemember = true }
    }

    /// Reduces the excess when the total is within its limit, with all usage counted. Each account then keeps only the
    /// excess beyond its maximum share.
    private func dropExcess(of resource: Resource) {
        let share = maxShare(of: resource)
        guard let accounts = lowered[resource]?.accounts, totals[resource] <= share.all else { return }
        meter.count(accounts.count)
        // Few accounts remain, as few can be beyond the maximum share. The next call is therefore cheap.
        lowered[resource]?.accounts = accounts.filter { _, account in
            let rest = min(account.excess[resource], max(0, account.usage[resource] - share.one))
            excess[resource] -= account.excess[resource] - rest
            account.excess[resource] = rest
            return rest > 0
        }
    }

    /// Moves a connection's part of the excess from its old account to its new one, in proportion to its usage. Call it
    /// after its usage has moved.
    func moveExcess(of peer: Peer, from before: Account, to after: Account, effects: inout [Effect]) {
        for resource in Self.withExcess where peer.usage[resource] > 0 {
            if excess[resource] > 0 {
                let (usage, all) = (peer.usage[resource], before.excess[resource])
                let part = all.multipliedFullWidth(by: usage)
                // At least so much that the old account's excess is not greater than its remaining usage.
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

    /// Adds the usage of an account beyond the maximum share to the excess, after a restart. When
    /// ``restoreExcess(effects:)`` ran, each connection had an account of its own, and only together do they exceed the
    /// share.
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
