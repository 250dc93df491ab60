// SPDX-License-Identifier: Apache-2.0
import CarillonCore

/// Other sessions of the machine, in some of the runs (G1): notifications in both directions, also such as nobody takes,
/// sessions that come and go, read late, lie and flood, and a configuration that changes.
extension Plan {
    /// The service of another session.
    struct Neighbor {
        let user: UInt32
        /// Patterns of the names that it takes.
        let wants: [String]
        /// Whether it is told the values that it may have, and their ends (R8); not one of the first version.
        let understandsValues: Bool
    }

    /// Has numbers of its own, so that the rest of what a seed means is the same with and without.
    mutating func addSessions() {
        var random = Random(seed: seed, stream: 17)
        guard random.happens(0.4 * dials.sessions) else { return }
        let file = sessionsFile(&random)
        // The first wants all that goes out, and stays.
        neighbors.append(
            Neighbor(user: random.pick(SessionsFile.users), wants: file.export, understandsValues: true))
        for _ in 0..<random.number(1...3) {
            neighbors.append(
                Neighbor(
                    user: random.pick(SessionsFile.users), wants: patterns(&random),
                    understandsValues: neighbors.count.isMultiple(of: 2)))
        }
        let actors = roles.indices.filter { !roles[$0].callsRarely && !roles[$0].isLiar }
        for actor in actors where random.happens(0.4) { roles[actor].wantsDetails = true }
        for session in neighbors.indices { addStay(of: session, &random) }
        for _ in 0..<random.number(6...30) { addExport(by: random.pick(actors), &random) }
        for _ in 0..<random.number(6...30) { addImport(&random) }
        for _ in 0..<random.number(0...8) { add(.lie(anySession(&random), random.pick(SessionLie.allCases)), &random) }
        if dials.faults > 0 { addSessionFaults(file, actors, &random) }
        var changes: [(time: Int64, file: SessionsFile)] = []
        if random.happens(0.25) {
            changes = (0..<random.number(1...2)).map { _ in (time(&random), sessionsFile(&random)) }
        }
        configure(file, changes)
    }

    // MARK: Configuration

    private func sessionsFile(_ random: inout Random) -> SessionsFile {
        var file = SessionsFile()
        file.export = patterns(&random)
        for user in SessionsFile.users where random.happens(0.75) {
            file.imports[user] = patterns(&random)
            if random.happens(0.5) { file.retained[user] = patterns(&random) }
        }
        return file
    }

    /// Some have the dot that no name here has.
    private func patterns(_ random: inout Random) -> [String] {
        (0..<random.number(1...3)).map { _ in
            switch random.number(0...9) {
            case 0: "com.example.Name.*"
            case 1..<3: "com.example.*"
            default: Names.name(random.number(0...Names.nameCount - 1))
            }
        }
    }

    /// Puts what the configuration says of sessions into each of its versions.
    private mutating func configure(_ file: SessionsFile, _ changes: [(time: Int64, file: SessionsFile)]) {
        policy.sessions = file
        let changes = changes.sorted { $0.time < $1.time }
        func current(at time: Int64) -> SessionsFile { changes.last { $0.time <= time }?.file ?? file }
        var versions: [(time: Int64, file: PolicyFile)] = []
        for index in steps.indices {
            guard case .changePolicy(var changed) = steps[index].action else { continue }
            changed.sessions = current(at: steps[index].time)
            steps[index] = Step(time: steps[index].time, actor: nil, action: .changePolicy(changed))
            versions.append((steps[index].time, changed))
        }
        versions.sort { $0.time < $1.time }
        for change in changes {
            var changed = versions.last { $0.time <= change.time }?.file ?? policy
            changed.sessions = change.file
            steps.append(Step(time: change.time, actor: nil, action: .changePolicy(changed)))
        }
    }

    /// The configuration of sessions at any time of the run.
    var sessionsFiles: [SessionsFile] {
        [policy.sessions]
            + steps.compactMap { if case .changePolicy(let file) = $0.action { file.sessions } else { nil } }
    }

    // MARK: Steps

    private func time(_ random: inout Random) -> Int64 {
        Int64(random.next() % UInt64(Int64(dials.seconds) * 1_000_000))
    }

    private func anySession(_ random: inout Random) -> Int { random.pick(Array(neighbors.indices)) }

    private mutating func add(_ deed: SessionDeed, at time: Int64) {
        steps.append(Step(time: time, actor: nil, action: .session(deed)))
    }

    private mutating func add(_ deed: SessionDeed, _ random: inout Random) { add(deed, at: time(&random)) }

    private mutating func add(_ action: Action, of actor: Int, at time: Int64) {
        steps.append(Step(time: time, actor: actor, action: action))
    }

    private mutating func addStay(of session: Int, _ random: inout Random) {
        add(.join(session), at: session == 0 || random.happens(0.7) ? Int64(random.number(0...500_000)) : time(&random))
        guard session > 0, random.happens(0.4) else { return }
        let end = time(&random)
        add(.leave(session, abruptly: random.happens(0.5)), at: end)
        if random.happens(0.8) { add(.join(session), at: end + Int64(random.number(1...3000)) * 1000) }
    }

    private func export(_ random: inout Random) -> PostPlan {
        var post = PostPlan(
            name: random.number(0...Names.nameCount - 1), object: random.happens(0.7) ? nil : 0)
        post.options.goesToAllSessions = true
        post.wantsAnswer = random.happens(0.8)
        if random.happens(0.15) { post.options.postingStyle = random.pick([.asap, .whenIdle]) }
        if random.happens(0.15) { post.options.deliverImmediately = true }
        if random.happens(0.15) { post.options.retention = Retention(whileConnected: post.name % 2 == 1) }
        if random.happens(0.1) { post.options.expiresAfter = UInt32(random.number(1...30)) }
        if random.happens(0.1) { post.byteCount = random.number(1...20_000) }
        return post
    }

    private mutating func addExport(by actor: Int, _ random: inout Random) {
        let start = time(&random)
        var post = export(&random)
        switch random.number(0...9) {
        case 0..<6: add(.post(post), of: actor, at: start)
        case 6..<8:
            post.options.retention = nil
            add(.burst(post, count: random.number(10...200)), of: actor, at: start)
        default:
            let others = (0..<random.number(2...10)).map { _ in
                var other = export(&random)
                other.options.goesToAllSessions = random.happens(0.7)
                return other
            }
            add(.postMany(others), of: actor, at: start)
        }
    }

    /// Of any name, also of one that nobody takes.
    private func imported(_ random: inout Random) -> PostPlan {
        var post = PostPlan(
            name: random.number(0...Names.nameCount - 1), object: random.happens(0.7) ? nil : 0)
        post.isSentRetained = random.happens(0.3)
        if random.happens(0.15) { post.options.deliverImmediately = true }
        if random.happens(0.1) { post.options.expiresAfter = UInt32(random.number(1...30)) }
        if random.happens(0.1) { post.byteCount = random.number(1...20_000) }
        if random.happens(0.05) { post.flaw = random.pick([.longName, .longObject]) }
        return post
    }

    private mutating func addImport(_ random: inout Random) {
        let start = time(&random)
        let session = anySession(&random)
        for number in 0..<(random.happens(0.7) ? 1 : random.number(2...80)) {
            add(.post(session, imported(&random)), at: start + Int64(number) * 50)
        }
    }

    // MARK: Faults

    private mutating func addSessionFaults(_ file: SessionsFile, _ actors: [Int], _ random: inout Random) {
        for _ in 0..<random.number(1...2) { addBusyTime(file, actors, &random) }
        for _ in 0..<random.number(0...2) where random.happens(0.6) { add(.cut, &random) }
        if random.happens(0.2) {
            let start = time(&random)
            add(.unreachable(true), at: start)
            add(.cut, at: start)
            add(.unreachable(false), at: start + Int64(random.number(1...5000)) * 1000)
        }
        if random.happens(0.3) {
            let start = time(&random)
            add(.slow(random.number(2...300)), at: start)
            add(.slow(1), at: start + Int64(random.number(1...5000)) * 1000)
        }
        if random.happens(0.3) { addFlood(file, &random) }
        guard random.happens(0.3) else { return }
        let isOfOne = random.happens(0.5)
        add(
            .crowd(
                user: isOfOne ? random.pick(SessionsFile.users) : nil, count: isOfOne ? 10 : random.number(60...80),
                milliseconds: random.number(1...5000)), &random)
    }

    /// A session reads nothing, or confirms nothing, while much is posted for it: within its bound, or more.
    private mutating func addBusyTime(_ file: SessionsFile, _ actors: [Int], _ random: inout Random) {
        let session = random.happens(0.6) ? 0 : anySession(&random)
        let start = 600_000 + time(&random) / 2
        let end = start + Int64(random.number(500...15_000)) * 1000
        let isMute = random.happens(0.3)
        add(isMute ? .mute(session, true) : .stop(session, true), at: start)
        let wanted = (0..<Names.nameCount).filter { name in
            file.exports(Names.name(name))
                && neighbors[session].wants.contains { PolicyFile.matches($0, Names.name(name)) }
        }
        // 4,096 may wait, or 4 MiB.
        let isMuch = random.happens(0.5)
        let count = isMuch ? random.number(240...400) : random.number(40...400)
        for _ in 0..<random.number(1...3) where !wanted.isEmpty {
            var post = PostPlan(name: random.pick(wanted))
            post.options.goesToAllSessions = true
            if isMuch { post.byteCount = 20_000 }
            add(.burst(post, count: count), of: random.pick(actors), at: start + Int64(random.number(1000...400_000)))
        }
        add(isMute ? .mute(session, false) : .stop(session, false), at: end)
    }

    /// A session sends without waiting. Some leave in between, and come back for more.
    private mutating func addFlood(_ file: SessionsFile, _ random: inout Random) {
        let session = anySession(&random)
        var start = time(&random)
        let taken = (0..<Names.nameCount).filter { file.imports(Names.name($0), of: neighbors[session].user) }
        let post = PostPlan(name: taken.isEmpty ? 0 : random.pick(taken))
        add(.flood(session, post, count: random.number(1000...4000)), at: start)
        guard random.happens(0.6) else { return }
        // Which does not give its user more.
        for _ in 0..<random.number(1...2) {
            start += Int64(random.number(500...1500)) * 1000
            add(.leave(session, abruptly: false), at: start)
            add(.join(session), at: start + 50_000)
            add(.flood(session, post, count: random.number(1000...3000)), at: start + 100_000)
        }
    }
}
