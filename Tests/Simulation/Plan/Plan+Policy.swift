// SPDX-License-Identifier: Apache-2.0
import CarillonCore

/// Applications in sandboxes and others that policy concerns, in some of the runs (P2, P3): what they may not do, and a
/// configuration that changes.
extension Plan {
    /// Has numbers of its own, so that the rest of what a seed means is the same with and without.
    mutating func addPolicy() {
        var random = Random(seed: seed, stream: 12)
        guard random.happens(0.5 * dials.policy) else { return }
        policy = file(&random)
        for actor in 0..<min(dials.clients, roles.count) where random.happens(0.4) {
            roles[actor].application = Application(
                id: random.pick(Self.applicationIDs), isSandboxed: random.happens(0.7))
        }
        addVisitors(&random)
        let confined = roles.indices.filter { roles[$0].application != nil && !roles[$0].isLiar }
        guard !confined.isEmpty else { return }
        for _ in 0..<random.number(2...12) {
            let actor = random.pick(confined)
            add(.trespass(random.pick(Trespass.allCases)), of: actor, at: time(&random))
        }
        for _ in 0..<random.number(2...12) { addDeed(of: random.pick(confined), &random) }
        for _ in 0..<random.number(0...5) {
            add(random.happens(0.2) ? .mistakePolicy : .changePolicy(file(&random)), at: time(&random))
        }
    }

    /// Some have names of those that are posted, and one has none but looks like it.
    private static let applicationIDs = [
        "com.example", "com.example.Name", Names.name(0), Names.name(0), Names.name(1), "org.example.Other",
    ]

    private func time(_ random: inout Random) -> Int64 {
        Int64(random.next() % UInt64(Int64(dials.seconds) * 1_000_000))
    }

    private mutating func add(_ action: Action, of actor: Int? = nil, at time: Int64) {
        steps.append(Step(time: time, actor: actor, action: action))
    }

    private func file(_ random: inout Random) -> PolicyFile {
        var file = PolicyFile()
        file.unidentified = random.happens(0.6) ? .automatic : random.pick(PolicyFile.Unidentified.allCases)
        if random.happens(0.5) { file.openNames = patterns(&random, isForAll: false) }
        for id in Set(Self.applicationIDs).sorted() {
            for action in PolicyFile.Action.allCases where random.happens(0.35) {
                file.lists[id, default: [:]][action] = patterns(&random, isForAll: true)
            }
        }
        return file
    }

    private func patterns(_ random: inout Random, isForAll: Bool) -> [String] {
        (0..<random.number(1...2)).map { _ in
            switch random.number(0...9) {
            case 0 where isForAll: "*"
            case 1: "com.example.*"
            // None has the dot.
            case 2..<5: "com.example.Name.*"
            case 5: Names.name(random.number(0...Names.nameCount - 1)) + ".*"
            default: Names.name(random.number(0...Names.nameCount - 1))
            }
        }
    }

    /// What policy decides about, by somebody whom it concerns.
    private mutating func addDeed(of actor: Int, _ random: inout Random) {
        let start = time(&random)
        let name = random.number(0...Names.nameCount - 1)
        var post = PostPlan(name: name)
        post.wantsAnswer = random.happens(0.8)
        if random.happens(0.3) { post.options.retention = Retention() }
        if random.happens(0.3) { post.options.origin = random.pick(Names.origins) }
        switch random.number(0...9) {
        case 0..<3: add(.post(post), of: actor, at: start)
        case 3..<6: add(.postMany(mixed(post, &random)), of: actor, at: start)
        case 6..<8:
            add(
                .observe(
                    slot: random.number(24...27), name: random.happens(0.2) ? nil : name, object: nil,
                    random.pick(SuspensionBehavior.allCases), roles[actor].mode ?? .default,
                    values: random.happens(0.5)), of: actor, at: start)
        case 8: add(.read(name: random.happens(0.3) ? nil : name), of: actor, at: start)
        default: add(.forget(name: random.happens(0.3) ? nil : name), of: actor, at: start)
        }
    }

    /// The same post with other names.
    private func mixed(_ post: PostPlan, _ random: inout Random) -> [PostPlan] {
        (0..<random.number(2...12)).map { _ in
            var other = post
            other.name = random.number(0...Names.nameCount - 1)
            if random.happens(0.5) { other.options.origin = nil }
            return other
        }
    }

    /// They post and leave, some before anybody could say whose they were.
    private mutating func addVisitors(_ random: inout Random) {
        for _ in 0..<random.number(0...4) {
            var role = Role()
            if random.happens(0.6) {
                role.application = Application(id: random.pick(Self.applicationIDs), isSandboxed: true)
            }
            roles.append(role)
            let actor = roles.count - 1
            for _ in 0..<random.number(1...3) {
                let start = time(&random)
                add(.join, of: actor, at: start)
                var post = PostPlan(name: random.number(0...Names.nameCount - 1))
                post.wantsAnswer = random.happens(0.3)
                add(.post(post), of: actor, at: start + 10)
                add(.leave(abruptly: false), of: actor, at: start + Int64(random.number(100...3000)))
            }
        }
    }
}

/// What no application in a sandbox may do (P2).
enum Trespass: String, CaseIterable {
    case followInterest = "asks what others observe"
    case followValues = "asks which values there are"
    case reload = "has the configuration read again"
    case override = "overrides the suspension of another"
    case details = "asks to be told who posted"
    /// Which is not refused: it sees as much as it may.
    case look = "looks at others"
}
