// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonDBus
import CarillonMQTT
import CarillonMainLoop
import CarillonWire

/// The bridge program: it exchanges notifications between a session and other machines through an MQTT broker (G2). It
/// owns the D-Bus name and object, and the parts that outlive a change of the configuration. A ``BridgeInstance`` (a
/// *crossing*) does the exchange under one configuration; a reload replaces it.
///
/// A session has at most one bridge, because only one process can own the name on the session bus.
///
/// Threads: all members are used on the context's thread.
package final class Bridge {
    /// The reason why the bridge ends without ``stop(_:)``, or can't begin.
    package enum End: Error {
        /// The connection to the session bus failed.
        case noBus(BusError)
        /// The session has a bridge already.
        case nameTaken
        /// The bus closed the connection.
        case disconnected
        /// The configuration allows no connection to a broker.
        case configuration(String)
    }

    /// The phase of the bridge's life, in this order; after a reload the phase is `running` again.
    private enum Phase {
        /// The bridge requests its name on the bus.
        case starting
        /// The present crossing exchanges messages.
        case running
        /// The present crossing drains: it finishes and hands its state over. Then `next` replaces it.
        case reloading(next: BridgeInstance)
        /// The crossing drains, and then the bridge ends.
        case ending
        case ended
    }

    private let environment: BridgeEnvironment
    private let context: MainContext
    /// The connection to the session bus for the bridge's name and its D-Bus methods.
    private let connection: Connection
    /// Called when the bridge ends without ``stop(_:)``.
    private let ended: (End) -> Void
    /// The client of the session's notification service.
    private let center: CenterLink
    /// The queue of messages of other hosts that are to be posted in the session.
    private let posts: InwardPosts
    /// The announcements of lost messages.
    private let losses: LossAnnouncer
    /// The initial presence of this process, which each crossing copies.
    private let presence: OwnPresence
    private var phase = Phase.starting
    /// The present crossing.
    private var instance: BridgeInstance
    /// The result of the last reading of the configuration, also if it was refused.
    private var reading: BridgeConfiguration.Reading
    /// The exporter of the D-Bus object.
    private var exporter: ObjectExporter!
    /// The callbacks of ``stop(_:)``, called when the bridge has ended.
    private var waiting: [() -> Void] = []
    /// The requested round-trip tests that have not begun.
    private var tests: [(BridgeInstance) -> Void] = []
    /// Runs while the requested tests wait for a connection.
    private var testTimer: EventSource?

    /// Creates a bridge with the resources of this machine. ``start()`` starts it.
    ///
    /// - Parameters:
    ///   - reading: the configuration, in which a broker is set.
    ///   - address: the address of the session bus.
    ///   - ended: called when the bridge ends without ``stop(_:)``.
    /// - Throws: ``End``.
    package convenience init(
        _ reading: BridgeConfiguration.Reading, address: String, context: MainContext = .default,
        ended: @escaping (End) -> Void
    ) throws(End) {
        try self.init(reading, .own(address: address, context: context), context: context, ended: ended)
    }

    /// Creates a bridge with the resources of an environment.
    package init(
        _ reading: BridgeConfiguration.Reading, _ environment: BridgeEnvironment, context: MainContext,
        ended: @escaping (End) -> Void
    ) throws(End) {
        self.environment = environment
        self.context = context
        self.ended = ended
        self.reading = reading
        center = CenterLink(environment, context: context)
        losses = LossAnnouncer(reading.configuration, center: center, context: context)
        posts = InwardPosts(center, context: context, time: environment.time) { [losses] in
            losses.lostInwards($0, $1, $2, $3)
        }
        presence = OwnPresence(run: environment.makeToken())
        instance = try Self.instance(reading.configuration, environment, center, posts, losses, presence, context)
        do throws(BusError) {
            connection = try environment.connect(context)
        } catch {
            throw .noBus(error)
        }
        exporter = ObjectExporter(path: BridgeWire.path, interface: interface)
        connection.onMessage = { [unowned self] message in exporter.handle(message, from: connection) }
        // The bridge drains as in a requested stop, so that its state is saved.
        connection.onDisconnect = { [unowned self] in stop { self.ended(.disconnected) } }
    }

    /// Whether the broker has accepted a connection.
    package var isConnected: Bool { instance.isConnected }

    /// Creates a crossing, which does not start yet.
    private static func instance(
        _ configuration: BridgeConfiguration, _ environment: BridgeEnvironment, _ center: CenterLink,
        _ posts: InwardPosts, _ losses: LossAnnouncer, _ presence: OwnPresence, _ context: MainContext
    ) throws(End) -> BridgeInstance {
        posts.host = configuration.origin.host
        do throws(MQTTError) {
            return try BridgeInstance(
                configuration, environment, center: center, posts: posts, losses: losses, presence: presence,
                context: context)
        } catch {
            throw .configuration(error.description)
        }
    }

    /// Connects to the session bus and requests the bridge's name. The bridge runs as soon as the bus has granted the
    /// name.
    package func start() {
        connection.hello { [unowned self] result in
            guard case .success = result else { return ended(.disconnected) }
            connection.requestName(BridgeWire.busName) { [unowned self] result in
                switch result {
                case .success(.acquired): run()
                case .success(.taken): ended(.nameTaken)
                case .failure(let error): ended(.noBus(error))
                }
            }
        }
    }

    /// Begins the exchange, when the name is granted, with the state that an earlier bridge has saved.
    private func run() {
        // The bridge may have been stopped meanwhile.
        guard case .starting = phase else { return }
        phase = .running
        center.start()
        instance.start(with: environment.state.take(), replacing: nil)
    }

    /// Stops the bridge in order. Within its time limits the bridge posts received messages in the session and sends
    /// queued ones to the broker. It saves the remaining ones in a file for the next bridge of the session.
    ///
    /// - Parameter done: called when the bridge has ended, after about nine seconds at most.
    package func stop(_ done: @escaping () -> Void) {
        waiting.append(done)
        switch phase {
        case .starting: didEnd()
        case .running, .reloading:
            phase = .ending
            instance.drain(for: .end) { [self] state in
                center.stop { [self] in
                    save(state())
                    didEnd()
                }
            }
        case .ending: break
        case .ended: didEnd()
        }
    }

    /// Calls the callbacks of ``stop(_:)``.
    private func didEnd() {
        phase = .ended
        let actions = waiting
        waiting = []
        for action in actions { action() }
    }

    /// Saves the state for the next bridge, and logs the number of messages that are lost if this fails.
    private func save(_ state: SavedState) {
        guard !environment.state.save(state) else { return }
        let (queued, taken) = (state.queue.count, state.inbox.count)
        guard queued + taken > 0 else { return }
        Log.warning(
            "lost because the state can't be saved: \(queued) unacknowledged notifications of this session, and "
                + "\(taken) of other hosts")
    }

    /// Reads the configuration again. If the configuration or a file that it names has changed, a new crossing connects
    /// with it. A further call during a reload replaces the configuration of that reload.
    ///
    /// - Throws: the fault of the new configuration; the old one then stays in force.
    package func reload() throws(BusError) {
        let next: BridgeInstance
        let reading = environment.readConfiguration()
        self.reading = reading
        do {
            // The first fault is thrown, and the `catch` block logs it.
            for fault in reading.faults.dropFirst() { Log.warning("configuration refused: \(fault)") }
            if let first = reading.faults.first { throw first }
            let configuration = reading.configuration
            guard configuration.isOn else {
                throw End.configuration("the new configuration has no broker; end the bridge instead")
            }
            // The new configuration is not refused for a fault that the present one has as well.
            let before = FileRemarks(instance.configuration).faults
            if let fault = FileRemarks(configuration).faults.first(where: { !before.contains($0) }) {
                throw End.configuration(fault)
            }
            switch phase {
            // The next crossing has this configuration already, and has not started.
            case .reloading(let due) where due.isUsing(configuration): return
            case .running where instance.isUsing(configuration):
                return Log.notice("neither the configuration nor a file that it names has changed")
            case .starting, .running, .reloading: break
            case .ending, .ended: return
            }
            next = try Self.instance(configuration, environment, center, posts, losses, presence, context)
        } catch {
            let reason = if case End.configuration(let reason) = error { reason } else { "\(error)" }
            Log.warning("configuration refused, the present one stays in force: \(reason)")
            throw BusError(.invalidConfiguration, message: reason)
        }
        let isSame = instance.configuration == next.configuration
        Log.notice(
            isSame
                ? "the password or a certificate has changed: reconnecting"
                : "the configuration has changed: reconnecting")
        switch phase {
        // `run()` starts the next crossing when the name is granted.
        case .starting: instance = next
        case .running, .reloading:
            phase = .reloading(next: next)
            instance.drain(for: .reload(keepsPresence: instance.hasPresence(of: next))) { [self] state in
                begin(after: state())
            }
        case .ending, .ended: break
        }
    }

    /// Starts the next crossing with the state of the present one, which has drained.
    private func begin(after state: SavedState) {
        guard case .reloading(let next) = phase else { return }
        phase = .running
        let last = instance
        instance = next
        next.start(with: state, replacing: last)
    }

    // MARK: D-Bus object

    /// The methods of the bridge's D-Bus object, for `carillon bridge`.
    private var interface: Interface {
        let dictionary = [Interface.Argument("status", "a{sv}", qtType: "QVariantMap")]
        return Interface(
            name: BridgeWire.interface,
            methods: [
                Interface.Method(BridgeWire.getStatus, in: [], out: dictionary) {
                    [unowned self] call throws(BusError) in
                    try call.expectNoDescriptors()
                    var status = instance.status
                    status.files = reading.files
                    // After a refused configuration the remarks on both are reported.
                    var remarks = FileRemarks(instance.configuration)
                    if reading.configuration != instance.configuration {
                        remarks.add(FileRemarks(reading.configuration))
                    }
                    status.errors = reading.faults.map(\.description) + remarks.faults
                    status.warnings = remarks.warnings
                    call.reply { status.append(to: &$0) }
                },
                Interface.Method(
                    BridgeWire.test, in: [], out: [Interface.Argument("result", "a{sv}", qtType: "QVariantMap")]
                ) { [unowned self] call throws(BusError) in
                    try call.expectNoDescriptors()
                    let answer = call.answer
                    tests.append {
                        $0.test { result in
                            switch result {
                            case .success(let time):
                                let microseconds = UInt64(clamping: time.microseconds)
                                answer.reply { BridgeWire.append(roundTrip: microseconds, to: &$0) }
                            case .failure(let failure):
                                answer.reply(with: BusError(name: BridgeWire.notConnected, message: failure.reason))
                            }
                        }
                    }
                    if testTimer == nil { test(waitingUntil: context.now + .seconds(5)) }
                },
                Interface.Method(BridgeWire.reload, in: [], out: []) { [unowned self] call throws(BusError) in
                    try call.expectNoDescriptors()
                    try reload()
                    call.reply()
                }, forgetMethod,
            ], signals: [], properties: [])
    }

    /// Runs the requested tests. If the bridge is about to connect, for example after a reload, the tests wait for the
    /// connection until `end`.
    private func test(waitingUntil end: SuspendingClock.Instant) {
        let isReloading = if case .reloading = phase { true } else { false }
        guard !isReloading && !instance.isAboutToConnect || context.now >= end else {
            testTimer = .once(milliseconds: 100, on: context) { [unowned self] in
                testTimer = nil
                test(waitingUntil: end)
            }
            return
        }
        let due = tests
        tests = []
        for test in due { test(instance) }
    }

    /// The method that removes everything that the broker and the session keep of a host: `carillon bridge forget`. It
    /// refuses an invalid host, this host, and a host that is online. Then the crossing removes the values, and the
    /// reply follows when the broker has answered.
    private var forgetMethod: Interface.Method {
        let arguments = [Interface.Argument("host", "s"), Interface.Argument("user", "s")]
        let result = Interface.Argument("result", "a{sv}", qtType: "QVariantMap")
        return Interface.Method(BridgeWire.forget, in: arguments, out: [result]) {
            [unowned self] call throws(BusError) in
            try call.expectNoDescriptors()
            var reader = call.arguments
            let (host, user): (String, String) = (try reader.read(), try reader.read())
            guard let origin = Origin(host: host, user: user) else {
                throw .invalidArgs("a host and a user have 1 to \(OutsideOrigin.maxBytes) bytes each")
            }
            guard origin != instance.configuration.origin else {
                throw .invalidArgs("\(origin.text) is this host: 'carillon forget' removes its values")
            }
            guard !instance.isOnline(origin) else {
                throw .invalidArgs("\(origin.text) is online: it removes its values itself")
            }
            let answer = call.answer
            instance.forget(origin) { result in
                switch result {
                case .success(let result):
                    answer.reply {
                        BridgeWire.append(
                            removed: UInt64(result.removed.count), refused: result.refused, reason: result.reason,
                            to: &$0)
                    }
                case .failure(let failure):
                    answer.reply(with: BusError(name: BridgeWire.notConnected, message: failure.reason))
                }
            }
        }
    }
}
