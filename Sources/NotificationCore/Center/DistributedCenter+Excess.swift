// SPDX-License-Identifier: Apache-2.0

/// Limits that were lowered below what is in use (E1, E4).
///
/// Nothing is taken away for that. But what those who have most hold beyond the new limit would leave no room for anybody
/// else, for as long as they hold it. So that part, their **excess**, does not count in the total, until they have given it
/// back, or others so much that all together have no more than they may. They themselves get nothing more meanwhile.
extension DistributedCenter {
    /// The resources that have one. Queued notifications, and values whose posters have left, give way instead; values of
    /// those that are there, and calls that wait, leave others as much as they leave.
    static let withExcess: [Resource] = [
        .clients, .observers, .observerBytes, .queuedPostBytes, .answerBytes, .inFlightBytes,
    ]

    /// The limits are others than before. Has those that wait for room look again.
    public func limitsChanged(effects: inout [Effect]) {
        defer { eventEnded() }
        findExcess()
        lookForRoom(effects: &effects)
        letGo(effects: &effects)
    }

    /// Finds out what does not count. Call when limits are others than before.
    func findExcess() {
        moves = [:]
        for resource in Self.withExcess { findExcess(of: resource) }
    }

    /// Distributes anew what does not count where enough connections have turned out to be other accounts', as after a restart:
    /// the largest have it. It is as much as before. Call before something is refused for it.
    ///
    /// - Returns: whether an account may have less than before.
    func distributeExcess(of resource: Resource) -> Bool {
        guard excess[resource] > 0, let accounts = accountsWithExcess[resource],
            moves[resource, default: 0] > accounts.count / 4
        else { return false }
        moves[resource] = 0
        let smallestFirst = accounts.values.sorted { ($0.usage[resource], $0.id) < ($1.usage[resource], $1.id) }
        meter.count(3 * accounts.count)
        meter.countSort(of: accounts.count)
        var rest = accounts.values.reduce(-excess[resource]) { $0 + $1.usage[resource] }
        for (number, account) in smallestFirst.enumerated() {
            let part = min(account.usage[resource], rest / (smallestFirst.count - number))
            rest -= part
            account.excess[resource] = account.usage[resource] - part
        }
        return true
    }

    /// What all together use of a resource, as far as it counts against its limit.
    func used(_ resource: Resource) -> Int { totals[resource] - excess[resource] }

    /// The usage that an account could not have by the limit is excess. Where the rest of all is still more than that, so is
    /// as much of the largest besides that all together have what one account may.
    private func findExcess(of resource: Resource) {
        meter.count(2 * accountsByID.count)
        excess[resource] = 0
        accountsWithExcess[resource] = nil
        for account in accountsByID.values { account.excess[resource] = 0 }
        guard let share = maxShare(of: resource) else { return }
        let counted = accountsByID.values.reduce(0) { $0 + min($1.usage[resource], share.one) }
        guard counted < totals[resource] || counted > share.all else { return }
        let smallestFirst = accountsByID.values.sorted { ($0.usage[resource], $0.id) < ($1.usage[resource], $1.id) }
        meter.countSort(of: smallestFirst.count)
        var rest = counted > share.all ? share.one : counted
        for (number, account) in smallestFirst.enumerated() {
            let usage = account.usage[resource]
            let part = min(usage, share.one, rest / (smallestFirst.count - number))
            rest -= part
            guard usage > part else { continue }
            account.excess[resource] = usage - part
            excess[resource] += usage - part
            accountsWithExcess[resource, default: [:]][account.id] = account
        }
    }

    /// The share of all accounts together in a total, and that of one alone. Small totals have no shares.
    private func maxShare(of resource: Resource) -> (all: Int, one: Int)? {
        let limit = resource == .answerBytes ? answerLimit : Int(limits[resource.limit])
        switch resource {
        case .inFlightBytes, .answerBytes: return (limit, limit / 2)
        default: return UInt64(limit) < Self.smallestShared ? nil : (limit, limit / 8 * 7)
        }
    }

    /// An account gave something back.
    func noteGivenBack(_ amount: Int, of account: Account, _ resource: Resource) {
        let less = min(amount, account.excess[resource])
        account.excess[resource] -= less
        excess[resource] -= less
        dropExcess(of: resource)
    }

    /// Where all together have no more than they may, each has no more excess than it has beyond what one may: the others
    /// have given back enough.
    private func dropExcess(of resource: Resource) {
        guard let accounts = accountsWithExcess[resource], let share = maxShare(of: resource),
            totals[resource] <= share.all
        else { return }
        meter.count(accounts.count)
        // Few are left, as few can have more than one may: the next time costs little.
        accountsWithExcess[resource] = accounts.filter { _, account in
            let rest = min(account.excess[resource], max(0, account.usage[resource] - share.one))
            excess[resource] -= account.excess[resource] - rest
            account.excess[resource] = rest
            return rest > 0
        }
    }

    /// A connection has another account from now on, with its part of what does not count. Call when its usage has moved.
    func moveExcess(of peer: Peer, from before: Account, to after: Account) {
        for resource in Self.withExcess where peer.usage[resource] > 0 {
            if excess[resource] > 0 {
                let (usage, all) = (peer.usage[resource], before.excess[resource])
                let part = all.multipliedFullWidth(by: usage)
                let moved = max(
                    (before.usage[resource] + usage).dividingFullWidth(part).quotient, all - before.usage[resource])
                before.excess[resource] -= moved
                after.excess[resource] += moved
                accountsWithExcess[resource]?[after.id] = after
                moves[resource, default: 0] += 1
            }
            if peer.isRestored { addExcess(of: after, resource) }
            dropExcess(of: resource)
        }
        peer.isRestored = false
    }

    /// What an account has beyond what one may does not count, as it has come about by a restart: the connections of one
    /// process were those of many, when ``findExcess()`` looked.
    private func addExcess(of account: Account, _ resource: Resource) {
        guard let share = maxShare(of: resource) else { return }
        let more = account.usage[resource] - account.excess[resource] - share.one
        guard more > 0 else { return }
        account.excess[resource] += more
        excess[resource] += more
        accountsWithExcess[resource, default: [:]][account.id] = account
    }
}
