// SPDX-License-Identifier: Apache-2.0
import CarillonClient
import CarillonDBus
import CarillonMainLoop
import CarillonThreadDelivery
import CarillonWire
import Foundation

/// Notifications between the processes of a session, as on macOS, through the notification center on the D-Bus session
/// bus.
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
/// Notifications go through the service also to observers in the posting process (D5). Nothing here waits for the
/// service: it is started by the bus when it is needed, and observers are registered whenever one comes (E3).
///
/// Threads: all members may be used from any thread. Observers run on the main thread, in the order in which they
/// were added, unless they ask for a queue; no lock is held while they run, so they may add, remove and post.
///
/// A process that forks must not use the center in the child, where the library's thread does not run. A process
/// that ends with `exit`, or by returning from `main`, waits for its posts to be sent; see ``exitTimeout``.
public final class DistributedNotificationCenter: Sendable {
    private static let shared = DistributedNotificationCenter(isShared: true)

    /// The center of the session. On macOS it is a method, and so it may be written here, too: `default()`.
    public static var `default`: DistributedNotificationCenter { shared }

    /// This center. So ``default`` can be written as the method that it is on macOS.
    public func callAsFunction() -> DistributedNotificationCenter { self }

    /// The center of a type; every type has the center of the session so far.
    public static func forType(_ type: CenterType) -> DistributedNotificationCenter {
        if type != .localNotificationCenterType {
            Log.warning("there is no notification center of type '\(type.rawValue)'; using the one of the session")
        }
        return shared
    }

    struct State: ~Copyable {
        var observers = ObserverTable()
        var operationQueues = OperationQueueTargets()
        /// The main contexts of observers, whose end is theirs.
        var contexts: [ContextDelivery] = []
        var defaultDelivery = DefaultDelivery.mainThread
        var suspendedByProgram: Bool?
        /// Whether that came of the program's activity, and ends with it.
        var isSuspendedByActivity = false
        var suspendedByService = false
        var allowsAutomaticSuspension = true
        var isActive = true
        var isInactiveByProgram = false
        /// The last report of a toolkit; nil where none is followed.
        var toolkitActivity: Bool?
        /// Counts changes of the activity (S5).
        var activityGeneration: UInt64 = 0
        var connectionState = ConnectionState.connecting
        var transport = Transport.bus
        var statistics = Statistics()
        /// How many of the posts are known to have been taken by the service.
        var flushed: UInt64 = 0
        /// Whether posts have failed, or may be lost, that left the process since the last flush that said so.
        var hasLostPosts = false
        var exitTimeout: TimeInterval = 2
        /// What was lost for want of room, and not told in an event.
        var unannouncedPosts = UnannouncedPosts()
        var untoldOverflow: UInt64 = 0
        /// When the next event of such may be told; nil for any time.
        var nextOverflow: SuspendingClock.Instant?
        /// ``BusLink/progress`` when the last flush had waited in vain; nil when none has.
        var stalledAt: UInt64?
        var details: Set<Detail> = []
        var eventHandlers: [UInt64: @Sendable (Event) -> Void] = [:]
        var lastEventHandler: UInt64 = 0
        var lastRetainedKey: UInt64 = 0
    }

    let state = Locked(State())
    let link: BusLink
    private let ownThread = OwnThreadTarget()

    /// A center on another bus than the session's, with a connection of its own. Most programs want ``default``.
    ///
    /// - Parameter busAddress: in the syntax of the D-Bus specification, such as `unix:path=/run/user/1000/bus`.
    public convenience init(busAddress: String) {
        self.init { () throws(BusError) in busAddress }
    }

    private convenience init(isShared: Bool) {
        self.init { () throws(BusError) in try Connection.sessionBusAddress() }
        atexit { DistributedNotificationCenter.shared.flushAtExit() }
    }

    private init(address: @escaping BusAddress) {
        let receiver = CenterReceiver()
        link = BusLink(address: address, receiver: receiver)
        receiver.center = self
        // From the start, not only from the first observer that runs on the main thread: sequences are often read by
        // a task on the main actor.
        MainQueueSource.install()
    }

    deinit {
        for context in state.withLock({ $0.contexts }) { context.unfollow(self) }
    }

    // MARK: Where observers run

    /// Where observers run that did not ask for a queue. Holds for observers that are added from now on.
    public var defaultDelivery: DefaultDelivery {
        get { state.withLock { $0.defaultDelivery } }
        set { state.withLock { $0.defaultDelivery = newValue } }
    }

    func target(for queue: OperationQueue?) -> any DeliveryTarget {
        if let queue { return state.withLock { $0.operationQueues.target(for: queue) } }
        return switch defaultDelivery {
        case .mainThread: MainThreadTarget.shared
        case .ownQueue: ownThread
        }
    }

    // MARK: Suspension

    /// Whether this program is suspended (S1): what it said last, or what the service said while it left that to its
    /// activity.
    ///
    /// While it is suspended each observer's ``SuspensionBehavior`` decides what becomes of its notifications. Setting
    /// it to false delivers what is held, in order, before anything newer. Set values are told again to every service
    /// that comes.
    public var suspended: Bool {
        get { state.withLock { $0.suspendedByProgram ?? $0.suspendedByService } }
        set {
            // Together, so that what threads say at once reaches the service in the order in which it holds here.
            state.withLock { state in
                (state.suspendedByProgram, state.isSuspendedByActivity) = (newValue, false)
                submit(.suspend(newValue))
            }
        }
    }

    /// Whether the service may suspend this program while its application is not active (A2). Set it to false before the
    /// first observer is added, in a program that shall hear everything at once: one observer that was added while it was
    /// false keeps the whole program from being suspended, until it is removed.
    public var allowsAutomaticSuspension: Bool {
        get { state.withLock { $0.allowsAutomaticSuspension } }
        set { state.withLock { $0.allowsAutomaticSuspension = newValue } }
    }

    // MARK: What it knows about itself

    /// Where the center stands with the bus and the service, as far as it knows.
    public var connectionState: ConnectionState { state.withLock { $0.connectionState } }

    /// What happened so far.
    public var statistics: Statistics { state.withLock { $0.statistics } }

    func count(_ change: (inout Statistics) -> Void) {
        state.withLock { change(&$0.statistics) }
    }

    /// For requests that have no bound.
    func submit(_ request: Request) {
        try? link.submit(request)
    }
}
