// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonDBus
import CarillonMainLoop
import CarillonWire

/// The notification center on a bus: its connections, the ownership of its name, and the object behind them.
///
/// When the bus closes the connection, the service connects again with all its state (E5): the bus may have closed it
/// for a reason of its own, and all clients are still present. The state is discarded only with the bus: when nothing
/// listens at its address any more, or another bus does.
///
/// Threads: all members on the thread that runs `context`.
public final class Service {
    /// The reason for which a service ended by itself.
    public enum End: Error {
        /// No bus listens at the address, or it refused the connection.
        case noBus(BusError)
        /// Another process has the service's name.
        case nameTaken
        /// The bus took the service's name away.
        case nameLost
        /// The bus closed the connection, and is gone.
        case busGone
        /// The bus closed the connection, and no new connection is possible. The state stays for a later process.
        case disconnected
    }

    private let machine: Machine
    private let context: MainContext
    private let onEnd: (End) -> Void
    private var link: ServiceLink?
    /// The handover state of the link that ended, until the next link has it.
    private var handoverState: HandoverState?
    /// An event source that releases a link that has ended, after its callbacks have returned.
    private var release: EventSource?
    /// The next attempt.
    private var retry: EventSource?
    /// Whether a reload was requested between two connections.
    private var isReloadDue = false
    /// The number of attempts since the service last served for ``goodTime``.
    private var attempts = 0
    private var servingSince: SuspendingClock.Instant?
    private var hasEnded = false

    /// The number of attempts to connect: about 18 s, with growing pauses. The service manager's restart comes later.
    private static let maxAttempts = 12
    /// The number of attempts while another connection has the name: about 3 s. After that another process has it, and
    /// waits for the state.
    private static let maxAttemptsForName = 6
    private static let longestPause: UInt32 = 3000
    /// The time after which a link counts as stable.
    private static let goodTime = Duration.seconds(30)

    /// Connects to the bus at `address`. Call ``start()`` next.
    ///
    /// - Parameter onEnd: called once, from the loop, when the service can't go on.
    /// - Throws: ``End/noBus(_:)``.
    public convenience init(
        address: String, context: MainContext = .default, onEnd: @escaping (End) -> Void
    ) throws(End) {
        try self.init(on: .own(address: address), context: context, onEnd: onEnd)
    }

    /// Connects on a machine that may be simulated (E7).
    package init(on machine: Machine, context: MainContext, onEnd: @escaping (End) -> Void) throws(End) {
        self.machine = machine
        self.context = context
        self.onEnd = onEnd
        do throws(BusError) {
            try connect()
        } catch {
            throw .noBus(error)
        }
    }

    /// Registers with the bus, takes the service's name, takes up the state of an earlier process, and serves.
    public func start() {
        link?.start()
    }

    /// Leaves the bus in order, and writes the state. Call before the process ends by its own decision.
    ///
    /// - Parameter completion: called once, from the loop, within a few seconds. Then the process may end.
    public func stop(_ completion: @escaping () -> Void) {
        guard !hasEnded else { return }
        hasEnded = true
        guard let link else { return completion() }
        link.stop(completion)
    }

    /// Reads the configuration files again. With a fault in one, which is logged, everything stays as it was.
    public func reloadConfiguration() {
        guard let link else { return isReloadDue = true }
        link.object.reloadConfiguration()
    }

    /// The state machine behind the present connection, for tests.
    package var center: DistributedCenter? { link?.object.center }
    /// Whether queued notifications would be lost with the process, because the state has no space for them, for
    /// simulations. Between two connections the state belongs to ``handoverState``.
    package var isWithoutQueues: Bool {
        (handoverState.map { $0.store?.isWithoutQueues } ?? link?.object.isWithoutQueues) ?? false
    }

    /// Takes a report of a client's activity (A1), in a simulation without a source.
    package func report(_ activity: Activity, of client: ClientName) { link?.object.report(activity, of: client) }

    /// The numbers of table entries per client besides the state machine, for simulations in which all clients have
    /// left.
    package var kept: [(what: String, count: Int)] { link?.object.kept ?? [] }

    /// The other sessions, as in the property `Sessions`, for simulations.
    package var shownSessions: [String: PropertyList] { link?.object.shownSessions ?? [:] }

    /// The retained values that are sent to other sessions, for simulations.
    package var valuesForSessions: [ExportedNotification] { link?.object.valuesForSessions ?? [] }

    private func connect() throws(BusError) {
        let link = try ServiceLink(on: machine, context: context, handoverState: handoverState) {
            [unowned self] reason in
            linkEnded(reason)
        }
        link.onServing = { [unowned self] in
            if attempts > 0 { Log.notice("reconnected to the bus with the full state") }
            handoverState = nil
            servingSince = context.now
        }
        self.link = link
        if isReloadDue {
            isReloadDue = false
            link.object.reloadConfiguration()
        }
    }

    private func linkEnded(_ reason: ServiceLink.End) {
        let left = link?.handOver()
        handoverState = left ?? handoverState
        switch reason {
        case .otherBus: endWithBus()
        #if CARILLON_PLANTED
            case .disconnected where PlantedFault.strikes(.stateErased): endWithBus()
        #endif
        case .nameLost: end(.nameLost)
        case .refused(let error) where handoverState == nil: end(.noBus(error))
        case .disconnected where handoverState == nil: end(.disconnected)
        // The service's own former connection may have the name for another moment.
        case .nameTaken where attempts == 0: end(.nameTaken)
        case .nameTaken where attempts > Self.maxAttemptsForName: end(.nameTaken)
        case .disconnected, .refused, .nameTaken:
            if case .disconnected = reason, attempts == 0 {
                Log.notice("the bus closed the connection; connecting again", ["CARILLON_REASON": "disconnected"])
            }
            connectLater()
        }
    }

    private func connectLater() {
        if let since = servingSince, context.now - since > Self.goodTime { attempts = 0 }
        servingSince = nil
        guard attempts < Self.maxAttempts else { return end(.disconnected) }
        let pause = attempts == 0 ? 0 : min(UInt32(25) << UInt32(attempts), Self.longestPause)
        attempts += 1
        // A connection of the link may still exist, and state changes made on it would not be kept.
        release = .once(milliseconds: 0, on: context, priority: .of(.control)) { [unowned self] in link = nil }
        retry = .once(milliseconds: pause, on: context, priority: .of(.control)) { [unowned self] in connectAgain() }
    }

    private func connectAgain() {
        // Closes the link's connections: as long as the bus has the old one, the name is taken.
        release = nil
        link = nil
        do throws(BusError) {
            try connect()
            link?.start()
        } catch {
            if error.meansNobodyListens { endWithBus() } else { connectLater() }
        }
    }

    /// Removes the state, as no client is left that it could serve, and ends.
    private func endWithBus() {
        handoverState?.store?.remove()
        end(.busGone)
    }

    private func end(_ reason: End) {
        guard !hasEnded else { return }
        hasEnded = true
        onEnd(reason)
    }
}
