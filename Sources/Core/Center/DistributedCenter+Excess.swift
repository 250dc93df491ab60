// SPDX-License-Identifier: Apache-2.0

/// How much of a resource does not count in its total, and the limit that was lowered for it.
public struct Excess: Equatable, Sendable {
    public var amount: Int
    public var limit: Int

    public init(amount: Int, limit: Int) {
        self.amount = amount
        self.limit = limit
    }
}

/// The state of a limit that may be lowered below what is in use.
struct Lowered {
    /// As it was last looked at.
    var limit: Int?
    /// The accounts that have a part of the excess, and those that connections of them turned out to belong to.
    var accounts: [AccountID: Account] = [:]
    /// Connections that turned out to be other accounts' since it was distributed.
    var moves = 0
    /// The last excess that was written for a later process.
    var remembered: Excess?
    /// The excess of an earlier process, until ``DistributedCenter/restoreExcess(effects:)`` has looked at it.
    var restored: Excess?
    /// The maximum that may come about when connections that came back turn out to be one process's: what an earlier service
    /// had. Until the limit is lowered again.
    var maxExcess = Int.max
}

/// Limits that were lowered below what is in use (E1, E4).
///
/// Nothing is taken away for that. But what those who have most hold beyond the new limit would leave no room for anybody
/// else, for as long as they hold it. So that part, their **excess**, does not count in the total, until they have given it
/// back, or others so much that all together have no more than they may. They themselves get nothing more meanwhile.
///
/// It grows by a lowered limit only: another end and start of the service leaves no more room (E3).
extension DistributedCenter {
    /// The resources that have one. Queued notifications, and values whose posters have left, give way instead; values of
    /// those that are there, and calls that wait, leave others as much as they leave.
    static let withExcess: [Resource] = [
        .clients, .observers, .observerBytes, .queuedPostBytes, .answerBytes, .inFlightBytes,
    ]

    /// Those of them of which a later process has what this one had.
    private static let withLastingExcess: [Resource] = [.clients, .observers, .observerBytes, .queuedPostBytes]

    /// The limits are others than before. Has those that wait for room look again.
    public func limitsChanged(effects: inout [Effect]) {
        defer { eventEnded() }
        findExcess()
        rememberExcess(effects: &effects)
        lookForRoom(effects: &effects)
        unblock(effects: &effects)
    }

    /// Finds out what does not count. Call when limits are others than before.
    private func findExcess() {
        for resource in Self.withExcess {
            let limit = limit(of: resource)
            // Excess of the other resources comes down by itself; and the limit of answers follows the memory that is left.
            let isLasting = Self.withLastingExcess.contains(resource)
            let isLowered = lowered[resource]?.limit.map { limit < $0 || !isLasting } ?? true
            lowered[resource, default: Lowered()].limit = limit
            if isLowered { lowered[resource]?.maxExcess = .max }
            distribute(isLowered ? newExcess(of: resource) : keptExcess(excess[resource], of: resource), of: resource)
            dropExcess(of: resource)
        }
    }

    /// Finds out what does not count of what came back. Call when all that an earlier process remembered was taken over.
    func restoreExcess(effects: inout [Effect]) {
        for resource in Self.withExcess {
            let limit = limit(of: resource)
            lowered[resource, default: Lowered()].limit = limit
            if let before = lowered[resource]?.restored.take(), before.amount > 0, limit >= before.limit {
                lowered[resource]?.maxExcess = before.amount
                distribute(keptExcess(before.amount, of: resource), of: resource)
            } else {
                // The limit may be lower than an earlier process had it.
                distribute(newExcess(of: resource), of: resource)
            }
            dropExcess(of: resource)
        }
        rememberExcess(effects: &effects)
    }

    /// Remembers what does not count any more, or does not count from now on.
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

    /// The excess for a later process: until ``restoreExcess(effects:)`` has looked, that of an earlier one.
    var rememberedExcess: [Change] {
        Self.withLastingExcess.compactMap { resource in
            guard let known = lowered[resource] else { return nil }
            let now = known.restored ?? known.limit.map { Excess(amount: excess[resource], limit: $0) }
            return now.flatMap { $0.amount > 0 ? .excess(resource.limit, $0) : nil }
        }
    }

    /// Takes over what did not count for an earlier process.
    func takeOver(_ before: Excess, _ key: Limits.Key) -> Bool {
        guard before.amount >= 0 else { return false }
        // Another version may remember it of other resources.
        if let resource = Self.withLastingExcess.first(where: { $0.limit == key }) {
            lowered[resource, default: Lowered()].remembered = before
            lowered[resource]?.restored = before
        }
        return true
    }

    /// Distributes anew what does not count where enough connections have turned out to be other accounts', as after a restart:
    /// the largest have it. It is as much as before. Call before something is refused for it.
    ///
    /// - Returns: whether an account may have less than before.
    func distributeExcess(of resource: Resource) -> Bool {
        guard excess[resource] > 0, let known = lowered[resource], known.moves > known.accounts.count / 4 else {
            return false
        }
        distribute(excess[resource], of: resource, among: Array(known.accounts.values))
        return true
    }

    /// Distributes an amount that does not count from now on: those of `accounts` that use most have it, as many as it takes to
    /// make them alike; of those that use the same the oldest.
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

    /// What all together use of a resource, as far as it counts against its limit.
    func used(_ resource: Resource) -> Int { totals[resource] - excess[resource] }

    /// The usage that an account could not have by the limit. Where all together have more than they may, so much that some
    /// room is left.
    private func newExcess(of resource: Resource) -> Int {
        meter.count(accountsByID.count)
        let share = maxShare(of: resource)
        let counted = accountsByID.values.reduce(0) { $0 + min($1.usage[resource], share.one) }
        return totals[resource] - (totals[resource] > share.all ? min(counted, share.underBackpressure) : counted)
    }

    /// As much as before, as far as it leaves no more room than a new one would.
    private func keptExcess(_ amount: Int, of resource: Resource) -> Int {
        min(amount, max(0, totals[resource] - maxShare(of: resource).underBackpressure))
    }

    private func limit(of resource: Resource) -> Int {
        resource == .answerBytes ? answerLimit : Int(limits[resource.limit])
    }

    /// The share of all accounts together in a total, that of one alone, and how much counts where there is too much. Small
    /// totals have no shares.
    private func maxShare(of resource: Resource) -> (all: Int, one: Int, underBackpressure: Int) {
        let limit = limit(of: resource)
        switch resource {
        case .inFlightBytes, .answerBytes: return (limit, limit / 2, limit / 2)
        default:
            let most = limit < Self.smallestShared ? max(0, limit - max(1, limit / 8)) : limit / 8 * 7
            return (limit, limit < Self.smallestShared ? limit : most, most)
        }
    }

    /// An account gave something back.
    func noteGivenBack(_ amount: Int, of account: Account, _ resource: Resource) {
        let less = min(amount, account.excess[resource])
        account.excess[resource] -= less
        excess[resource] -= less
        dropExcess(of: resource)
        if Self.withLastingExcess.contains(resource) { isExcessToRemember = true }
    }

    /// Where all together have no more than they may, each has no more excess than it has beyond what one may: the others
    /// have given back enough.
    private func dropExcess(of resource: Resource) {
        let share = maxShare(of: resource)
        guard let accounts = lowered[resource]?.accounts, totals[resource] <= share.all else { return }
        meter.count(accounts.count)
        // Few are left, as few can have more than one may: the next time costs little.
        lowered[resource]?.accounts = accounts.filter { _, account in
            let rest = min(account.excess[resource], max(0, account.usage[resource] - share.one))
            excess[resource] -= account.excess[resource] - rest
            account.excess[resource] = rest
            return rest > 0
        }
    }

    /// A connection has another account from now on, with its part of what does not count. Call when its usage has moved.
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

    /// What an account has beyond what one may does not count, as it has come about by a restart: the connections of one
    /// process were those of many, when ``restoreExcess(effects:)`` looked.
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
