// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonMQTT
import CarillonWire

/// One run of a realm: machines with the real service and the real bridge, and a broker, in one process, in virtual time, from
/// a seed (E7, G2).
final class RealmSimulation {
    let world: World
    let ledger: RealmLedger
    private let plan: RealmPlan
    private let broker: SimulatedBroker
    private let network: RealmNetwork
    private var hosts: [RealmHost] = []
    private var observers: [RealmProgram] = []
    private var posters: [RealmProgram] = []
    private var owners: [RealmProgram] = []
    private var lastProcessID: UInt32 = 100
    /// Whether the broker has refused something of a machine, or lost what it had.
    private var wasRefused = false
    private var random: Random

    /// How long it may take until everybody has everything when troubles have ended: a bridge that gave way stays away for
    /// five minutes.
    private static let calmTime: Int64 = 420_000_000
    private static let probeTime: Int64 = 60_000_000

    init(_ plan: RealmPlan, trace: ((String) -> Void)? = nil) {
        self.plan = plan
        world = World(seed: plan.seed)
        world.trace = trace
        random = Random(seed: plan.seed, stream: 6 << 40)
        broker = SimulatedBroker(world, plan.manner)
        network = RealmNetwork(world, broker)
        ledger = RealmLedger(world)
        for number in 0..<plan.hostCount {
            let host = RealmHost(
                RealmPlan.hostNames[number], number: number, world, network, lists: plan.lists[number],
                absenceExpiry: plan.absenceExpiry)
            hosts.append(host)
            let observer = program(on: host)
            observer.onReceipt = { [unowned self] receipt in ledger.received(receipt, at: number) }
            for name in RealmPlan.names + [RealmLedger.lostName] { observer.observe(name, values: false) }
            for name in RealmPlan.allValueNames { observer.observe(name, values: true) }
            observers.append(observer)
            posters.append(program(on: host))
            owners.append(program(on: host))
        }
        // Where a broker has forgotten sessions, what is sent again may fill a hole.
        ledger.isOrderBroken = { [unowned self] in wasRefused || broker.hasLostAll }
        ledger.isRough = { [unowned self] from, to in hosts[from].wasBridgeKilled || hosts[to].wasBridgeKilled }
    }

    private func program(on host: RealmHost) -> RealmProgram {
        lastProcessID += 1
        return RealmProgram(on: host, world, processID: lastProcessID)
    }

    func run() {
        // Each topic has been used once, so that a hole in its numbers is one.
        world.at(RealmPlan.start - 5_000_000) { [unowned self] in postAll() }
        for step in plan.steps {
            world.at(step.time) { [unowned self] in
                world.note("step \(step)")
                act(step)
            }
        }
        world.run(until: (plan.steps.last?.time ?? RealmPlan.start) + 1_000_000)
        beginCalm()
        world.run(until: world.now + Self.calmTime)
        // Nobody is locked out.
        postAll()
        world.run(until: world.now + Self.probeTime)
        judge()
    }

    private func postAll() {
        for host in hosts.indices {
            for name in RealmPlan.names.indices { post(host, name) }
        }
    }

    private func post(_ host: Int, _ name: Int) {
        let number = ledger.post(host, RealmPlan.names[name], isValue: false, isSeen: hosts[host].isExporting)
        posters[host].post(RealmPlan.names[name], object: "", number: number) { [ledger] isAccepted in
            ledger.settle(number, isAccepted)
        }
    }

    // MARK: Troubles

    private func act(_ step: RealmPlan.Step) {
        let host = hosts[step.host]
        switch step.action {
        case .post(let name, let count): for _ in 0..<count { post(step.host, name) }
        case .value(let name, let object, let isBound):
            let name = RealmPlan.valueName(name, of: step.host)
            let number = ledger.post(step.host, name, isValue: true, isBound: isBound)
            (isBound ? owners : posters)[step.host].post(
                name, object: RealmPlan.objects[object], number: number,
                retention: Retention(whileConnected: isBound)
            ) { [ledger] isAccepted in ledger.settle(number, isAccepted) }
        case .removeValue(let object):
            posters[step.host].removeValue(RealmPlan.valueName(1, of: step.host), object: RealmPlan.objects[object])
        case .restartOwner:
            owners[step.host].leave()
            owners[step.host] = program(on: host)
        case .endBridge(let seconds):
            host.endBridge()
            world.after(Int64(seconds) * 1_000_000 + 8_000_000) { host.startBridge() }
        case .killBridge(let operations): host.killBridge(afterOperations: operations)
        case .reload: host.reloadBridge()
        case .pauseBridge(let milliseconds): host.pauseBridge(Int64(milliseconds) * 1000)
        case .killService(let operations): host.killService(afterOperations: operations)
        case .endService: host.endService()
        case .stall(let milliseconds): host.stall(Int64(milliseconds) * 1000)
        case .kick(let reason): broker.kick(host.clientID, reason)
        case .expireSession: broker.expireSession(of: host.clientID)
        case .forgePresence(let isOnline): forge(host, isOnline)
        case .postDeep:
            let number = ledger.post(step.host, RealmPlan.deepName, isValue: false)
            posters[step.host].post(RealmPlan.deepName, object: "", number: number) { [ledger] isAccepted in
                ledger.settle(number, isAccepted)
            }
        case .logOut(let milliseconds, let isDropping):
            if isDropping { broker.drop(5, for: host.clientID) }
            // Some of it is taken from the broker and not posted; so many that it is not read any more, or fewer.
            for number in hosts.indices {
                for _ in 0..<(isDropping ? 20 : 200) { post(number, 0) }
            }
            world.after(20_000) { host.logOut() }
            world.after(20_000 + Int64(milliseconds) * 1_000) { host.endBridge() }
            world.after(20_000_000) { host.logIn() }
        case .stopBroker(let seconds): broker.restart(after: Int64(seconds) * 1_000_000, saving: true)
        case .cutBroker(let seconds): broker.restart(after: Int64(seconds) * 1_000_000, saving: false)
        case .refuseConnections(let reason, let seconds):
            broker.refusal = reason
            world.after(Int64(seconds) * 1_000_000) { [broker] in broker.refusal = nil }
        case .refusePublications(let reason, let seconds):
            refusePublications(reason, for: seconds)
        }
    }

    private func refusePublications(_ reason: ReasonCode, for seconds: Int) {
        wasRefused = true
        broker.publicationRefusal = reason
        world.after(Int64(seconds) * 1_000_000) { [broker] in broker.publicationRefusal = nil }
    }

    private func forge(_ host: RealmHost, _ isOnline: Bool) {
        broker.publish(
            Publication(
                topic: "carillon/1/home/\(host.name)/\(RealmHost.user)/online",
                payload: Array(#"{"online": \#(isOnline), "protocol": 1, "run": "forged"}"#.utf8), isRetained: true,
                contentType: "application/json", userProperties: [UserProperty("carillon", "1")]))
    }

    private func beginCalm() {
        world.note("calm")
        broker.refusal = nil
        broker.publicationRefusal = nil
        broker.endDrops()
        let on = hosts.indices.filter { $0 != plan.off }.map { hosts[$0] }
        for host in hosts { host.becomeCalm() }
        for host in on { host.startBridge() }
        // One that is ending just now is not there later.
        world.after(15_000_000) { for host in on { host.startBridge() } }
        if let off = plan.off { hosts[off].switchOff() }
    }

    // MARK: Judging

    private func judge() {
        for (number, host) in hosts.enumerated() where number != plan.off && !host.isConnected {
            world.violate("G2", "the bridge of \(host.name) is not connected in the calm")
        }
        ledger.judge(hostCount: hosts.count, missed: observers.map(\.missed))
        var values: [Int: [RetainedValueInfo]] = [:]
        for (number, observer) in observers.enumerated() { observer.values { values[number] = $0 } }
        world.run(until: world.now + 5_000_000)
        guard values.count == hosts.count else { return world.violate("R3", "a service does not tell its values") }
        for to in hosts.indices {
            for from in hosts.indices where from != to && to != plan.off { compare(from, to, values) }
        }
    }

    private func compare(_ from: Int, _ to: Int, _ values: [Int: [RetainedValueInfo]]) {
        let (one, other) = (hosts[from], hosts[to])
        let presence = values[to]!.first {
            $0.name == "org.carillon.Bridge.Host" && $0.object == "\(one.name)/\(RealmHost.user)"
        }
        let isOn = from != plan.off
        // Nobody can know that it is off.
        let topic = "carillon/1/home/\(one.name)/\(RealmHost.user)/online"
        if !isOn, broker.clientsWithoutWill.contains(one.clientID) || broker.untruePresences.contains(topic) { return }
        // One that has never told of itself is known to nobody.
        if let isOnline = presence?.userInfo["online"] ?? (isOn ? .boolean(false) : nil), isOnline != .boolean(isOn) {
            world.violate(
                "G2",
                "for \(other.name) \(one.name) is \(isOn ? "not " : "")online: \(String(describing: presence?.userInfo))"
            )
        }
        guard isOn else {
            // Neither the broker nor the bridge knows that it goes with its poster.
            if broker.hasLostAll, other.wasBridgeKilled { return }
            for (kind, number) in numbers(values[to]!.filter { $0.host == one.name }).sorted(by: { $0.key < $1.key })
            where ledger.posts[number].isBound || plan.absenceExpiry != nil {
                world.violate("R8", "\(one.name) is off, and \(other.name) has post \(number) of \(kind) still")
            }
            return
        }
        guard !wasRefused else { return }
        let own = numbers(values[from]!.filter { $0.host == nil })
        let theirs = numbers(values[to]!.filter { $0.host == one.name })
        for kind in Set(own.keys).union(theirs.keys).sorted() where own[kind] != theirs[kind] {
            func text(_ number: Int?) -> String { number.map { "post \($0)" } ?? "no value" }
            world.violate(
                "R1", "of \(kind) \(one.name) has \(text(own[kind])), and \(other.name) has \(text(theirs[kind])) of it"
            )
        }
    }

    private func numbers(_ values: [RetainedValueInfo]) -> [String: Int] {
        var numbers: [String: Int] = [:]
        for value in values where RealmPlan.allValueNames.contains(value.name) {
            if case .int64(let number)? = value.userInfo["n"] { numbers["\(value.name) \(value.object)"] = Int(number) }
        }
        return numbers
    }
}
