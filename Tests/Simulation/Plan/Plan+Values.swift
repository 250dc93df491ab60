// SPDX-License-Identifier: Apache-2.0
import CarillonCore

/// Values that stay, in some of the runs (R1 to R3, R6): who posts them, who comes late and wants them, who removes them.
extension Plan {
    /// Has numbers of its own, so that the rest of what a seed means is the same with and without.
    mutating func addValues() {
        var random = Random(seed: seed, stream: 7)
        guard random.happens(0.4 * dials.values) else { return }
        for _ in 0..<random.number(3...24) { add(.post(value(&random)), &random) }
        for _ in 0..<random.number(2...10) { addObserver(&random) }
        for _ in 0..<random.number(0...4) { add(.read(name: name(&random)), &random) }
        for _ in 0..<random.number(0...3) { add(.forget(name: name(&random)), &random) }
    }

    private func name(_ random: inout Random) -> Int? {
        random.happens(0.2) ? nil : random.number(0...Names.nameCount - 1)
    }

    private func value(_ random: inout Random) -> PostPlan {
        var post = PostPlan(
            name: random.number(0...Names.nameCount - 1),
            object: random.happens(0.5) ? nil : random.number(0...Names.objectCount - 1))
        post.wantsAnswer = random.happens(0.8)
        post.options.retention = Retention(whileConnected: random.happens(0.3))
        if random.happens(0.1) { post.options.retention = nil }
        if random.happens(0.2) { post.options.expiresAfter = UInt32(random.number(1...30)) }
        if random.happens(0.1) { post.options.postingStyle = random.pick([.asap, .whenIdle]) }
        if random.happens(0.1) { post.options.deliverImmediately = true }
        if random.happens(0.3) { post.byteCount = random.number(1...20_000) }
        return post
    }

    /// One that may come late, and whose client may be suspended, or not read, when it does.
    private mutating func addObserver(_ random: inout Random) {
        let actor = anyone(&random)
        let start = Int64(random.next() % UInt64(dials.seconds)) * 1_000_000
        func step(_ action: Action, after delay: Int64) -> Step {
            Step(time: start + delay, actor: actor, action: action)
        }
        if random.happens(0.5) { steps.append(step(.join, after: 0)) }
        if random.happens(0.3) { steps.append(step(.suspend(true), after: 1000)) }
        if random.happens(0.2) { steps.append(step(.stopReading, after: 2000)) }
        let mode = roles[actor].mode ?? random.pick(RunLoopMode.allCases)
        steps.append(
            step(
                .observe(
                    slot: random.number(8...11), name: name(&random),
                    object: random.happens(0.7) ? nil : random.number(0...Names.objectCount - 1),
                    random.happens(0.5) ? .hold : random.pick(SuspensionBehavior.allCases), mode, values: true),
                after: 3000))
        steps.append(step(.readAgain, after: Int64(random.number(10...3000)) * 1000))
        if random.happens(0.3) { steps.append(step(.suspend(false), after: Int64(random.number(10...5000)) * 1000)) }
    }

    private mutating func add(_ action: Action, _ random: inout Random) {
        let time = Int64(random.next() % UInt64(Int64(dials.seconds) * 1_000_000))
        steps.append(Step(time: time, actor: anyone(&random), action: action))
    }

    /// Who calls rarely is owed its answers soon because of that.
    private func anyone(_ random: inout Random) -> Int {
        random.pick(roles.indices.filter { !roles[$0].callsRarely })
    }
}
