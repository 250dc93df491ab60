// SPDX-License-Identifier: Apache-2.0
import CarillonCore

/// E1, E4: what does not count of what there is of something, as its limit was lowered, for each who has some.
struct ModelExcess {
    let key: Limits.Key
    private var excess: [Int: Int] = [:]
    /// The amount of each when that was last looked at, and the limit then.
    private var last: [Int: Int] = [:]
    private var limit: Int?

    init(_ key: Limits.Key) {
        self.key = key
    }

    /// How much one may have, and how much counts where there is too much. Small totals have no shares.
    private func parts(of limit: Int) -> (one: Int, crowded: Int) {
        if limit < 64 { return (limit, max(0, limit - max(1, limit / 8))) }
        return (limit / 8 * 7, limit / 8 * 7)
    }

    /// Where the limit is lower, nobody counts with more than one may have; and where there is too much together, so little
    /// counts that there is room. Where it is not, no more counts than before, but where that would leave more room.
    mutating func find(_ now: [Int: Int], _ limits: Limits, restarted: Bool = false) {
        let limit = Int(limits[key])
        let (one, crowded) = parts(of: limit)
        let had = sum(excess)
        let counted = sum(now.mapValues { min($0, one) })
        // E3: nothing is known of a time when everything counted.
        let isLowered = self.limit.map { limit < $0 } ?? true || restarted && had == 0
        self.limit = limit
        let all = sum(now)
        let new = isLowered ? all - (all > limit ? min(counted, crowded) : counted) : min(had, max(0, all - crowded))
        var left = now
        for _ in 0..<new {
            // The largest gives one; of some alike the one that had more, or the first.
            left[left.max { ($0.value, now[$0.key]!, $1.key) < ($1.value, now[$1.key]!, $0.key) }!.key]! -= 1
        }
        excess = now.merging(left) { $0 - $1 }
        last = now
        drop(now)
    }

    /// Bytes that are given back were excess first. Call behind each step.
    mutating func settle(_ now: [Int: Int]) {
        for (one, had) in excess {
            excess[one] = max(0, had - max(0, last[one, default: 0] - now[one, default: 0]))
        }
        last = now
        drop(now)
    }

    /// Where all together have no more than they may, all counts but what one has beyond its part.
    private mutating func drop(_ now: [Int: Int]) {
        guard let limit, sum(now) <= limit else { return }
        for (one, had) in excess { excess[one] = min(had, max(0, now[one, default: 0] - parts(of: limit).one)) }
    }

    /// - Parameter amount: what `one` is to have more.
    func check(_ amount: Int, of one: Int, _ now: [Int: Int], _ limits: Limits) throws(CenterError) {
        let counted = sum(now) + amount - sum(excess)
        try limits.check(key, max(0, counted))
        guard amount > 0 else { return }
        // Of what is added, nobody gets more than seven times what is left to others.
        let limit = Int(limits[key])
        let isGreedy = limit >= 64 && now[one, default: 0] + amount > 7 * (limit - counted)
        if excess[one, default: 0] > 0 || isGreedy { throw .shareExceeded(key, value: UInt64(limit)) }
    }

    private func sum(_ parts: [Int: Int]) -> Int { parts.values.reduce(0, +) }
}

/// The same of clients and observers.
struct ModelUsage {
    private var clients = ModelExcess(.clients)
    private var observers = ModelExcess(.observers)

    private static func each(_ clients: [ModelClient], _ amount: (ModelClient) -> Int) -> [Int: Int] {
        Dictionary(uniqueKeysWithValues: clients.map { ($0.number, amount($0)) })
    }

    mutating func findExcess(_ all: [ModelClient], _ limits: Limits, restarted: Bool) {
        clients.find(Self.each(all) { _ in 1 }, limits, restarted: restarted)
        observers.find(Self.each(all, \.observers.count), limits, restarted: restarted)
    }

    /// Call behind each step.
    mutating func settle(_ all: [ModelClient]) {
        clients.settle(Self.each(all) { _ in 1 })
        observers.settle(Self.each(all, \.observers.count))
    }

    func checkClient(_ number: Int, _ all: [ModelClient], _ limits: Limits) throws(CenterError) {
        try clients.check(1, of: number, Self.each(all) { _ in 1 }, limits)
    }

    func checkObserver(of number: Int, _ all: [ModelClient], _ limits: Limits) throws(CenterError) {
        try observers.check(1, of: number, Self.each(all, \.observers.count), limits)
    }
}
