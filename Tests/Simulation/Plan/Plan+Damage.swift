// SPDX-License-Identifier: Apache-2.0
import CarillonCore

/// Single bits of the log that change, in some of the runs (docs/recovery.md), just before the service dies.
extension Plan {
    /// Has numbers of its own, so that the rest of what a seed means is the same with and without.
    mutating func addDamage() {
        var random = Random(seed: seed, stream: 15)
        // In a flood who calls rarely is owed an answer in time where nothing else goes wrong.
        guard dials.faults > 0, servingTime == 0, random.happens(0.4 * dials.damage) else { return }
        hasFlips = true
        let others = roles.indices.filter { !roles[$0].callsRarely && !roles[$0].isLiar }
        roles.append(Role())
        let poster = roles.count - 1
        add(.join, of: poster, at: 0)
        for _ in 0..<random.number(1...4) {
            let start = 200_000 + Int64(random.next() % UInt64(Int64(dials.seconds) * 1_000_000))
            addFlips(poster, others, at: start, &random)
        }
    }

    private mutating func add(_ action: Action, of actor: Int? = nil, at time: Int64) {
        steps.append(Step(time: time, actor: actor, action: action))
    }

    /// Something waits for clients that are suspended, and a part of it is damaged.
    private mutating func addFlips(_ poster: Int, _ others: [Int], at start: Int64, _ random: inout Random) {
        let victims = (0..<random.number(1...4)).map { _ in random.pick(others) }
        for victim in victims {
            add(
                .observe(
                    slot: 29, name: random.happens(0.5) ? nil : random.number(0...Names.nameCount - 1), object: nil,
                    random.happens(0.7) ? .hold : .coalesce, roles[victim].mode ?? .default), of: victim, at: start)
            add(.suspend(true), of: victim, at: start + 1000)
        }
        for number in 0..<random.number(1...4) {
            var post = PostPlan(
                name: random.number(0...Names.nameCount - 1),
                object: random.happens(0.5) ? nil : random.number(0...Names.objectCount - 1))
            post.byteCount = random.pick([0, 0, 30, 500])
            if random.happens(0.2) { post.options.retention = Retention() }
            add(.burst(post, count: random.number(1...20)), of: poster, at: start + 10_000 + Int64(number) * 5000)
        }
        let death = start + Int64(random.number(100...400)) * 1000
        add(.flipBits(random.happens(0.7) ? 1 : random.number(2...6)), at: death)
        add(.kill(afterOperations: 0), at: death)
        add(.list, of: poster, at: death + 1000)
        let end = death + Int64(random.number(500...4000)) * 1000
        for victim in victims { add(.suspend(false), of: victim, at: end) }
    }
}
