// SPDX-License-Identifier: Apache-2.0
import CarillonCore

/// Posts that wait for the exit of who posts them, in some of the runs (R4): some take the place of others, some are
/// taken back, and some posters leave.
extension Plan {
    /// Has numbers of its own, so that the rest of what a seed means is the same with and without.
    mutating func addExits() {
        var random = Random(seed: seed, stream: 8)
        guard random.happens(0.4 * dials.exits) else { return }
        for _ in 0..<random.number(2...16) {
            let actor = random.pick(roles.indices.filter { !roles[$0].callsRarely })
            let start = Int64(random.next() % UInt64(Int64(dials.seconds) * 1_000_000))
            func add(_ action: Action, after milliseconds: Int) {
                steps.append(Step(time: start + Int64(milliseconds) * 1000, actor: actor, action: action))
            }
            let post = postAtExit(&random)
            add(.post(post), after: 0)
            if random.happens(0.2) {
                var other = post
                if random.happens(0.5) { other.options.postingStyle = random.pick([.now, .asap, .whenIdle]) }
                other.options.coalescing = random.happens(0.5) ? [.name] : [.name, .object]
                add(.post(other), after: random.number(0...3000))
            }
            if random.happens(0.2) {
                add(.withdraw(name: random.happens(0.3) ? nil : post.name), after: random.number(0...3000))
            }
            if random.happens(0.5) { add(.leave(abruptly: random.happens(0.5)), after: random.number(0...6000)) }
        }
    }

    private func postAtExit(_ random: inout Random) -> PostPlan {
        var post = PostPlan(
            name: random.number(0...Names.nameCount - 1),
            object: random.happens(0.5) ? nil : random.number(0...Names.objectCount - 1))
        post.options.postingStyle = .atExit
        post.wantsAnswer = random.happens(0.8)
        if random.happens(0.2) { post.options.retention = Retention() }
        if random.happens(0.1) { post.options.expiresAfter = UInt32(random.number(1...30)) }
        if random.happens(0.1) { post.options.deliverImmediately = true }
        if random.happens(0.3) { post.byteCount = random.number(1...20_000) }
        return post
    }
}
