// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonWire

/// What comes from outside of the session, in some of the runs (G3 to G5): who brings it and follows what is wanted and what
/// is kept here, who posts the same here, who removes the one or the other, and who wants something for a while.
extension Plan {
    /// Has numbers of its own, so that the rest of what a seed means is the same with and without.
    mutating func addOutside() {
        var random = Random(seed: seed, stream: 10)
        guard random.happens(0.4 * dials.outside) else { return }
        for actor in anyone { roles[actor].wantsDetails = random.happens(0.5) }
        let others = anyone
        let bridges = (0..<random.number(1...2)).map { _ in addBridge(&random) }
        for _ in 0..<random.number(6...40) { addPost(by: bridges, beside: others, &random) }
        for _ in 0..<random.number(1...4) { addSuspension(of: random.pick(others), by: bridges, &random) }
        for _ in 0..<random.number(2...12) {
            addWish(of: random.happens(0.6) ? random.pick(others) : random.pick(bridges), &random)
        }
        if dials.faults > 0, random.happens(0.5) { addFaults(to: bridges, &random) }
    }

    /// But who calls rarely, and is owed its answers soon because of that.
    private var anyone: [Int] { roles.indices.filter { !roles[$0].callsRarely && !roles[$0].isLiar } }

    private func time(_ random: inout Random) -> Int64 {
        Int64(random.next() % UInt64(Int64(dials.seconds) * 1_000_000))
    }

    private mutating func add(_ action: Action, of actor: Int, at time: Int64, after milliseconds: Int = 0) {
        steps.append(Step(time: time + Int64(milliseconds) * 1000, actor: actor, action: action))
    }

    /// - Returns: the new actor, who joins.
    private mutating func addBridge(_ random: inout Random) -> Int {
        var role = Role(kind: random.happens(0.6) ? .library : .plain)
        role.hasBatches = role.kind == .plain && random.happens(0.5)
        role.wantsDetails = true
        role.followsBy = UInt32(random.pick([1, 2, 3, 1024]))
        roles.append(role)
        let actor = roles.count - 1
        add(.join, of: actor, at: Int64(random.number(0...500_000)))
        if random.happens(0.3) {
            let end = time(&random)
            add(.leave(abruptly: random.happens(0.5)), of: actor, at: end)
            add(.join, of: actor, at: end, after: random.number(1...3000))
        }
        return actor
    }

    private func post(_ random: inout Random) -> PostPlan {
        var post = PostPlan(
            name: random.number(0...Names.nameCount - 1), object: random.happens(0.6) ? nil : 0)
        post.options.origin = random.pick(Names.origins)
        post.wantsAnswer = random.happens(0.8)
        if random.happens(0.6) { post.options.retention = Retention(whileConnected: random.happens(0.2)) }
        if random.happens(0.1) { post.options.expiresAfter = UInt32(random.number(1...30)) }
        if random.happens(0.1) { post.options.postingStyle = random.pick([.asap, .whenIdle]) }
        if random.happens(0.1) { post.options.coalescing = random.happens(0.5) ? [.name] : [.name, .object] }
        if random.happens(0.1) { post.options.deliverImmediately = true }
        if random.happens(0.2) { post.byteCount = random.number(1...20_000) }
        return post
    }

    /// One from outside, and beside it others of the same name and object.
    private mutating func addPost(by bridges: [Int], beside others: [Int], _ random: inout Random) {
        let start = time(&random)
        let post = post(&random)
        add(.post(post), of: random.happens(0.8) ? random.pick(bridges) : random.pick(others), at: start)
        var kinds = [post.kind]
        for _ in 0..<random.number(0...2) {
            var other = post
            other.options.origin = random.happens(0.5) ? nil : random.pick(Names.origins)
            kinds.append(other.kind)
            let poster = other.options.origin == nil ? random.pick(others) : random.pick(bridges)
            add(.post(other), of: poster, at: start, after: random.number(0...1000))
        }
        let actor = random.happens(0.5) ? random.pick(bridges) : random.pick(others)
        switch random.number(0...9) {
        case 0..<3: add(.forgetOne(random.pick(kinds)), of: actor, at: start, after: random.number(0...3000))
        case 3..<4: add(.forget(name: post.name), of: actor, at: start, after: random.number(0...3000))
        case 4..<6: add(.read(name: post.name), of: actor, at: start, after: random.number(0...3000))
        default: break
        }
    }

    /// S1: who is suspended and coalesces gets one of each place.
    private mutating func addSuspension(of actor: Int, by bridges: [Int], _ random: inout Random) {
        let start = time(&random)
        let name = random.number(0...Names.nameCount - 1)
        add(
            .observe(
                slot: random.number(16...19), name: name, object: nil,
                random.happens(0.7) ? .coalesce : random.pick(SuspensionBehavior.allCases),
                roles[actor].mode ?? random.pick(RunLoopMode.allCases)), of: actor, at: start)
        add(.suspend(true), of: actor, at: start, after: 10)
        for _ in 0..<random.number(2...6) {
            var post = PostPlan(name: name, object: random.happens(0.3) ? nil : 1)
            post.options.origin = random.pick(Names.origins)
            let action = random.happens(0.3) ? Action.burst(post, count: random.number(2...20)) : .post(post)
            add(action, of: random.pick(bridges), at: start, after: random.number(20...2000))
        }
        add(.suspend(false), of: actor, at: start, after: random.number(100...5000))
    }

    /// Somebody wants a name for a while: the service may die at that moment.
    private mutating func addWish(of actor: Int, _ random: inout Random) {
        let start = time(&random)
        let slot = random.number(20...23)
        // Of those that many want too few changes are to be told.
        let name = random.happens(0.6) ? random.pick(Names.unposted) : random.number(0...Names.nameCount - 1)
        add(
            .observe(
                slot: slot, name: random.happens(0.1) ? nil : name, object: nil,
                random.pick(SuspensionBehavior.allCases), roles[actor].mode ?? random.pick(RunLoopMode.allCases)),
            of: actor, at: start)
        if random.happens(0.7) { add(.unobserve(slot: slot), of: actor, at: start, after: random.number(0...4000)) }
        guard dials.faults > 0, servingTime == 0, random.happens(0.1) else { return }
        steps.append(Step(time: start, actor: nil, action: .kill(afterOperations: random.number(0...10))))
    }

    /// A bridge does not read, or the service dies, or loses its connection, just when it tells a bridge something.
    private mutating func addFaults(to bridges: [Int], _ random: inout Random) {
        for _ in 0..<random.number(1...3) {
            let start = time(&random)
            let bridge = random.pick(bridges)
            add(.stopReading, of: bridge, at: start)
            add(.readAgain, of: bridge, at: start, after: random.number(10...5000))
            // In a flood who calls rarely is owed an answer in time where nothing else goes wrong.
            guard servingTime == 0, random.happens(0.5) else { continue }
            let member = random.pick([InterestChangedSignal.member, ValuesRemovedSignal.member])
            let accident = Accident(member: member, isDeath: random.happens(0.5))
            steps.append(Step(time: time(&random), actor: nil, action: .accident(accident)))
        }
    }
}
