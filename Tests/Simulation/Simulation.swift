// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCore
import CarillonDBus
import CarillonWire

/// One run: the service, its clients, a bus and a disk in one process and one thread, in virtual time, from a seed (E7).
final class Simulation {
    let world: World
    let ledger: Ledger
    let plan: Plan
    private let bus: Bus
    private let disk: Disk
    let host: ServiceHost
    /// By actor; those that left are kept for the end.
    private var current: [Int: any Client] = [:]
    private(set) var all: [any Client] = []
    private var lastProcessID: UInt32 = 100
    private var random: Random
    private var impostor: Peer?
    private let windows: WindowWatch
    private let applications = Applications()
    /// Nil where there are no other sessions.
    private let neighborhood: Neighborhood?
    let streams: Streams
    private var hogs: [ChannelHog] = []
    private var ambush: Ambush?
    /// Whether a client leaves when the service asks for a match rule for all.
    private var isLeavingAtRule = false
    private var accident: Accident?

    /// How long it may take until everybody has everything when faults have ended, in microseconds.
    private static let calmTime: Int64 = 240_000_000
    /// In which something comes to a client of which nobody knows whether it reads.
    private static let silentTime: Int64 = 5_000_000
    /// The time of a post in the calm, and of forgetting who left.
    private static let restTime: Int64 = 30_000_000

    init(_ plan: Plan, trace: ((String) -> Void)? = nil) {
        self.plan = plan
        world = World(seed: plan.seed)
        world.trace = trace
        random = Random(seed: plan.seed, stream: 3)
        bus = Bus(world, id: Self.hexadecimal(plan.seed), manner: plan.manner)
        disk = Disk(world)
        ledger = Ledger(world)
        streams = Streams(world)
        host = ServiceHost(
            world, bus, disk, ledger, limits: plan.limits, isSupervised: plan.isSupervised,
            servingTime: plan.servingTime, streams: streams, applications: applications)
        neighborhood =
            plan.neighbors.isEmpty
            ? nil : Neighborhood(world, ledger, host, plan, id: Self.hexadecimal(~plan.seed))
        host.neighborhood = neighborhood
        windows = WindowWatch(world, ledger)
        ledger.policy.areSandboxesThere = plan.roles.contains { $0.application?.isSandboxed == true }
        host.begin(with: plan.policy)
        ledger.limits = plan.limits
        host.suspendsAutomatically = plan.suspendsAutomatically
        if plan.dials.sabotage == .smallBudget { host.budget = 4 }
        if plan.limits[.stateBytes] == Limits()[.stateBytes] {
            ledger.isStateOnlyDamaged = { [disk] in disk.wasOnlyFlipped }
        }
        ledger.witnesses = { [unowned self] in all.compactMap(\.witness) }
        bus.losesSignals = plan.dials.sabotage == .lostSignals
        bus.onDelivered = { [windows] sender, receiver in windows.delivered(from: sender, to: receiver) }
        bus.onRead = { [windows] message, sender, reader in windows.read(message, from: sender, by: reader) }
        bus.onLostDescriptor = { [unowned self] receiver in
            streams.lookAfterAll()
            // To the service the bus has carried it; the end of the channel says more, unless the service ends at that moment.
            for client in all { if let witness = client.witness, witness.client == receiver { witness.discards() } }
        }
        bus.onSent = { [unowned self] message, sender in meet(message, from: sender) }
        if trace != nil {
            bus.onCarried = { [unowned world] message, sender, receiver in
                let names = [sender, receiver].map { $0?.name?.rawValue ?? "all" }
                let what = message.member?.rawValue ?? message.errorName?.rawValue ?? "reply to \(message.replySerial)"
                world.note("    \(names[0]) → \(names[1]): \(what) (\(message.serial))")
            }
        }
        if plan.hasStaleFiles { disk.leaveStaleFiles(in: "/run/simulated/carillon", &random) }
    }

    private static func hexadecimal(_ seed: UInt64) -> String {
        let digits = String(seed, radix: 16)
        return String(repeating: "0", count: 32 - digits.count) + digits
    }

    /// - Returns: what broke a rule first; nil when nothing did.
    func run() -> Violation? {
        defer { tearDown() }
        world.note(plan.surroundings)
        for step in plan.steps {
            world.at(step.time) { [unowned self] in carryOut(step) }
        }
        world.run(until: Int64(plan.dials.seconds) * 1_000_000)
        guard world.violation == nil else { return world.violation }
        beginCalm()
        world.run(until: world.now + Self.calmTime)
        guard world.violation == nil else { return world.violation }
        waitForSilent()
        guard world.violation == nil else { return world.violation }
        host.checkCore()
        judgeFollowers()
        guard world.violation == nil else { return world.violation }
        let marker = postMarkers()
        if plan.dials.values > 0 { postValues() }
        postToSessions()
        passBy()
        world.run(until: world.now + Self.restTime)
        guard world.violation == nil else { return world.violation }
        judge(marker)
        guard world.violation == nil else { return world.violation }
        for client in all { client.leave(abruptly: false) }
        for hog in hogs { hog.leave() }
        neighborhood?.leave()
        world.run(until: world.now + Self.restTime)
        guard world.violation == nil else { return world.violation }
        host.checkCore()
        judgeEmptiness()
        return world.violation
    }

    /// Ends all processes, so that nothing outlives the bus.
    private func tearDown() {
        world.trace = nil
        for client in all { client.leave(abruptly: true) }
        for hog in hogs { hog.leave() }
        neighborhood?.leave()
        host.tearDown()
    }

    /// What a service says.
    func noteLog(_ line: String) { host.noteLog(line) }

    // MARK: Steps

    private func carryOut(_ step: Plan.Step) {
        world.note("\(step.actor.map { "#\($0) " } ?? "")\(step.action)")
        if let actor = step.actor { return carryOut(step.action, by: actor) }
        switch step.action {
        case .kill(let count): host.kill(afterOperations: count)
        case .terminate: host.terminate()
        case .pause(let milliseconds): host.pause(milliseconds: milliseconds)
        case .startSecond: host.start()
        case .cut(let control): host.cut(control: control)
        case .accident(let accident): self.accident = accident
        case .crowdBus(let kilobytes):
            bus.manner.maxOutgoingBytes = kilobytes << 10
            ledger.wasBusCrowded = true
            if bus.manner.kind == .broker { ledger.mayBusDiscard = true }
        case .slowBus(let factor):
            bus.manner.slowness = Int64(factor)
            ledger.wasBusSlow = true
        case .queueForName: queueForName()
        case .refuseCalls(let refusals):
            bus.refusals = refusals
            ledger.wereCallsTroubled = true
        case .delayBarriers(let milliseconds):
            bus.barrierDelay = Int64(milliseconds) * 1000
            ledger.wereCallsTroubled = true
        case .slowService(let factor):
            ledger.wereCallsTroubled = true
            for peer in host.openPeers { peer.slowness = 1 }
            host.openPeers.first?.slowness = Int64(factor)
        case .leaveAtRule: isLeavingAtRule = true
        case .fillDisk:
            disk.capacity = disk.used
            disk.wasFaulty = true
        case .emptyDisk: disk.capacity = nil
        case .allowChannels(let isAllowed): host.allowChannels(isAllowed)
        case .session(let deed): neighborhood?.carryOut(deed)
        case .changePolicy(let file): host.changePolicy(to: file)
        case .mistakePolicy: host.mistakePolicy()
        case .descriptors(let trouble): troubleDescriptors(trouble)
        case .flipBits(let count):
            var random = Random(seed: plan.seed, stream: UInt64(world.now) ^ 1 << 50)
            if let what = disk.flipBits(count, ofLog: bus.id, &random) {
                world.note(what)
                if !host.isServing { ledger.loseState() }
            }
        case .damageDisk:
            var random = Random(seed: plan.seed, stream: UInt64(world.now))
            if let what = disk.damage(&random) {
                world.note(what)
                // Nobody is about to end, whose state could be of no use.
                if !host.isServing { ledger.loseState() }
            }
        default: break
        }
    }

    private func carryOut(_ action: Action, by actor: Int) {
        if case .join = action {
            if current[actor]?.isThere != true { join(actor) }
            return
        }
        guard let client = current[actor], client.isThere else { return }
        switch action {
        case .leave(let abruptly): client.leave(abruptly: abruptly)
        case .observe(let slot, let name, let object, let behavior, let mode, let values, let interval):
            client.observe(slot: slot, name: name, object: object, behavior, mode, values: values, interval: interval)
        case .unobserve(let slot): client.unobserve(slot: slot)
        case .removeAll(let name): client.removeAll(name: name)
        case .post(let post): client.post(post)
        case .burst(let post, let count):
            if let client = client as? PlainClient, client.role.hasBatches {
                client.postTogether(Array(repeating: post, count: count))
            } else {
                for _ in 0..<count { client.post(post) }
            }
        case .postMany(let posts): client.postMany(posts)
        case .suspend(let isSuspended): client.suspend(isSuspended)
        case .follow: client.suspend(nil)
        case .list: client.list()
        case .read(let name): client.read(name: name)
        case .forget(let name): client.forget(name: name)
        case .forgetOne(let kind): client.forget(only: kind)
        case .withdraw(let name): client.withdraw(name: name)
        case .pester(let count): for _ in 0..<count { client.list() }
        case .trespass(let trespass):
            let others = all.filter { $0.isThere && $0 !== client }.compactMap { $0.witness?.client }
            (client as? PlainClient)?.trespass(trespass, others: others)
        case .override(let other, let isSuspended):
            guard let witness = current[other]?.witness, current[other]?.isThere == true else { return }
            client.override(isSuspended, of: witness)
        case .activity(let activity):
            guard let witness = client.witness, host.report(activity, of: witness.client) else { return }
            witness.outside.note(activity, at: world.now, by: host.servingName)
        case .lie(let lie): tell(lie, by: client)
        case .openChannel:
            (client as? PlainClient)?.openChannel()
            (client as? LibraryClient)?.wish(for: .channel)
        case .closeChannel(let abruptly):
            (client as? PlainClient)?.closeChannel(abruptly: abruptly)
            (client as? LibraryClient)?.wish(for: .bus)
        case .lieOnChannel(let lie):
            var random = Random(seed: plan.seed, stream: UInt64(world.now))
            (client as? PlainClient)?.lieOnChannel(lie, &random)
        case .hogChannels(let count):
            lastProcessID += 1
            hogs.append(
                ChannelHog(
                    world, bus, ledger, streams, processID: lastProcessID, count: count,
                    most: Int(plan.limits[.channelsPerProcess])))
        case .stopReading: client.setStopped(true)
        case .readAgain: client.setStopped(false)
        case .slow(let factor): client.setSlowness(factor)
        default: break
        }
    }

    private func join(_ actor: Int) {
        lastProcessID += 1
        let role = plan.roles[actor]
        applications.byProcess[lastProcessID] = role.application
        let client: any Client =
            switch role.kind {
            case .plain: PlainClient(world, bus, ledger, streams, role: role, processID: lastProcessID)
            case .library: LibraryClient(world, bus, ledger, streams, role: role, processID: lastProcessID)
            }
        current[actor] = client
        all.append(client)
        if role.isLiar, let liar = client as? PlainClient { windows.exempt(liar.peer) }
    }

    private func tell(_ lie: Lie, by client: any Client) {
        guard let client = client as? PlainClient, client.witness != nil else { return }
        if case .ambush = lie { return ambush = Ambush(client: client, end: world.now + Ambush.time) }
        let others = all.filter { $0.isThere && $0 !== client }.compactMap {
            $0.witness.flatMap { bus.peers[$0.client] }
        }
        var random = Random(seed: plan.seed, stream: UInt64(world.now))
        Liar(client: client, service: host.openPeers, others: others).tell(lie, &random)
    }

    /// Something is sent, of which whoever lies in wait learns at once.
    private func meet(_ message: Message, from sender: Peer) {
        if let accident, message.kind == .signal, accident.isMet(by: message), host.openPeers.first === sender {
            self.accident = nil
            world.note("    at this \(accident.member.rawValue):")
            if accident.isDeath {
                host.kill(afterOperations: random.number(1...3))
            } else {
                // A message takes so long to the bus, and some of them longer.
                world.after(Int64(random.number(0...60))) { [unowned self] in host.cut(control: false) }
            }
        }
        if isLeavingAtRule, message.hasMember("AddMatch"), host.openPeers.contains(where: { $0 === sender }) {
            leaveAtRule(message)
        }
        guard let ambush, world.now < ambush.end else { return }
        let service = host.openPeers
        guard service.contains(where: { $0 === sender }) else { return }
        ambush.meet(message, from: sender, of: service)
    }

    /// The service asks the bus for this rule.
    private func leaveAtRule(_ message: Message) {
        var reader = MessageReader(message)
        guard let rule = (try? reader.readString()).flatMap({ MatchRule($0) }), rule.firstArgument == nil else {
            return
        }
        let watched = Set(host.openPeers.flatMap(\.rules.keys).compactMap(\.firstArgument))
        let leaver = all.last { client in
            guard let witness = client.witness, client.isThere, client is PlainClient else { return false }
            return !witness.kept.isEmpty && !watched.contains(witness.client.rawValue)
        }
        guard let leaver else { return }
        isLeavingAtRule = false
        world.note("    at this rule \(leaver.witness!.client) leaves")
        world.after(0) { leaver.leave(abruptly: false) }
    }

    /// Another program waits for the service's name, and gives it up when it gets it.
    private func queueForName() {
        guard impostor == nil else { return }
        ledger.wasServiceTroubled = true
        let peer = bus.connect(processID: 99)
        impostor = peer
        func call(_ member: MemberName, _ body: (inout MessageWriter) -> Void = { _ in }) {
            let message = Message.methodCall(
                to: AnyBusName("org.freedesktop.DBus"), path: "/org/freedesktop/DBus",
                interface: "org.freedesktop.DBus", member: member)
            var writer = MessageWriter(message)
            body(&writer)
            _ = peer.send(message)
        }
        call("Hello")
        call("RequestName") { writer in
            writer.append(Wire.busName.rawValue)
            writer.append(UInt32(0))
        }
        world.after(5_000_000) { [unowned self] in
            peer.close(losing: false)
            impostor = nil
        }
    }

    private func troubleDescriptors(_ trouble: Streams.Trouble?) {
        streams.trouble = trouble
        bus.descriptorTrouble = trouble == .short ? nil : trouble
    }

    // MARK: The calm, and the end

    /// Nothing goes wrong any more, and everybody reads and wants to hear.
    private func beginCalm() {
        world.note("calm begins")
        ambush = nil
        accident = nil
        isLeavingAtRule = false
        bus.refusals = nil
        bus.barrierDelay = 0
        for peer in host.openPeers { peer.slowness = 1 }
        impostor?.close(losing: false)
        disk.capacity = nil
        bus.manner = plan.manner
        bus.manner.maxRules = plan.manner.maxRules
        troubleDescriptors(nil)
        if plan.dials.channels > 0 { host.allowChannels(true) }
        host.calm()
        neighborhood?.beginCalm()
        for client in all where client.isThere {
            client.setStopped(false)
            client.setSlowness(1)
        }
        // Whoever is there has the service started, if it is not.
        let caller = PlainClient(world, bus, ledger, streams, role: Plan.Role(), processID: 98)
        all.append(caller)
        // A service whose own calls the crowded bus has swallowed gives up after 25 s, and what waits for it fails.
        for start in [0, Self.calmTime / 2] {
            world.after(start + 1_000_000) { caller.list() }
            world.after(start + 2_800_000) { [unowned self] in judgeSuspensions() }
            world.after(start + 3_000_000) { [unowned self] in resumeAll() }
        }
    }

    private func resumeAll() {
        endOutsideSuspension()
        for client in all where client.isThere {
            // Who is told that a call failed says it again; the library does so by itself.
            guard let witness = client.witness else { continue }
            let mayBeForgotten = client is PlainClient && ledger.wasStateLost(since: witness.joined)
            let isUnknown = client is PlainClient && !witness.isWordKnown
            if witness.word == true || isUnknown || mayBeForgotten { client.suspend(false) }
            // The bus may have had no room for an answer; nor for a word, which dbus-broker tells nobody.
            if mayBeForgotten || ledger.mayBusDiscard || ledger.wasBusCrowded && client.follower?.isAnswered == false {
                client.follower?.ask()
            }
        }
    }

    /// B6: of who never answers nobody here knows that it reads, so it gets a window at a time, one each second or so. That
    /// takes its time, but it goes on until nothing waits.
    private func waitForSilent() {
        let silent = all.compactMap { $0 as? PlainClient }.filter {
            $0.isThere && !$0.role.answersPings && !$0.role.isLiar
        }
        for client in silent {
            guard let witness = client.witness else { continue }
            var left = Int.max
            while let status = host.center?.clientStatuses.first(where: { $0.name == witness.client }),
                status.queued > 0
            {
                guard status.queued < left else {
                    return world.violate("B6", "nothing comes any more to \(witness.client), for whom \(left) wait")
                }
                left = status.queued
                world.run(until: world.now + Self.silentTime)
                guard world.violation == nil else { return }
            }
        }
    }

    /// - Returns: the number of the first of them.
    private func postMarkers() -> Int {
        let marker = ledger.posts.count
        for number in 0..<(plan.dials.channels > 0 ? 2 : 1) {
            let role = Plan.Role(hasChannel: number == 1)
            let poster = PlainClient(world, bus, ledger, streams, role: role, processID: 97 - UInt32(number))
            poster.isCalm = true
            all.append(poster)
            for name in 0..<Names.nameCount { poster.post(PostPlan(name: name)) }
        }
        return marker
    }

    /// R2: who comes when all is posted gets the values that there are.
    private func postValues() {
        let role = Plan.Role(hasBatches: true)
        let poster = PlainClient(world, bus, ledger, streams, role: role, processID: 95)
        for name in 0..<Names.nameCount {
            var post = PostPlan(name: name)
            post.options.retention = Retention(whileConnected: name == 0)
            poster.post(post)
        }
        all.append(poster)
        world.after(Self.restTime / 3) { [unowned self] in
            let late = PlainClient(world, bus, ledger, streams, role: role, processID: 94)
            all.append(late)
            late.observe(slot: 0, name: nil, object: nil, .drop, .default, values: true, interval: 0)
            poster.read(name: nil)
        }
    }

    /// G1: other sessions get and send everything again.
    private func postToSessions() {
        guard let neighborhood else { return }
        let poster = PlainClient(world, bus, ledger, streams, role: Plan.Role(), processID: 92)
        all.append(poster)
        neighborhood.post(by: poster)
    }

    /// G4, G5: somebody comes who wants and keeps what nobody else does, and leaves. A follower wants some of it as well,
    /// and does not count for itself.
    private func passBy() {
        guard let follower = all.first(where: { $0.isThere && $0.follower != nil }) else { return }
        follower.observe(slot: 30, name: Names.late[0], object: nil, .hold, .default)
        let passer = PlainClient(world, bus, ledger, streams, role: Plan.Role(), processID: 93)
        all.append(passer)
        passer.observe(slot: 0, name: Names.late[1], object: nil, .hold, .default)
        // By itself, so that nothing else has the follower ask.
        world.after(Self.restTime / 6) {
            passer.observe(slot: 1, name: Names.late[0], object: nil, .hold, .default)
        }
        var post = PostPlan(name: Names.nameCount - 1)
        post.options.origin = Names.origins[0]
        post.options.retention = Retention(whileConnected: true)
        passer.post(post)
        world.after(Self.restTime / 3) { [unowned self] in
            judgeFollowers()
            // Nobody is told of a value that is new but who observes its name.
            for client in all where client.isThere { client.follower?.values.ask() }
        }
        world.after(Self.restTime / 3 * 2) { passer.leave(abruptly: false) }
    }

    /// Who follows what is wanted, and which values there are, knows it when nothing happens any more.
    private func judgeFollowers() {
        guard let center = host.center else { return world.violate("convergence", "there is no service") }
        for client in all where client.isThere { client.follower?.judge(by: center) }
    }

    private func judgeValues(_ center: DistributedCenter) {
        let kept = values(of: center)
        ledger.values.judge(kept, of: nil, asked: world.now)
        ledger.values.judgeLeft(kept.compactMap { $0 })
    }

    /// The numbers of the posts whose values a center keeps.
    func values(of center: DistributedCenter) -> [Int?] {
        var effects: [Effect] = []
        return center.retainedValues(name: "", object: "", effects: &effects).map { kept in
            let number = (kept.notification.userInfo as? WireUserInfo).flatMap {
                Receipt.number(ofCommonBody: $0.commonBody)
            }
            if let number, number < ledger.posts.count {
                ledger.judgeOrigin(kept.notification.identity?.origin, of: number)
            }
            return number
        }
    }

    /// Whether all that is posted in the calm, at once and for everybody, may be more than is kept for all together (E4).
    private func isTooMuch(from marker: Int) -> Bool {
        let maxBytes = 400
        return UInt64((ledger.posts.count - marker) * all.count * maxBytes) > plan.limits[.queuedBytes]
    }

    private func judge(_ marker: Int) {
        for number in marker..<ledger.posts.count {
            switch ledger.posts[number].outcome {
            case .accepted: continue
            // R6: values of its poster or of its host have taken all room.
            case .refused where !ledger.values.surelyHadRoom(number): continue
            case .refused, .unknown:
                return world.violate("convergence", "a post in the calm is not accepted: \(ledger.posts[number])")
            }
        }
        for case let poster as PlainClient in all where poster.isCalm && poster.role.hasChannel {
            if poster.channels.channel == nil { world.violate("convergence", "there is no channel in the calm") }
        }
        for client in all where client.isThere {
            guard let witness = client.witness else {
                return world.violate("convergence", "a client never got onto the bus")
            }
            // Who lies may have confirmed what it never got.
            guard (client as? PlainClient)?.role.isLiar != true else { continue }
            let missing = witness.missing()
            if let last = missing.last, last >= marker, !isTooMuch(from: marker) {
                return world.violate("convergence", "\(witness.client) does not get post \(last), made in the calm")
            }
            if UInt64(ledger.untold(missing)) > witness.announced, !ledger.mayBusDiscard {
                return world.violate(
                    "E3",
                    "\(witness.client) misses \(missing.count) posts, and was told of \(witness.announced): "
                        + missing.prefix(10).map(String.init).joined(separator: ", "))
            }
        }
        guard let center = host.center else { return world.violate("convergence", "there is no service") }
        for client in all where client.isThere && (client as? PlainClient)?.role.isLiar != true {
            judge(client, by: center)
        }
        judgeFollowers()
        judgeValues(center)
        neighborhood?.judge(from: marker)
    }
}
