// SPDX-License-Identifier: Apache-2.0
import CarillonCore

/// Applications that become active and inactive, and others' words about suspension, in some of the runs (A1, A2, B3).
extension Plan {
    /// Has numbers of its own, so that the rest of what a seed means is the same with and without.
    mutating func addActivity() {
        var random = Random(seed: seed, stream: 16)
        guard random.happens(0.4 * dials.activity) else { return }
        suspendsAutomatically = true
        let actors = roles.indices.filter { !roles[$0].callsRarely && !roles[$0].isLiar && roles[$0].followsBy == nil }
        for _ in 0..<random.number(4...20) {
            let actor = random.pick(actors)
            let start = Int64(random.next() % UInt64(Int64(dials.seconds) * 1_000_000))
            switch random.number(0...9) {
            case 0..<5: addChange(of: actor, at: start, &random)
            case 5..<9:
                let word = random.happens(0.3) ? nil : random.happens(0.7)
                add(.override(of: actor, word), of: random.pick(actors), at: start)
            default: add(random.happens(0.5) ? .follow : .suspend(random.happens(0.5)), of: actor, at: start)
            }
            guard dials.faults > 0, servingTime == 0, random.happens(0.1) else { continue }
            add(.kill(afterOperations: random.number(0...20)), at: start + Int64(random.number(0...2000)) * 1000)
        }
        // So that something of it is left in the calm.
        for _ in 0..<random.number(2...6) {
            let start = Int64(dials.seconds) * 1_000_000 - Int64(random.number(400...3000)) * 1000
            let actor = random.pick(actors)
            if random.happens(0.5) {
                addChange(of: actor, at: start, &random)
            } else {
                add(.override(of: actor, random.happens(0.7)), of: random.pick(actors), at: start)
            }
        }
        guard dials.faults > 0, servingTime == 0, random.happens(0.5) else { return }
        let end = Int64(dials.seconds) * 1_000_000 - Int64(random.number(10...2000)) * 1000
        add(.kill(afterOperations: random.number(0...5)), at: end)
        add(.list, of: random.pick(actors), at: end + 1000)
    }

    private mutating func add(_ action: Action, of actor: Int? = nil, at time: Int64) {
        steps.append(Step(time: time, actor: actor, action: action))
    }

    /// An application becomes inactive, for a moment or for longer.
    private mutating func addChange(of actor: Int, at start: Int64, _ random: inout Random) {
        // Otherwise its own word decides.
        if random.happens(0.6) { add(.follow, of: actor, at: start - 20_000) }
        add(.activity(.inactive), of: actor, at: start)
        guard random.happens(0.7) else { return }
        let milliseconds = random.happens(0.5) ? random.number(1...249) : random.number(250...4000)
        add(
            .activity(random.happens(0.8) ? .active : .unknown), of: actor, at: start + Int64(milliseconds) * 1000)
    }
}
