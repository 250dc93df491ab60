// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonDBus
import CarillonWire

/// Those who mean harm and know how, and accidents at the worst moment, in some of the runs (E4 to E6).
extension Plan {
    /// Has numbers of its own, so that the rest of what a seed means is the same with and without.
    mutating func addHostility() {
        var random = Random(seed: seed, stream: 4)
        if random.happens(0.6 * dials.hostility) { addSiege(&random) }
        if random.happens(0.4 * dials.hostility) {
            addFlood(&random)
        } else if dials.faults > 0, random.happens(0.4 * dials.hostility) {
            addAccidents(&random)
        }
    }

    private var end: Int64 { Int64(dials.seconds) * 1_000_000 }

    /// - Returns: the new actor, who joins.
    private mutating func add(_ role: Role, at time: Int) -> Int {
        roles.append(role)
        add(.join, of: roles.count - 1, at: Int64(time))
        return roles.count - 1
    }

    private mutating func add(_ action: Action, of actor: Int, at time: Int64) {
        steps.append(Step(time: time, actor: actor, action: action))
    }

    // MARK: Lies that are aimed

    /// Somebody answers for a client that does not read, and for the bus.
    private mutating func addSiege(_ random: inout Random) {
        // dbus-broker carries no answer that nobody asked for.
        if random.happens(0.5) { manner.kind = .daemon }
        let liar = add(Role(isLiar: true), at: random.number(0...100_000))
        let poster = add(Role(), at: random.number(0...300_000))
        let victimJoins = random.number(100_000...400_000)
        let victim = add(Role(kind: random.happens(0.5) ? .library : .plain), at: victimJoins)
        add(.observe(slot: 0, name: nil, object: nil, .hold, .default), of: victim, at: Int64(victimJoins + 1000))
        // As most join; and later.
        add(.lie(.ambush), of: liar, at: 150_000)
        add(.lie(.ambush), of: liar, at: Int64(random.next() % UInt64(end)))
        for _ in 0..<2 {
            let time = end / 10 + Int64(random.next() % UInt64(end / 10 * 7))
            add(.stopReading, of: victim, at: time)
            let post = PostPlan(name: random.number(0...Names.nameCount - 1), wantsAnswer: false)
            add(.burst(post, count: random.number(200...500)), of: poster, at: time + 5000)
            for number in 1...10 {
                add(.lie(.answersForOthers), of: liar, at: time + Int64(number * random.number(10_000...60_000)))
            }
            add(.readAgain, of: victim, at: time + Int64(random.number(700...3000)) * 1000)
        }
    }

    // MARK: Accidents

    /// A client that reads again is told what it has lost, and what comes behind; just then something happens.
    private mutating func addAccidents(_ random: inout Random) {
        limits[.queuedPerClient] = UInt64(random.number(20...100))
        let poster = add(Role(), at: random.number(0...300_000))
        let victimJoins = random.number(100_000...400_000)
        let victim = add(Role(kind: random.happens(0.3) ? .library : .plain), at: victimJoins)
        add(.observe(slot: 0, name: nil, object: nil, .hold, .default), of: victim, at: Int64(victimJoins + 1000))
        for _ in 0..<3 {
            let time = end / 10 + Int64(random.next() % UInt64(end / 10 * 8))
            let isSuspended = random.happens(0.3)
            add(isSuspended ? .suspend(true) : .stopReading, of: victim, at: time)
            let post = PostPlan(name: random.number(0...Names.nameCount - 1), wantsAnswer: random.happens(0.5))
            add(.burst(post, count: random.number(150...400)), of: poster, at: time + 5000)
            let later = time + Int64(random.number(300...1500)) * 1000
            let member = random.pick([
                DroppedSignal.member, DroppedSignal.member, NotificationSignal.member, SuspensionChangedSignal.member,
            ])
            let accident = Accident(member: member, isDeath: random.happens(0.3))
            steps.append(Step(time: later, actor: nil, action: .accident(accident)))
            add(isSuspended ? .suspend(false) : .readAgain, of: victim, at: later)
        }
    }

    // MARK: Floods

    /// Some call without end, and others rarely, on a machine that is slow.
    private mutating func addFlood(_ random: inout Random) {
        servingTime = Int64(random.number(400...2000))
        manner.maxOutgoingBytes = 1 << 30
        if manner.kind == .daemon, random.happens(0.7) { manner.maxIncomingBytes = random.number(64...4096) << 10 }
        if random.happens(0.7) { limits[.waitingCallBytes] = UInt64(random.number(1...8)) << 20 }
        if random.happens(0.5) { limits[.memoryBytes] = UInt64(random.number(2...16)) << 20 }
        // Where nothing else goes wrong everybody is owed an answer in time.
        if random.happens(0.7) { steps.removeAll { $0.actor == nil } }
        for _ in 0..<2 { addRareCaller(&random) }
        let count = random.number(1...3)
        for _ in 0..<count { addFlooder(of: count, &random) }
    }

    private mutating func addRareCaller(_ random: inout Random) {
        let actor = add(Role(callsRarely: true), at: random.number(0...500_000))
        var time: Int64 = 1_000_000
        while time < end {
            add(rareCall(&random), of: actor, at: time)
            time += Int64(random.number(300...1200)) * 1000
        }
    }

    /// It observes no object that anybody posts about in a flood.
    private func rareCall(_ random: inout Random) -> Action {
        switch random.number(0...9) {
        case 0..<5: .post(PostPlan(name: random.number(0...Names.nameCount - 1)))
        case 5..<7: .list
        case 7..<9:
            .observe(
                slot: random.number(0...3), name: random.number(0...Names.nameCount - 1),
                object: random.number(0...Names.objectCount - 1), .hold, .default)
        default: .unobserve(slot: random.number(0...3))
        }
    }

    /// Work for some seconds, all of them together, in a second or less.
    private mutating func addFlooder(of flooders: Int, _ random: inout Random) {
        let actor = add(Role(), at: random.number(0...500_000))
        var time = end / 10 + Int64(random.next() % UInt64(end / 2))
        var left = Int(5_000_000 / servingTime) / flooders
        if random.happens(0.25) { return add(.pester(count: min(left, 600) / 2), of: actor, at: time) }
        var post = PostPlan(name: random.number(0...Names.nameCount - 1))
        post.wantsAnswer = random.happens(0.2)
        post.byteCount = random.pick([0, 300, 12_000, 12_000])
        // Enough that a bus which makes nobody wait is known as such, and no more.
        left = min(left, 40_000_000 / (post.byteCount + 1) / flooders)
        while left > 0 {
            let count = min(left, random.number(50...400))
            add(.burst(post, count: count), of: actor, at: time)
            left -= count
            time += Int64(random.number(1...30)) * 1000
        }
    }
}
