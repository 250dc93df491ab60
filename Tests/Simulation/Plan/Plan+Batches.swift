// SPDX-License-Identifier: Apache-2.0
import CarillonCore

/// Calls of `PostMany` whose posts differ, in some of the runs (F1): some posts of a call are refused, and some calls are
/// too long.
extension Plan {
    /// Has numbers of its own, so that the rest of what a seed means is the same with and without.
    mutating func addBatches() {
        var random = Random(seed: seed, stream: 11)
        guard random.happens(0.4 * dials.batches) else { return }
        if random.happens(0.2) { limits[.postsPerCall] = UInt64(random.number(100...120)) }
        let actors = roles.indices.filter { !roles[$0].callsRarely && !roles[$0].isLiar }
        for _ in 0..<random.number(4...24) {
            let time = Int64(random.next() % UInt64(Int64(dials.seconds) * 1_000_000))
            let wantsAnswer = random.happens(0.8)
            let count = random.happens(0.1) ? random.number(80...200) : random.number(2...40)
            let flawed = random.pick([0, 0.05, 0.3])
            let posts = (0..<count).map { _ in
                var post = member(flawed: flawed, &random)
                post.wantsAnswer = wantsAnswer
                return post
            }
            steps.append(Step(time: time, actor: random.pick(actors), action: .postMany(posts)))
        }
    }

    private func member(flawed: Double, _ random: inout Random) -> PostPlan {
        var post = PostPlan(
            name: random.number(0...Names.nameCount - 1),
            object: random.happens(0.5) ? nil : random.number(0...Names.objectCount - 1))
        if random.happens(flawed) { post.flaw = random.pick(PostPlan.Flaw.allCases) }
        post.options.deliverImmediately = random.happens(0.05)
        if random.happens(0.1) { post.options.postingStyle = random.pick([.asap, .whenIdle]) }
        if random.happens(0.05) { post.options.coalescing = random.happens(0.5) ? [.name] : [.name, .object] }
        if dials.exits > 0, random.happens(0.03) { post.options.postingStyle = .atExit }
        if dials.values > 0, post.options.postingStyle != .atExit, random.happens(0.1) {
            post.options.retention = Retention(whileConnected: random.happens(0.3))
        }
        if dials.outside > 0, random.happens(0.05) { post.options.origin = random.pick(Names.origins) }
        if random.happens(0.1) { post.byteCount = random.number(1...4000) }
        if post.flaw == .contradiction {
            post.options.postingStyle = .atExit
            post.options.retention = Retention(whileConnected: true)
        }
        return post
    }
}
