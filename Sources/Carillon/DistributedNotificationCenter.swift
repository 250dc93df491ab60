// SPDX-License-Identifier: Apache-2.0
import CarillonClient
import CarillonDBus
import CarillonMainLoop
import CarillonThreadDelivery
import CarillonWire
import Foundation

/// A notification center between the processes of a session, as on macOS. It uses the notification center service on
/// the D-Bus session bus.
///
/// ```swift
/// import Carillon
/// import Foundation
///
/// let center = DistributedNotificationCenter.default()
/// let token = center.addObserver(forName: .init("com.example.Saved"), object: nil, queue: .main) { note in
///     print(note.object ?? "", note.userInfo ?? [:])
/// }
/// center.postNotificationName(.init("com.example.Saved"), object: "report.txt", userInfo: ["bytes": 4711])
/// RunLoop.main.run()
/// ```
///
/// All notifications pass through the service, including those to observers in the posting process (D5). Adding
/// observers and posting do not wait for the service. The bus starts the service on demand, and the library registers
/// the observers at every new service instance (E3).
///
/// Threads: all members may be used from any thread. Observers run on the main thread, in the order in which they were
/// added, unless ``defaultDelivery`` is set otherwise or they were added with a queue or a main context. No lock is
/// held while they run, so they may add observers, remove observers and post.
///
/// A process that forks must not use the center in the child, because the library's thread does not exist there. A
/// process that ends with `exit`, or by returning from `main`, waits for its posts to be sent; see ``exitTimeout``.
public final class DistributedNotificationCenter: Sendable {
    private static let shared = DistributedNotificationCenter(isShared: true)

    /// The center of the session. On macOS it is a method; the spelling `default()` compiles here, too.
    public static var `default`: DistributedNotificationCenter { shared }

    /// Returns this center, so that ``default`` can be called as the method that it is on macOS.
    public func callAsFunction() -> DistributedNotificationCenter { self }

    /// Returns the center of a type. Every type has the center of the session.
    public static func forType(_ type: CenterType) -> DistributedNotificationCenter {
        if type != .localNotificationCenterType {
            Log.warning("there is no notification center of type '\(type.rawValue)'; using the one of the session")
        }
        return shared
    }

    /// The mutable state of the center, under its lock.
    struct State: ~Copyable {
        var observers = ObserverTable()
        /// The delivery targets of operation queues, one for each queue.
        var operationQueues = OperationQueueTargets()
        /// The main contexts of observers. The observers of a context are removed when the context ends.
        var contexts: [ContextDelivery] = []
        var defaultDelivery = DefaultDelivery.mainThread
        /// The suspension that the program set; nil if it set none.
        var suspendedByProgram: Bool?
        /// Whether ``suspendedByProgram`` ends when the application becomes active: it was derived from the activity,
        /// or the program has set ``isActive`` since.
        var isSuspendedByActivity = false
        /// The last suspension that the service reported.
        var suspendedByService = false
        var allowsAutomaticSuspension = true
        /// Whether the application is active, by the program's statement or a toolkit's report.
        var isActive = true
        /// Whether the program stated that the application is inactive. Reports of a toolkit then have no effect.
        var isInactiveByProgram = false
        /// The last activity that a toolkit reported; nil before the first report.
        var toolkitActivity: Bool?
        /// The number of changes of the activity so far. A delayed suspension compares it, and is cancelled by any
        /// later change (S5).
        var activityGeneration: UInt64 = 0
        var connectionState = ConnectionState.connecting
        var transport = Transport.bus
        var statistics = Statistics()
        /// The number of posts that the service is known to have accepted, as of the last flush.
        var flushed: UInt64 = 0
        /// Whether posts have failed, or may be lost, since the last flush that reported it.
        var hasLostPosts = false
        var exitTimeout: TimeInterval = 2
        /// The lost posts that no event has reported.
        var unreportedLostPosts = UnreportedLostPosts()
        /// The number of notifications dropped in this process that no event has reported.
        var unreportedOverflow: UInt64 = 0
        /// The earliest time of the next event about them; nil for any time.
        var nextOverflow: SuspendingClock.Instant?
        /// The value of ``BusLink/progress`` when a flush timed out after ``exitTimeout`` or longer; nil if none has.
        var stalledAt: UInt64?
        var details: Set<Detail> = []
        /// The handlers of events, by the order in which they were added.
        var eventHandlers: [UInt64: @Sendable (Event) -> Void] = [:]
        var lastEventHandler: UInt64 = 0
        /// The last number of an observer that receives retained values and so has a registration of its own.
        var lastRetainedNumber: UInt64 = 0
    }

    let state = Locked(State())
    /// The connection to the bus, with a thread of its own.
    let link: BusLink
    /// The library's thread for observers, used with `ownQueue` as the default delivery.
    private let ownThread = OwnThreadTarget()

    /// Creates a center on a bus other than the session bus, with a connection of its own. Most programs use
    /// ``default``.
    ///
    /// - Parameter busAddress: the address in the syntax of the D-Bus specification, such as
    ///   `unix:path=/run/user/1000/bus`.
    public convenience init(busAddress: String) {
        self.init { () throws(BusError) in busAddress }
    }

    private convenience init(isShared: Bool) {
        self.init { () throws(BusError) in try Connection.sessionBusAddress() }
        // The exit of the process waits until the posts are sent.
        atexit { DistributedNotificationCenter.shared.flushAtExit() }
    }

    private init(address: @escaping BusAddress) {
        let receiver = CenterReceiver()
        link = BusLink(address: address, receiver: receiver)
        receiver.center = self
        // Installed at once, not with the first observer on the main thread: tasks on the main actor often read
        // sequences.
        MainQueueSource.install()
    }

    deinit {
        for context in state.withLock({ $0.contexts }) { context.unfollow(self) }
    }

    // MARK: Delivery

    /// The thread or queue of observers that are added without a queue. A change applies to observers that are added
    /// later.
    public var defaultDelivery: DefaultDelivery {
        get { state.withLock { $0.defaultDelivery } }
        set { state.withLock { $0.defaultDelivery = newValue } }
    }

    /// Returns the delivery target for a queue; nil stands for the default delivery.
    func target(for queue: OperationQueue?) -> any DeliveryTarget {
        if let queue { return state.withLock { $0.operationQueues.target(for: queue) } }
        return switch defaultDelivery {
        case .mainThread: MainThreadTarget.shared
        case .ownQueue: ownThread
        }
    }

    // MARK: Suspension

    /// Whether this program is suspended (S1), by the last value that the program set. Without such a value, the last
    /// notice of the service applies.
    ///
    /// While the program is suspended, each observer's ``SuspensionBehavior`` decides on its notifications. Setting the
    /// property to false delivers the held notifications in order, before any newer one. The library sends the
    /// program's value again to every new service instance. ``followActivity()`` removes the program's value.
    public var suspended: Bool {
        get { state.withLock { $0.suspendedByProgram ?? $0.suspendedByService } }
        set {
            // Under one lock, so that the service receives the values of several threads in the order in which they
            // take effect here.
            state.withLock { state in
                (state.suspendedByProgram, state.isSuspendedByActivity) = (newValue, false)
                submit(.suspend(newValue))
            }
        }
    }

    /// Whether the service may suspend this program while its application is not active (A2).
    ///
    /// A program that needs every notification at once sets it to false before it adds the first observer. A single
    /// observer that was added while the property was false keeps the whole program from being suspended, until it is
    /// removed.
    public var allowsAutomaticSuspension: Bool {
        get { state.withLock { $0.allowsAutomaticSuspension } }
        set { state.withLock { $0.allowsAutomaticSuspension = newValue } }
    }

    // MARK: State and statistics

    /// The state of the center's connection to the bus and the service, as far as the center knows it.
    public var connectionState: ConnectionState { state.withLock { $0.connectionState } }

    /// The counts of notifications, posts and losses so far.
    public var statistics: Statistics { state.withLock { $0.statistics } }

    /// Changes the statistics under the lock.
    func count(_ change: (inout Statistics) -> Void) {
        state.withLock { change(&$0.statistics) }
    }

    /// Submits a request other than a post. Only posts have a limit, so this never fails.
    func submit(_ request: Request) {
        try? link.submit(request)
    }
}
