// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonDBus
import CarillonMainLoop
import CarillonWire

/// The notification center on a bus: a connection, the service's name on it, and the object behind both.
///
/// When the bus closes the connection the service connects again, with all that it has (E5): the bus may have done it
/// for a reason of its own, and every client is still there. The state goes with the bus only: when nothing listens at
/// its address any more, or another bus does.
///
/// Threads: all members on the thread that runs `context`.
public final class Service {
    /// Why a service ended by itself.
    public enum End: Error {
        /// There is no bus at the address, or it refused the connection.
        case noBus(BusError)
        /// Another process has the service's name.
        case nameTaken
        /// The bus took the service's name away.
        case nameLost
        /// The bus closed the connection, and is gone.
        case busGone
        /// The bus closed the connection, and there is no other to be had. The state stays for a later process.
        case disconnected
    }

    private let machine: Machine
    private let context: MainContext
    private let onEnd: (End) -> Void
    private var link: ServiceLink?
    /// What the link before had, until the next one has it.
    private var heritage: HandoverState?
    /// Lets go of a link that has ended, when its callbacks have returned.
    private var release: EventSource?
    /// The next attempt.
    private var retry: EventSource?
    /// Attempts since the service last served for long.
    /// Whether that was asked for between two connections.
    private var isReloadDue = false
    private var attempts = 0
    private var servingSince: SuspendingClock.Instant?
    private var hasEnded = false

    /// About a quarter of a minute, as the pauses grow. What starts the service anew comes after that.
    private static let maxAttempts = 12
    /// Less than two seconds: then another process has the name, and waits for the state.
    private static let maxAttemptsForName = 6
    private static let longestPause: UInt32 = 3000
    /// A link that lasted so long was a good one.
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

    /// The same on a machine that may be simulated (E7).
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

    /// Leaves the bus, and its state in order. Call before the process ends by its own decision.
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

    /// The state machine behind the present connection, to look at.
    package var center: DistributedCenter? { link?.object.center }
    /// Whether what waits would be lost with the process, for want of room in the state: for a simulation.
    /// Between two connections the state is not the link's.
    package var isWithoutQueues: Bool {
        (heritage.map { $0.store?.isWithoutQueues } ?? link?.object.isWithoutQueues) ?? false
    }

    /// What a source of activity would report (A1), in a simulation that has none.
    package func report(_ activity: Activity, of client: ClientName) { link?.object.report(activity, of: client) }

    /// The entries that are kept for each client besides the state machine: for a simulation in which everybody has left.
    package var kept: [(what: String, count: Int)] { link?.object.kept ?? [] }

    /// The other sessions, as in the property `Sessions`: for a simulation.
    package var shownSessions: [String: PropertyList] { link?.object.shownSessions ?? [:] }

    /// The values that other sessions have as well: for a simulation.
    package var valuesForSessions: [ExportedNotification] { link?.object.valuesForSessions ?? [] }

    private func connect() throws(BusError) {
        let link = try ServiceLink(on: machine, context: context, heritage: heritage) { [unowned self] reason in
            linkEnded(reason)
        }
        link.onServing = { [unowned self] in
            if attempts > 0 { Log.notice("connected to the bus again, with all that was there") }
            heritage = nil
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
        heritage = left ?? heritage
        switch reason {
        case .otherBus: endWithBus()
        #if CARILLON_PLANTED
            case .disconnected where PlantedFault.strikes(.stateErased): endWithBus()
        #endif
        case .nameLost: end(.nameLost)
        case .refused(let error) where heritage == nil: end(.noBus(error))
        case .disconnected where heritage == nil: end(.disconnected)
        // Our own former connection may have it for another moment.
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
        // One of its connections may still be there, and what is served on it from now on would not be kept.
        release = .once(milliseconds: 0, on: context, priority: .of(.control)) { [unowned self] in link = nil }
        retry = .once(milliseconds: pause, on: context, priority: .of(.control)) { [unowned self] in connectAgain() }
    }

    private func connectAgain() {
        // Ends its connections: as long as the bus has the old one, the name is taken.
        release = nil
        link = nil
        do throws(BusError) {
            try connect()
            link?.start()
        } catch {
            if error.meansNobodyListens { endWithBus() } else { connectLater() }
        }
    }

    /// Nobody is left for whom the state could be kept.
    private func endWithBus() {
        heritage?.store?.remove()
        end(.busGone)
    }

    private func end(_ reason: End) {
        guard !hasEnded else { return }
        hasEnded = true
        onEnd(reason)
    }
}
