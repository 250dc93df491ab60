// SPDX-License-Identifier: Apache-2.0
import CarillonBridge
import CarillonBusNames
import CarillonCore
import CarillonDBus
import CarillonMQTT
import CarillonMainLoop
import CarillonService

/// A machine of a realm: a bus, the real service, the real bridge, and programs.
final class RealmHost {
    static let user = "u"

    let name: String
    let bus: Bus
    let services: ServiceHost
    let streams: Streams
    private let world: World
    private let network: RealmNetwork
    private let disk: Disk
    /// What `bridge.conf` has beside its names: the lists, and the time of values of those that are not there.
    private let lists: String
    private var random: Random
    private var bridge: BridgeProcess?
    private var lastProcessID: UInt32 = 9_000
    /// The state that an ended bridge has left.
    fileprivate var saved: [UInt8]?
    /// Changes of the configuration.
    private var reloads = 0
    /// Whether a bridge was ever killed, or stopped while it was ending, so that it had no time for that.
    private(set) var wasBridgeKilled = false

    private final class BridgeProcess {
        let process: LoopProcess
        var bridge: Bridge?
        var peers: [Peer] = []
        var lines: [WeakLine] = []
        var sessionBus: ProcessBus?
        /// Its name on the bus, as the service knows it.
        var name: UniqueName?
        /// Whether it has observed, and does not end.
        var isExporting = false

        init(_ process: LoopProcess) {
            self.process = process
        }
    }

    private struct WeakLine {
        weak var line: BrokerLine?
    }

    /// Microseconds since 1970 when the simulation begins.
    static let epoch: Int64 = 1_700_000_000_000_000

    init(
        _ name: String, number: Int, _ world: World, _ network: RealmNetwork, lists: String, absenceExpiry: UInt32?
    ) {
        self.name = name
        self.world = world
        self.network = network
        self.lists = lists + (absenceExpiry.map { "\nabsence-expiry=\($0)" } ?? "")
        random = Random(seed: world.seed, stream: 4 << 40 | UInt64(number))
        bus = Bus(
            world, id: String(repeating: "\(number)", count: 32),
            manner: Bus.Manner(kind: random.pick(Bus.Manner.Kind.allCases)))
        disk = Disk(world)
        streams = Streams(world)
        // Its witnesses are for another simulation: it only counts here.
        services = ServiceHost(
            world, bus, disk, Ledger(world), limits: Limits(), isSupervised: true, servingTime: 0, streams: streams)
        services.start()
        startBridge()
    }

    // MARK: The bridge

    var isConnected: Bool { bridge?.bridge?.isConnected == true }
    var clientID: String { "carillon-home-\(name)-\(Self.user)-\(secret)" }
    fileprivate var secret: String { "s\(name)" }
    private(set) var isBridgeWanted = true
    private var isEnding = false
    private var isOff = false
    private var pausedUntil: Int64 = 0

    /// Whether what is posted from now on is seen by the bridge.
    var isExporting: Bool {
        guard let bridge, !isEnding else { return false }
        if !bridge.isExporting, let status = services.center?.clientStatuses.first(where: { $0.name == bridge.name }) {
            bridge.isExporting = status.observers > 0
        }
        return bridge.isExporting
    }

    private func reading() -> BridgeConfiguration.Reading {
        BridgeConfiguration.Reading(
            text: """
                [Broker]
                host=broker
                tls=false
                keep-alive=\(10 + reloads % 2)
                [Bridge]
                host=\(name)
                user=\(Self.user)
                \(lists)
                """, path: "bridge.conf")
    }

    func startBridge() {
        guard !isOff else { return }
        isBridgeWanted = true
        guard bridge == nil else { return }
        lastProcessID += 1
        let process = LoopProcess(world, id: lastProcessID, name: "bridge of \(name)")
        let instance = BridgeProcess(process)
        bridge = instance
        isEnding = false
        world.note("\(process.name) \(process.id) starts")
        let sessionBus = ProcessBus(bus, streams, process)
        instance.sessionBus = sessionBus
        sessionBus.onName = { [unowned instance] name in instance.name = name }
        let environment = BridgeEnvironment(
            connect: { [unowned self, unowned instance] context throws(BusError) in
                let peer = bus.connect(processID: instance.process.id)
                instance.peers.append(peer)
                return Connection(PeerTransport(peer, of: instance.process, priority: .default), context: context)
            }, sessionBus: sessionBus,
            makeBrokerClient: { [network, unowned instance] settings, _ throws(MQTTError) in
                let line = BrokerLine(settings, of: instance.process, network)
                instance.lines.append(WeakLine(line: line))
                return line
            }, readConfiguration: { [unowned self] in reading() }, state: RealmState(self, process),
            time: { [unowned world] in Self.epoch + world.now }, random: { [unowned self] in random.next() })
        process.onDeath = { [unowned self, unowned instance] in died(instance) }
        process.perform {
            do throws(Bridge.End) {
                instance.bridge = try Bridge(reading(), environment, context: process.context) {
                    [unowned process] end in
                    process.world.note("\(process.name) ends: \(end)")
                    process.kill()
                }
                instance.bridge?.start()
            } catch {
                process.kill()
            }
        }
    }

    private func died(_ instance: BridgeProcess) {
        bridge = nil
        pausedUntil = 0
        for peer in instance.peers { peer.close(losing: true) }
        instance.sessionBus?.close(losing: true)
        for line in instance.lines { line.line?.die() }
        instance.bridge = nil
        // As systemd does.
        world.after(2_000_000) { [weak self] in if let self, isBridgeWanted { startBridge() } }
    }

    /// Ends it in order; it starts again when ``startBridge()`` is called.
    func endBridge() {
        isBridgeWanted = false
        guard let instance = bridge else { return }
        instance.isExporting = false
        isEnding = true
        // A stopped process gets the signal when it goes on.
        let delay = max(0, pausedUntil - world.now)
        if delay > 0 { wasBridgeKilled = true }
        world.after(delay) { [self] in if bridge === instance, !isBridgeWanted { stop(instance) } }
    }

    private func stop(_ instance: BridgeProcess) {
        instance.process.perform {
            instance.bridge?.stop { [unowned instance] in instance.process.kill() }
        }
    }

    func killBridge(afterOperations count: Int) {
        guard let process = bridge?.process else { return }
        wasBridgeKilled = true
        process.kill(afterOperations: count)
    }

    /// None of its processes is killed from now on.
    func becomeCalm() {
        bridge?.process.live()
        services.calm()
    }

    /// The power is cut, as far as others notice.
    func switchOff() {
        (isOff, isBridgeWanted) = (true, false)
        wasBridgeKilled = true
        bridge?.process.kill()
    }

    func reloadBridge() {
        reloads += 1
        guard let instance = bridge, pausedUntil <= world.now else { return }
        instance.process.perform { try? instance.bridge?.reload() }
    }

    func pauseBridge(_ microseconds: Int64) {
        guard let process = bridge?.process else { return }
        process.isStopped = true
        if isEnding { wasBridgeKilled = true }
        pausedUntil = max(pausedUntil, world.now + microseconds)
        world.after(microseconds) { [self] in if world.now >= pausedUntil { process.isStopped = false } }
    }

    /// The cable is pulled for a while.
    func stall(_ microseconds: Int64) {
        for line in bridge?.lines ?? [] { line.line?.stall(microseconds) }
    }

    // MARK: The service

    func killService(afterOperations count: Int) {
        services.kill(afterOperations: count)
    }

    func endService() {
        services.terminate()
    }

    func logOut() {
        services.isLoggingOut = true
        services.terminate()
    }

    func logIn() {
        services.isLoggingOut = false
        startBridge()
    }
}

/// The state directory of a machine's bridges.
private final class RealmState: StateStore {
    private unowned let host: RealmHost
    private let process: LoopProcess

    init(_ host: RealmHost, _ process: LoopProcess) {
        self.host = host
        self.process = process
    }

    func clientID() -> String? { host.secret }

    func take() -> SavedState? {
        guard let bytes = host.saved, process.operate() else { return nil }
        host.saved = nil
        return SavedState(bytes, now: RealmHost.epoch + process.world.now)
    }

    func save(_ state: SavedState) -> Bool {
        guard process.operate() else { return false }
        host.saved = state.bytes(now: RealmHost.epoch + process.world.now)
        return true
    }
}
