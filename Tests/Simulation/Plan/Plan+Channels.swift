// SPDX-License-Identifier: Apache-2.0
import CarillonCore

/// Channels, in some of the runs (F2): who has them, who lies on them, and what goes wrong with them.
extension Plan {
    /// Has numbers of its own, so that the rest of what a seed means is the same with and without.
    mutating func addChannels() {
        var random = Random(seed: seed, stream: 5)
        guard random.happens(0.75 * dials.channels) else { return }
        for actor in roles.indices where !roles[actor].callsRarely { giveChannel(to: actor, &random) }
        for _ in 0..<random.number(0...4) { addBrokenChannel(&random) }
        guard dials.faults > 0 else { return }
        if random.happens(0.3) { addHog(&random) }
        if random.happens(0.35) { addChannelFaults(&random) }
    }

    private var end: Int64 { Int64(dials.seconds) * 1_000_000 }

    private func time(_ random: inout Random) -> Int64 { Int64(random.next() % UInt64(end)) }

    private mutating func add(_ action: Action, of actor: Int? = nil, at time: Int64) {
        steps.append(Step(time: time, actor: actor, action: action))
    }

    private mutating func giveChannel(to actor: Int, _ random: inout Random) {
        if roles[actor].isLiar {
            for _ in 0..<random.number(0...4) {
                add(.lieOnChannel(random.pick(ChannelLie.allCases)), of: actor, at: time(&random))
            }
            return
        }
        // Some begin with one, some come to it later; and some change their minds.
        roles[actor].hasChannel = random.happens(0.5)
        roles[actor].grain = random.happens(0.3) ? random.pick([1, 3, 17, 100]) : 64 << 10
        guard roles[actor].hasChannel || random.happens(0.3) else { return }
        if !roles[actor].hasChannel { add(.openChannel, of: actor, at: time(&random)) }
        for _ in 0..<random.number(0...3) {
            let when = time(&random)
            switch random.number(0...9) {
            case 0..<4: add(.closeChannel(abruptly: random.happens(0.6)), of: actor, at: when)
            default: break
            }
            add(.openChannel, of: actor, at: when + Int64(random.number(0...2000)) * 1000)
        }
    }

    /// A channel that ends while much lies in it, in the service's end, or on the way.
    private mutating func addBrokenChannel(_ random: inout Random) {
        let victims = roles.indices.filter { roles[$0].hasChannel && !roles[$0].isLiar }
        guard let victim = victims.randomElement(using: &random) else { return }
        let chosen = random.number(0...roles.count - 1)
        // Who calls rarely is owed its answers soon because of that.
        let poster = roles[chosen].callsRarely ? victim : chosen
        let start = time(&random)
        let mode = roles[victim].mode ?? .default
        add(.openChannel, of: victim, at: start)
        add(.observe(slot: 7, name: nil, object: nil, .hold, mode), of: victim, at: start + 1000)
        add(.stopReading, of: victim, at: start + 100_000)
        var post = PostPlan(name: random.number(0...Names.nameCount - 1), wantsAnswer: random.happens(0.5))
        post.byteCount = random.pick([0, 0, 300, 3000])
        add(.burst(post, count: random.number(20...300)), of: poster, at: start + 110_000)
        let later = start + Int64(random.number(120...1500)) * 1000
        switch random.number(0...9) {
        case 0..<4: add(.closeChannel(abruptly: true), of: victim, at: later)
        case 4..<5: add(.closeChannel(abruptly: false), of: victim, at: later)
        case 5..<7: add(.openChannel, of: victim, at: later)
        case 7..<9 where dials.faults > 0:
            add(.allowChannels(false), at: later)
            add(.allowChannels(true), at: later + Int64(random.number(1...2000)) * 1000)
        case 9 where dials.faults > 0: add(.kill(afterOperations: random.number(0...60)), at: later)
        default: add(.leave(abruptly: random.happens(0.5)), of: victim, at: later)
        }
        add(.readAgain, of: victim, at: later + Int64(random.number(0...500)) * 1000)
        add(.openChannel, of: victim, at: later + Int64(random.number(0...3000)) * 1000)
    }

    /// More connections of one process than may have channels.
    private mutating func addHog(_ random: inout Random) {
        limits[.channelsPerProcess] = UInt64(random.number(1...6))
        roles.append(Role())
        add(.join, of: roles.count - 1, at: 0)
        for _ in 0..<random.number(1...2) {
            add(.hogChannels(random.number(2...20)), of: roles.count - 1, at: time(&random))
        }
    }

    private mutating func addChannelFaults(_ random: inout Random) {
        for _ in 0..<random.number(1...3) {
            let when = time(&random)
            add(.allowChannels(false), at: when)
            add(.allowChannels(true), at: when + Int64(random.number(1...4000)) * 1000)
        }
        for _ in 0..<random.number(0...3) {
            let when = time(&random)
            add(.descriptors(random.pick(Streams.Trouble.allCases)), at: when)
            add(.descriptors(nil), at: when + Int64(random.number(1...4000)) * 1000)
        }
    }
}
