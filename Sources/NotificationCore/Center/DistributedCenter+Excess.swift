// SPDX-License-Identifier: Apache-2.0

/// Limits that were lowered below the total in use (E1, E4).
///
/// Nothing is taken away for that. But all that the largest accounts hold beyond the new limit would leave no room for anybody
/// else, for as long as they hold it. This part, their **excess**, does not count in the total until they have given it back.
///
/// Excess is found when the limits change, and only where the total is beyond the new one: a process that restarts begins
/// without.
extension DistributedCenter {
    /// The resources that have one: of what waits for clients the largest gives up some, values that were left behind give way,
    /// and calls that wait are soon served.
    static let withExcess: [Resource] = [
        .clients, .observers, .observerBytes, .queuedPostBytes, .answerBytes, .inFlightBytes,
    ]

    /// The limits are others than before. Has those that wait for room look again.
    public func limitsChanged(effects: inout [Effect]) {
        defer { eventEnded() }
        for resource in Self.withExcess { findExcess(of: resource) }
        lookForRoom(effects: &effects)
        letGo(effects: &effects)
    }

    /// The part of a total that counts against its limit.
    func used(_ resource: Resource) -> Int { totals[resource] - excess[resource] }

    /// Of those that have most everything above one level is excess, so that all together use what one account may.
    private func findExcess(of resource: Resource) {
        excess[resource] = 0
        meter.count(accountsByID.count)
        for account in accountsByID.values { account.excess[resource] = 0 }
        let limit = resource == .answerBytes ? answerLimit : Int(limits[resource.limit])
        guard totals[resource] > limit else { return }
        // As much as one account may have of it where the limit is no other.
        let share = resource == .inFlightBytes || resource == .answerBytes ? limit / 2 : limit / 8 * 7
        var rest = totals[resource] - share
        let sorted = accountsByID.values.sorted {
            ($0.usage[resource], $1.id) > ($1.usage[resource], $0.id)
        }
        meter.countSort(of: sorted.count)
        // The level is that of the first so many, which is at least what the next one has.
        var (sum, count) = (0, 0)
        for account in sorted {
            guard sum - count * account.usage[resource] < rest else { break }
            sum += account.usage[resource]
            count += 1
        }
        let level = max(0, (sum - rest) / max(1, count))
        for account in sorted.prefix(count) {
            let beyond = min(rest, account.usage[resource] - level)
            account.excess[resource] = beyond
            excess[resource] += beyond
            rest -= beyond
        }
    }

    /// An account gave something back, or has lost a connection to another one.
    func noteGivenBack(_ amount: Int, of account: Account, _ resource: Resource) {
        let less = min(amount, account.excess[resource])
        guard less > 0 else { return }
        account.excess[resource] -= less
        excess[resource] -= less
    }
}
