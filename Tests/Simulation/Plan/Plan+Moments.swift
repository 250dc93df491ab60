// SPDX-License-Identifier: Apache-2.0
import CarillonCore

/// Moments that hardly ever come by themselves, in some of the runs: a mistake that shows in nothing else shows in one of
/// them (A2, A4, D8, E3, E6). Each has clients of its own, who come for it.
extension Plan {
    /// Has numbers of its own, so that most of what a seed means is the same with and without: only what would excuse the
    /// mistakes that are looked for is taken out.
    mutating func addMoments() {
        var random = Random(seed: seed, stream: 18)
        guard dials.faults > 0, random.happens(0.4 * dials.moments), dials.seconds > 3 else { return }
        // In a flood who calls rarely is owed an answer in time where nothing else goes wrong.
        guard servingTime == 0 else { return }
        removeExcuses()
        let end = Int64(dials.seconds) * 1_000_000
        for _ in 0..<random.number(5...9) {
            let start = 1_000_000 + Int64(random.next() % UInt64(max(1, end - 6_000_000)))
            switch random.number(0...2) {
            case 0: addUnreadBarrier(at: start, &random)
            case 1: addRefusals(at: start, &random)
            default: addResetChannel(at: start, &random)
            }
        }
        // At the end, as every later service would tell what the one before did not.
        for _ in 0..<2 { addResumption(at: end - 1_700_000 - Int64(random.number(0...400)) * 1000, &random) }
    }

    /// Takes out what excuses much for the rest of a run: nobody would judge these moments.
    private mutating func removeExcuses() {
        limits[.stateBytes] = Limits()[.stateBytes]
        hasFlips = false
        steps.removeAll {
            switch $0.action {
            case .fillDisk, .emptyDisk, .damageDisk, .flipBits, .crowdBus: true
            default: false
            }
        }
    }

    private mutating func add(_ role: Role, at time: Int64) -> Int {
        roles.append(role)
        add(.join, of: roles.count - 1, at: time)
        return roles.count - 1
    }

    private mutating func add(_ action: Action, of actor: Int? = nil, at time: Int64) {
        steps.append(Step(time: time, actor: actor, action: action))
    }

    /// A client that observes all, and has got something.
    private mutating func addObserver(at start: Int64) -> Int {
        let observer = add(Role(), at: start - 400_000)
        add(.observe(slot: 0, name: nil, object: nil, .hold, .default), of: observer, at: start - 300_000)
        return observer
    }

    /// The bus has not read what the service sent, a stranger answers for it, and the service dies.
    private mutating func addUnreadBarrier(at start: Int64, _ random: inout Random) {
        _ = addObserver(at: start)
        let poster = add(Role(), at: start - 300_000)
        let liar = add(Role(isLiar: true), at: start - 300_000)
        add(.lie(.ambush), of: liar, at: start - 1000)
        add(.slowService(random.number(100...400)), at: start)
        let count = random.number(5...20)
        for number in 0..<count {
            add(.post(PostPlan(name: number % Names.nameCount)), of: poster, at: start + Int64(number) * 200)
        }
        let death = start + Int64(count) * 200 + Int64(random.number(100...4000))
        add(.kill(afterOperations: 0), at: death)
        add(.slowService(1), at: death + 30_000)
        // A client learns of a hole by what comes behind it.
        add(.post(PostPlan(name: 1)), of: poster, at: death + 500_000)
    }

    /// A client does not read, and the bus refuses what it is asked with.
    private mutating func addRefusals(at start: Int64, _ random: inout Random) {
        let victim = addObserver(at: start)
        let poster = add(Role(), at: start - 300_000)
        add(.post(PostPlan(name: 0)), of: poster, at: start - 200_000)
        add(.stopReading, of: victim, at: start)
        let isOfPings = random.happens(0.6)
        let refusals = Bus.Refusals(share: 1, ofPings: isOfPings, ofBarriers: !isOfPings)
        add(.refuseCalls(refusals), at: start + 1000)
        add(.burst(PostPlan(name: random.number(0...Names.nameCount - 1)), count: 500), of: poster, at: start + 2000)
        let end = start + Int64(random.number(200...2000)) * 1000
        add(.refuseCalls(nil), at: end)
        add(.readAgain, of: victim, at: end + Int64(random.number(0...1000)) * 1000)
    }

    /// A client closes its channel with much unread in it, just as the bus closes the service's connection.
    private mutating func addResetChannel(at start: Int64, _ random: inout Random) {
        guard dials.channels > 0 else { return }
        let victim = addObserver(at: start)
        let poster = add(Role(), at: start - 300_000)
        add(.openChannel, of: victim, at: start - 200_000)
        add(.stopReading, of: victim, at: start)
        add(
            .burst(PostPlan(name: random.number(0...Names.nameCount - 1)), count: random.number(100...200)), of: poster,
            at: start + 1000)
        let end = start + 400_000
        // It learns of both at once.
        add(.pause(milliseconds: 5), at: end)
        add(.closeChannel(abruptly: true), of: victim, at: end + 1000)
        add(.cut(control: false), at: end + 2000)
        add(.readAgain, of: victim, at: end + 10_000)
        for delay in [15_000, 40_000, 200_000, 1_000_000] as [Int64] {
            add(.post(PostPlan(name: 1)), of: poster, at: end + delay)
        }
    }

    /// The service that suspended a client for its application's activity dies, and the next one knows nothing of that.
    private mutating func addResumption(at start: Int64, _ random: inout Random) {
        suspendsAutomatically = true
        let victim = addObserver(at: start)
        add(.follow, of: victim, at: start - 100_000)
        add(.activity(.inactive), of: victim, at: start)
        // Enough for a Ping, whose answer confirms the control signal before it.
        let poster = add(Role(), at: start - 300_000)
        var post = PostPlan(name: 0)
        post.options.deliverImmediately = true
        add(.burst(post, count: random.number(100...200)), of: poster, at: start + 400_000)
        add(.kill(afterOperations: random.number(0...3)), at: start + Int64(random.number(600...1500)) * 1000)
        add(.list, of: victim, at: start + 1_600_000)
    }
}
