// SPDX-License-Identifier: Apache-2.0
import CarillonCore

/// A bus that does badly by the service's own calls, in some of the runs (A4, D8, E6): it carries barriers late, refuses
/// them or Pings, reads the service's main connection late, or has no match rule left just as a client leaves.
extension Plan {
    /// Has numbers of its own, so that the rest of what a seed means is the same with and without.
    mutating func addProbes() {
        var random = Random(seed: seed, stream: 13)
        guard dials.faults > 0, random.happens(0.4 * dials.probes) else { return }
        // In a flood who calls rarely is owed an answer in time where nothing else goes wrong.
        guard servingTime == 0 else { return }
        let poster = add(Role(), at: random.number(0...100_000))
        let victim = add(Role(), at: random.number(100_000...200_000))
        let liar = add(Role(isLiar: true), at: random.number(0...100_000))
        add(.observe(slot: 28, name: nil, object: nil, .hold, .default), of: victim, at: 250_000)
        // A client that has answered a Ping.
        add(.burst(PostPlan(name: 0), count: 150), of: poster, at: 300_000)
        for _ in 0..<random.number(2...5) {
            let start = 500_000 + Int64(random.next() % UInt64(Int64(dials.seconds) * 1_000_000))
            switch random.number(0...9) {
            case 0..<3: addRefusals(of: victim, poster, at: start, &random)
            case 3..<5: addLateBarriers(poster, at: start, &random)
            case 5..<9: addOvertaking(of: victim, poster, liar, at: start, &random)
            default: addReset(of: victim, poster, at: start, &random)
            }
        }
        if random.happens(0.6) { addDepartures(&random) }
    }

    private mutating func add(_ role: Role, at time: Int) -> Int {
        roles.append(role)
        add(.join, of: roles.count - 1, at: Int64(time))
        return roles.count - 1
    }

    private mutating func add(_ action: Action, of actor: Int? = nil, at time: Int64) {
        steps.append(Step(time: time, actor: actor, action: action))
    }

    private func burst(_ count: Int, _ random: inout Random) -> Action {
        .burst(
            PostPlan(name: random.number(0...Names.nameCount - 1), wantsAnswer: random.happens(0.5)), count: count)
    }

    /// A client does not read, and the bus refuses what it is asked with, so that nobody knows.
    private mutating func addRefusals(of victim: Int, _ poster: Int, at start: Int64, _ random: inout Random) {
        let refusals = Bus.Refusals(
            share: random.pick([0.3, 1, 1]), ofPings: random.happens(0.7), ofBarriers: random.happens(0.4))
        add(.stopReading, of: victim, at: start)
        add(.refuseCalls(refusals), at: start + 1000)
        add(burst(random.number(200...500), &random), of: poster, at: start + 2000)
        let end = start + Int64(random.number(300...4000)) * 1000
        add(.refuseCalls(nil), at: end)
        add(.readAgain, of: victim, at: end + Int64(random.number(0...1000)) * 1000)
    }

    private mutating func addLateBarriers(_ poster: Int, at start: Int64, _ random: inout Random) {
        add(.delayBarriers(milliseconds: random.pick([5, 50, 500, 3000])), at: start)
        for number in 0..<random.number(1...4) {
            add(burst(random.number(1...200), &random), of: poster, at: start + Int64(number * 100_000))
        }
        if random.happens(0.5) {
            add(.kill(afterOperations: random.number(0...100)), at: start + Int64(random.number(0...400)) * 1000)
        }
        add(.delayBarriers(milliseconds: 0), at: start + Int64(random.number(300...4000)) * 1000)
    }

    /// What the service sends lies unread, barriers get ahead of it or are refused, and the service dies.
    private mutating func addOvertaking(
        of victim: Int, _ poster: Int, _ liar: Int, at start: Int64, _ random: inout Random
    ) {
        add(.readAgain, of: victim, at: start - 1000)
        add(.slowService(random.number(50...300)), at: start)
        let isRefused = random.happens(0.4)
        if isRefused {
            add(.refuseCalls(Bus.Refusals(share: 1, ofPings: false, ofBarriers: true)), at: start)
        } else {
            add(.lie(.ambush), of: liar, at: start)
        }
        let count = random.number(5...40)
        for number in 0..<count {
            add(.post(PostPlan(name: number % Names.nameCount)), of: poster, at: start + Int64(number) * 500)
        }
        let death = start + Int64(count / 2) * 500 + Int64(random.number(0...10_000))
        add(.kill(afterOperations: random.number(0...12)), at: death)
        add(.slowService(1), at: death + 30_000)
        add(.refuseCalls(nil), at: death + 30_000)
        // One by one, so that each is looked at by itself.
        add(.post(PostPlan(name: 1)), of: poster, at: death + 1_000_000)
    }

    /// A client closes its channel with much unread in it, just as the bus closes the service's connection.
    private mutating func addReset(of victim: Int, _ poster: Int, at start: Int64, _ random: inout Random) {
        guard dials.channels > 0 else { return }
        add(.openChannel, of: victim, at: start)
        add(.stopReading, of: victim, at: start + 100_000)
        add(burst(random.number(20...300), &random), of: poster, at: start + 110_000)
        let end = start + Int64(random.number(200...600)) * 1000
        add(.closeChannel(abruptly: true), of: victim, at: end)
        add(.cut(control: random.happens(0.3)), at: end + Int64(random.number(0...20)))
        add(.readAgain, of: victim, at: end + Int64(random.number(0...500)) * 1000)
    }

    /// Clients come until the bus has no rule left for one, who leaves at that moment.
    private mutating func addDepartures(_ random: inout Random) {
        manner.maxRules = random.number(3...9)
        let count = random.number(4...10)
        let actors = (0..<count).map { _ in add(Role(), at: random.number(0...200_000)) }
        for _ in 0..<random.number(2...6) {
            let start = Int64(random.next() % UInt64(Int64(dials.seconds) * 1_000_000))
            add(.leaveAtRule, at: start)
            for actor in actors {
                let time = start + Int64(random.number(0...400)) * 1000
                add(.join, of: actor, at: time)
                add(
                    .observe(slot: 0, name: random.number(0...Names.nameCount - 1), object: nil, .hold, .default),
                    of: actor, at: time + 1000)
                add(
                    .leave(abruptly: random.happens(0.5)), of: actor, at: time + Int64(random.number(500...3000)) * 1000
                )
            }
        }
    }
}
