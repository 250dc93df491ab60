// SPDX-License-Identifier: Apache-2.0
import CarillonActivity
import CarillonBusNames
import CarillonCore
import CarillonDBus
import CarillonMainLoop
import CarillonService
import CarillonWire

/// Starts the real service in simulated processes, and ends them.
final class ServiceHost {
    private let world: World
    private let bus: Bus
    private let disk: Disk
    private let ledger: Ledger
    private let limits: Limits
    private let isSupervised: Bool
    /// What serving a call takes, in microseconds; 0 where no time passes while the service does something.
    private let servingTime: Int64
    private var random: Random
    private let streams: Streams
    /// To whom processes belong.
    private let applications: Applications
    var suspendsAutomatically = false
    /// Where other sessions are; nil where there are none.
    weak var neighborhood: Neighborhood?
    /// What the configuration says of policy.
    private var policy = PolicyFile()
    private var hasMistake = false
    /// What the configuration says of channels.
    private var allowsChannels = true
    /// The newest first.
    private var instances: [Instance] = []
    private var lastProcessID: UInt32 = 5000
    private var isStartPending = false

    private final class Instance {
        let process: LoopProcess
        var service: Service?
        var peers: [Peer] = []
        /// On the system bus.
        var systemPeers: [Peer] = []
        var iterations = 0
        /// Whether it kept no queues when it was last looked at.
        var isWithoutQueues = false
        /// Whether what it makes of a damaged log is looked at already.
        var isDamageSeen = false
        /// Whether its log says that the state was damaged.
        var saysDamage = false
        /// Of policy, that it has read.
        var version = 0
        /// The core whose events are metered.
        weak var metered: DistributedCenter?
        /// Whether it was told to end.
        var isLeaving = false

        init(_ process: LoopProcess) {
            self.process = process
        }
    }

    /// The most steps of an event.
    var budget = StepMeter.budget
    /// Invariants of the core are checked after so many iterations.
    private static let checkEvery = 32
    /// The bytes that may wait beyond the limit: the connection reads ahead, and each message costs more than its bytes.
    private static let maxReadAhead: UInt64 = 8 << 20

    init(
        _ world: World, _ bus: Bus, _ disk: Disk, _ ledger: Ledger, limits: Limits, isSupervised: Bool,
        servingTime: Int64, streams: Streams, applications: Applications = Applications()
    ) {
        self.applications = applications
        self.streams = streams
        self.world = world
        self.bus = bus
        self.disk = disk
        self.ledger = ledger
        self.limits = limits
        self.isSupervised = isSupervised
        self.servingTime = servingTime
        random = Random(seed: world.seed, stream: 2)
        bus.activate[Wire.busName] = { [unowned self] in startSoon() }
        bus.onOwner = { [unowned self] name, owner in
            guard name == Wire.busName, let owner else { return }
            ledger.services.insert(owner)
            if mayLoseState { ledger.loseState() }
            world.after(Self.timeToTakeUp) { [weak self] in self?.expectResumptions() }
        }
    }

    /// The core of the service that has the name.
    var center: DistributedCenter? { serving?.service?.center }

    /// Its name on the bus, which is another one after each connection.
    var servingName: UniqueName? { bus.owner(of: Wire.busName)?.name }

    /// A source of activity reports something to the service that has the name.
    ///
    /// - Returns: whether it hears that.
    func report(_ activity: Activity, of client: UniqueName) -> Bool {
        guard let instance = serving, instances.count == 1, !instance.process.isStopped, !instance.process.isDead,
            instance.service?.center?.clientStatuses.contains(where: { $0.name == client }) == true
        else { return false }
        instance.process.perform { instance.service?.report(activity, of: client) }
        return !instance.process.isDead
    }

    /// What it keeps for each client besides.
    var kept: [(what: String, count: Int)] { serving?.service?.kept ?? [] }

    /// Whether there is one, and no other.
    var isServing: Bool { instances.count == 1 && serving?.service?.center != nil }

    private var serving: Instance? {
        guard let owner = bus.owner(of: Wire.busName) else { return nil }
        return instances.first { $0.peers.contains { $0 === owner } }
    }

    // MARK: Beginning

    /// Whether the session ends, so that nothing is started any more.
    var isLoggingOut = false { didSet { if !isLoggingOut, instances.isEmpty { startSoon() } } }

    private func startSoon() {
        guard !isStartPending else { return }
        guard !isLoggingOut else {
            return world.after(1_000) { [unowned self] in bus.startFailed(Wire.busName) }
        }
        isStartPending = true
        world.after(Int64(random.number(20...200)) * 1000) { [unowned self] in
            isStartPending = false
            start()
        }
    }

    /// What the configuration says from the beginning.
    func begin(with file: PolicyFile) {
        policy = file
        ledger.policy.begin(with: file)
    }

    func start() {
        lastProcessID += 1
        ledger.incarnations += 1
        let process = LoopProcess(world, id: lastProcessID, name: "carillond")
        process.isClockRunning = servingTime > 0
        let instance = Instance(process)
        instance.version = ledger.policy.lastVersion
        instances.insert(instance, at: 0)
        world.note("carillond \(process.id) starts")
        let machine = Machine.simulated(
            address: Bus.address, runtimeDirectory: "/run/simulated", files: ProcessFiles(disk, of: process),
            processes: applications, maySandboxesCall: ledger.policy.areSandboxesThere,
            configuration: { [unowned self, limits] in
                var reading = Configuration.Reading(text: hasMistake ? "[Policy]\nopen-names\n" : policy.text)
                reading.configuration.limits = limits
                reading.configuration.allowsChannels = allowsChannels
                reading.configuration.suspendsAutomatically = suspendsAutomatically
                return reading
            },
            connect: { [unowned self, unowned instance] context, priority throws(BusError) in
                let peer = bus.connect(processID: instance.process.id)
                instance.peers.append(peer)
                return Connection(PeerTransport(peer, of: instance.process, priority: priority), context: context)
            },
            makeStream: { [streams, unowned process] in streams.make(for: process) },
            time: { [unowned world] in world.now }, uptime: { [unowned world] in world.now },
            connectToSystemBus: connector(of: instance),
            noteServing: { [unowned process, servingTime] in process.spend(servingTime) })
        process.onDeath = { [unowned self, weak instance] in
            if let instance { died(instance) }
        }
        process.onIteration = { [unowned self, unowned instance] in check(instance) }
        process.perform {
            do throws(Service.End) {
                instance.service = try Service(on: machine, context: process.context) { [unowned instance] reason in
                    instance.process.world.note("carillond \(instance.process.id) ends: \(reason)")
                    instance.process.kill()
                }
                instance.service!.start()
            } catch {
                process.kill()
            }
        }
    }

    /// Connects a process to the system bus (G1).
    private func connector(
        of instance: Instance
    ) -> ((MainContext, EventSource.Priority) throws(BusError) -> Connection)? {
        guard let neighborhood else { return nil }
        return { [unowned instance, unowned neighborhood] context, priority throws(BusError) in
            let peer = try neighborhood.connect(processID: instance.process.id)
            instance.systemPeers.append(peer)
            return Connection(PeerTransport(peer, of: instance.process, priority: priority), context: context)
        }
    }

    /// docs/recovery.md: behind a damaged log every client that came back is told whether it is suspended.
    private func expectWords(of instance: Instance) {
        guard instance.process.hasReadDamage, !instance.isDamageSeen, let center = instance.service?.center else {
            return
        }
        instance.isDamageSeen = true
        if !instance.saysDamage {
            world.violate("E3", "carillond \(instance.process.id) read a damaged log, and said nothing of it")
        }
        for status in center.clientStatuses {
            ledger.expectControlSignal(to: status.name, "whether it is suspended, behind a damaged log")
        }
    }

    /// What a service says in its log.
    func noteLog(_ line: String) {
        if line.contains("discarded "), line.contains("state of an earlier carillond") {
            for instance in instances where instance.process.hasReadDamage { instance.saysDamage = true }
        }
        // It has taken over what came back, and has answered no call yet.
        if line.contains(": serving ") { for instance in instances { expectWords(of: instance) } }
    }

    /// A2: whom an earlier service had suspended for its application's activity is told that this one has not.
    private func expectResumptions() {
        for status in center?.clientStatuses ?? [] where !status.isSuspended {
            // One that is suspended again knows that already; and what stands behind a full window waits for its barrier.
            ledger.expectControlSignal(
                to: status.name, ifSuspended: true, within: Self.timeOfResumption,
                while: { [weak self, start = world.now] in
                    guard let self else { return false }
                    return isSuspended(status.name) == false && bus.lastLateBarrier < start
                },
                "that it is resumed, by the service that came")
        }
    }

    private func isSuspended(_ client: ClientName) -> Bool? {
        center?.clientStatuses.first { $0.name == client }?.isSuspended
    }

    /// In which the service takes up what there was, and in which a client is told then; later it may be for another
    /// reason, in the calm at the latest. In microseconds.
    private static let timeToTakeUp: Int64 = 50_000
    private static let timeOfResumption: Int64 = 2_000_000

    private func check(_ instance: Instance) {
        instance.iterations += 1
        watchCosts(of: instance)
        instance.isWithoutQueues = instance.service?.isWithoutQueues ?? false
        guard instance.iterations % Self.checkEvery == 0 else { return }
        checkCore(of: instance)
        guard let statistics = instance.service?.center?.statistics else { return }
        if statistics.waitingCallBytes > limits[.waitingCallBytes] + Self.maxReadAhead {
            world.violate("E4", "\(statistics.waitingCallBytes) bytes of calls wait: \(limits[.waitingCallBytes])")
        }
        if statistics.memoryBytes > limits[.memoryBytes] + Self.maxReadAhead {
            world.violate("E4", "\(statistics.memoryBytes) bytes are held: \(limits[.memoryBytes])")
        }
    }

    /// From now on an event that costs more than it may breaks a rule (E8).
    private func watchCosts(of instance: Instance) {
        guard let center = instance.service?.center, center !== instance.metered else { return }
        instance.metered = center
        center.meter.eventEnded = { [unowned world, budget] event, steps in
            guard steps > budget else { return }
            world.violate("E8", "\(event) took \(steps) steps, and may take \(budget)")
        }
    }

    private func checkCore(of instance: Instance) {
        do throws(BrokenInvariant) {
            try instance.service?.center?.checkInvariants()
        } catch {
            world.violate(String(error.description.prefix { $0 != ":" }), error.description)
        }
    }

    func checkCore() {
        if let serving { checkCore(of: serving) }
    }

    // MARK: Ending

    /// Whether what one process leaves to the next may be of no use.
    private var mayLoseState: Bool { disk.wasFaulty || limits[.stateBytes] < Limits()[.stateBytes] }

    private func died(_ instance: Instance) {
        instances.removeAll { $0 === instance }
        // The state of one with large queues can be more than even the standard lets it keep.
        if mayLoseState || instance.isWithoutQueues { ledger.loseState() }
        for peer in instance.peers + instance.systemPeers { peer.close(losing: true) }
        // What it had goes, with no effect on anything any more.
        instance.service = nil
        if instances.allSatisfy(\.isLeaving) { bus.startFailed(Wire.busName) }
        if isSupervised, instances.isEmpty { startSoon() }
    }

    func kill(afterOperations count: Int) {
        ledger.wasServiceTroubled = true
        serving?.process.kill(afterOperations: count)
    }

    func terminate() {
        ledger.wasServiceTroubled = true
        guard let instance = serving else { return }
        instance.isLeaving = true
        instance.process.perform {
            instance.service?.stop { [unowned instance] in instance.process.kill() }
        }
    }

    func pause(milliseconds: Int) {
        ledger.wasServiceTroubled = true
        guard let process = serving?.process else { return }
        process.isStopped = true
        world.after(Int64(milliseconds) * 1000) { process.isStopped = false }
    }

    func cut(control: Bool) {
        ledger.wasServiceTroubled = true
        guard let peers = serving?.peers.filter(\.isOpen), peers.count >= 2 else { return }
        bus.disconnect(control ? peers[1] : peers[0])
    }

    /// The system bus closes the service's connection.
    func cutSystem(_ bus: Bus) {
        for peer in serving?.systemPeers ?? [] where peer.isOpen { bus.disconnect(peer) }
    }

    /// Another session, as the service that has the name shows it.
    func shownSession(_ name: UniqueName) -> [String: PropertyList]? {
        guard case .array(let peers)? = serving?.service?.shownSessions["peers"] else { return nil }
        return peers.lazy.compactMap { if case .dictionary(let peer) = $0 { peer } else { nil } }
            .first { $0["name"] == .string(name.rawValue) }
    }

    /// The values that other sessions have as well, of the service that has the name.
    var valuesForSessions: [ExportedNotification] { serving?.service?.valuesForSessions ?? [] }

    /// The configuration changes, and is read again.
    func allowChannels(_ isAllowed: Bool) {
        allowsChannels = isAllowed
        for instance in instances { reload(instance) }
    }

    /// The same, of policy.
    func changePolicy(to file: PolicyFile) {
        policy = file
        let version = ledger.policy.change(to: file)
        for instance in instances { reload(instance) { [weak self] in self?.noteRead(version) } }
        noteRead(version)
    }

    private func noteRead(_ version: Int) {
        if instances.allSatisfy({ $0.version >= version || $0.process.isDead }) { ledger.policy.settle(version) }
    }

    /// With what stands in the file nobody can start, and who is there keeps what there was.
    func mistakePolicy() {
        hasMistake = true
        for instance in instances where !instance.process.isDead && !instance.process.isStopped {
            instance.process.perform { instance.service?.reloadConfiguration() }
        }
        hasMistake = false
    }

    private func reload(_ instance: Instance, _ completion: @escaping () -> Void = {}) {
        guard !instance.process.isDead else { return completion() }
        guard !instance.process.isStopped else {
            return world.after(Self.reloadPause) { [weak self, weak instance] in
                if let self, let instance { reload(instance, completion) } else { completion() }
            }
        }
        instance.process.perform { instance.service?.reloadConfiguration() }
        instance.version = ledger.policy.lastVersion
        completion()
    }

    private static let reloadPause: Int64 = 20_000

    func tearDown() {
        for instance in instances { instance.process.kill() }
    }

    /// All faults end.
    func calm() {
        for instance in instances {
            instance.process.isStopped = false
            instance.process.live()
        }
    }

    /// The connections of the service that has the name.
    var openPeers: [Peer] { serving?.peers.filter(\.isOpen) ?? [] }
}

/// Processes, of which nothing is to be known but to whom they belong.
final class Applications: ProcessTable {
    var byProcess: [UInt32: Application] = [:]

    func name(of processID: UInt32) -> String { "process\(processID)" }

    func confinement(of processID: UInt32) -> Lookup<Confinement> {
        guard let application = byProcess[processID], application.isSandboxed else { return .known(.none) }
        return .known(.sandbox(application.id))
    }

    func description(of processID: UInt32, startedBy moment: UInt64) -> ProcessDescription? {
        ProcessDescription(name: name(of: processID), application: byProcess[processID]?.id)
    }

    func facts(of processID: UInt32) -> Lookup<ProcessFacts?> { .known(nil) }
    func environment(of processID: UInt32) -> Lookup<SessionEnvironment?> { .known(nil) }
    var now: UInt64 { 0 }
}
