// SPDX-License-Identifier: Apache-2.0
import CarillonCore

/// Observers with minimum intervals, in some of the runs (R5), and bursts for them.
extension Plan {
    /// Has numbers of its own, so that the rest of what a seed means is the same with and without.
    mutating func addIntervals() {
        var random = Random(seed: seed, stream: 9)
        guard random.happens(0.4 * dials.intervals) else { return }
        let actors = roles.indices.filter { !roles[$0].callsRarely }
        for _ in 0..<random.number(2...10) {
            let actor = random.pick(actors)
            let start = Int64(random.next() % UInt64(Int64(dials.seconds) * 1_000_000))
            let (slot, name) = (random.number(12...15), random.number(0...Names.nameCount - 1))
            func add(_ action: Action, by actor: Int, after milliseconds: Int) {
                steps.append(Step(time: start + Int64(milliseconds) * 1000, actor: actor, action: action))
            }
            add(
                .observe(
                    slot: slot, name: random.happens(0.3) ? nil : name,
                    object: random.happens(0.7) ? nil : random.number(0...Names.objectCount - 1),
                    random.happens(0.5) ? .hold : random.pick(SuspensionBehavior.allCases),
                    roles[actor].mode ?? random.pick(RunLoopMode.allCases), values: random.happens(0.2),
                    interval: UInt32(random.pick([20, 200, 1000, 5000]))), by: actor, after: 0)
            for _ in 0..<random.number(0...2) {
                var post = PostPlan(
                    name: name, object: random.happens(0.5) ? nil : random.number(0...Names.objectCount - 1))
                if random.happens(0.2) { post.byteCount = random.number(1...20_000) }
                if random.happens(0.1) { post.options.deliverImmediately = true }
                add(
                    .burst(post, count: random.number(2...60)), by: random.pick(actors), after: random.number(10...3000)
                )
            }
            if random.happens(0.3) { add(.suspend(true), by: actor, after: random.number(10...3000)) }
            if random.happens(0.3) { add(.suspend(false), by: actor, after: random.number(10...5000)) }
            if random.happens(0.2) { add(.unobserve(slot: slot), by: actor, after: random.number(1000...6000)) }
        }
    }
}
