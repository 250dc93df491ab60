// SPDX-License-Identifier: Apache-2.0
import CarillonCore

/// Values whose time is over, in some of the runs (R1, R2, R6): who comes late gets none of them, and they take no room.
/// Little else is kept in these runs, as each look at values removes those whose time is over.
extension Plan {
    /// Has numbers of its own, so that the rest of what a seed means is the same with and without.
    mutating func addExpiry() {
        var random = Random(seed: seed, stream: 14)
        guard dials.values > 0, random.happens(0.4 * dials.expiry) else { return }
        let most = random.number(Names.nameCount...Names.nameCount + 2)
        limits[.retainedPerClient] = UInt64(most)
        for _ in 0..<random.number(2...6) {
            roles.append(Role(kind: random.happens(0.3) ? .library : .plain))
            let poster = roles.count - 1
            var time = Int64(random.next() % UInt64(Int64(dials.seconds) * 700_000))
            add(.join, of: poster, at: time)
            // As many as there is room for; then others, when the time of these is over.
            for _ in 0..<2 {
                let seconds = UInt32(random.number(1...3))
                let kinds = (0..<most).map { _ in kind(&random) }
                for kind in kinds { add(.post(value(kind, for: seconds, &random)), of: poster, at: time + 100_000) }
                addLateObserver(after: time + 100_000, seconds, of: kinds, &random)
                time += Int64(seconds) * 1_000_000 + Int64(random.number(1100...3000)) * 1000
            }
        }
    }

    private mutating func add(_ action: Action, of actor: Int, at time: Int64) {
        steps.append(Step(time: time, actor: actor, action: action))
    }

    private func kind(_ random: inout Random) -> ValueKind {
        ValueKind(
            name: random.number(0...Names.nameCount - 1),
            object: random.happens(0.2) ? nil : random.number(0...Names.objectCount - 1))
    }

    private func value(_ kind: ValueKind, for seconds: UInt32, _ random: inout Random) -> PostPlan {
        var post = PostPlan(name: kind.name, object: kind.object)
        post.options.retention = Retention()
        post.options.expiresAfter = seconds
        if random.happens(0.2) { post.byteCount = random.number(1...2000) }
        return post
    }

    /// It comes before the time is over, or after that; it may be suspended, or not read, until then.
    private mutating func addLateObserver(
        after start: Int64, _ seconds: UInt32, of kinds: [ValueKind], _ random: inout Random
    ) {
        roles.append(Role(kind: random.happens(0.3) ? .library : .plain))
        let actor = roles.count - 1
        let over = start + Int64(seconds) * 1_000_000
        let isLate = random.happens(0.6)
        let time =
            isLate ? over + Int64(random.number(1050...2500)) * 1000 : over - Int64(random.number(50...900)) * 1000
        add(.join, of: actor, at: time)
        if random.happens(0.3) { add(.suspend(true), of: actor, at: time + 500) }
        let kind = random.pick(kinds)
        add(
            .observe(
                slot: 0, name: random.happens(0.5) ? nil : kind.name, object: nil,
                random.pick([.hold, .coalesce, .deliverImmediately]), .default, values: true),
            of: actor, at: time + 1000)
        add(.suspend(false), of: actor, at: over + Int64(random.number(1200...3000)) * 1000)
    }
}
