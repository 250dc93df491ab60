// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonDBus
import CarillonMainLoop
import CarillonWire

/// The notification service on one bus, for as long as the process runs: the program `carillond` makes one and starts
/// it.
///
/// A ``ServiceLink`` is one connection to the bus, with the service's name and the D-Bus object. When the bus closes it
/// and still runs, all clients are still present. The service then makes a new link, with growing pauses between
/// attempts, and hands its state over (E5). It discards the state only when the bus is gone: nothing listens at its
/// address, or another bus does.
///
/// Threads: all members on the thread that runs `context`.
public final class Service {
    /// The reason why a service ended by itself.
    public enum End: Error {
        /// No bus listens at the address, or it refused the connection.
        case noBus(BusError)
        /// Another process has the service's name.
        case nameTaken
        /// The bus took the service's name away.
        case nameLost
        /// The bus closed the connection, and is gone.
        case busGone
        /// The bus closed the connection, and all attempts to connect again failed. The state on disk stays for a later
        /// process.
        case disconnected
    }

    private let machine: Machine
    private let context: MainContext
    private let onEnd: (End) -> Void
    /// The present link; nil between two connections.
    private var link: ServiceLink?
    /// The state of the link that ended, until the next link serves.
    private var handoverState: HandoverState?
    /// The timer that releases a link that has ended. The link itself reports its end, so it must outlive that call.
    private var release: EventSource?
    /// The timer of the next attempt to connect.
    private var retry: EventSource?
    /// Whether a reload of the configuration was requested between two connections.
    private var isReloadDue = false
    /// The number of attempts to connect again. It starts anew after the service has served for ``goodTime``.
    private var attempts = 0
    /// The time at which the present link began to serve.
    private var servingSince: SuspendingClock.Instant?
    private var hasEnded = false

    /// The maximum number of attempts to connect again. With their pauses they take about 18 s; then the process ends,
    /// and the service manager may start another.
    private static let maxAttempts = 12
    /// The maximum number of attempts while another connection has the name: about 3 s. A name that is taken for longer
    /// belongs to another process, which waits for the state.
    private static let maxAttemptsForName = 6
    /// The maximum pause between two attempts, in milliseconds.
    private static let longestPause: UInt32 = 3000
    /// The serving time after which a link counts as stable.
    private static let goodTime = Duration.seconds(30)

    /// Connects to the bus at `address`. Call ``start()`` next.
    ///
    /// - Parameter onEnd: called once, from the loop, when the service ends by itself.
    /// - Throws: ``End/noBus(_:)``.
    public convenience init(
        address: String, context: MainContext = .default, onEnd: @escaping (End) -> Void
    ) throws(End) {
        try self.init(on: .own(address: address), context: context, onEnd: onEnd)
    }

    /// Connects to the bus of a machine, which may be simulated (E7).
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

    /// Registers with the bus, takes the service's name, restores the state of an earlier process, and serves.
    public func start() {
        link?.start()
    }

    /// Stops serving, sends the messages in flight, and writes the state. Call before the process ends by its own
    /// decision.
    ///
    /// - Parameter completion: called once, from the loop, within a few seconds. Then the process may end.
    public func stop(_ completion: @escaping () -> Void) {
        guard !hasEnded else { return }
        hasEnded = true
        guard let link else { return completion() }
        link.stop(completion)
    }

    /// Reads the configuration files again. If a file has a fault, the fault is logged and the old configuration stays.
    public func reloadConfiguration() {
        guard let link else { return isReloadDue = true }
        link.object.reloadConfiguration()
    }

    /// The core behind the present connection, for tests.
    package var center: DistributedCenter? { link?.object.center }
    /// Whether a crash would lose queued notifications, because the recovery log has no space for them. For
    /// simulations.
    package var isWithoutQueues: Bool {
        (handoverState.map { $0.store?.isWithoutQueues } ?? link?.object.isWithoutQueues) ?? false
    }

    /// Sets the activity of a client (A1), in a simulation, which has no desktop that would report it.
    package func report(_ activity: Activity, of client: ClientName) { link?.object.report(activity, of: client) }

    /// The numbers of entries in the tables outside the core. A simulation checks that they are 0 when all clients have
    /// left.
    package var kept: [(what: String, count: Int)] { link?.object.kept ?? [] }

    /// The other sessions, as in the property `Sessions`, for simulations.
    package var shownSessions: [String: PropertyList] { link?.object.shownSessions ?? [:] }

    /// The retained values that are sent to other sessions, for simulations.
    package var valuesForSessions: [ExportedNotification] { link?.object.valuesForSessions ?? [] }

    /// Makes a link, which restores ``handoverState`` if there is one.
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

    /// Handles the end of a link: ends the service, or connects again.
    private func linkEnded(_ reason: ServiceLink.End) {
        // A link that had not restored the state leaves the earlier handover state as it is.
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
        // At the first connection the owner of the name is another process. After a reconnection it may be the
        // service's own former connection, for another moment.
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
        // The other connection of the link may still be open. Its events would change a state that is no longer kept.
        release = .once(milliseconds: 0, on: context, priority: .of(.control)) { [unowned self] in link = nil }
        retry = .once(milliseconds: pause, on: context, priority: .of(.control)) { [unowned self] in connectAgain() }
    }

    private func connectAgain() {
        // This closes the connections of the old link. As long as one is open, the bus may regard the name as taken.
        release = nil
        link = nil
        do throws(BusError) {
            try connect()
            link?.start()
        } catch {
            if error.meansNobodyListens { endWithBus() } else { connectLater() }
        }
    }

    /// Ends the service and removes the state, because all clients are gone with the bus.
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
