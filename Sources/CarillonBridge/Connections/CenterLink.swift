// SPDX-License-Identifier: Apache-2.0
import CarillonClient
import CarillonCollections
import CarillonCore
import CarillonDBus
import CarillonMainLoop
import CarillonWire

/// The receiver of the events of a ``CenterLink``: ``BridgeInstance``. Called on the loop's thread.
protocol CenterLinkDelegate: AnyObject {
    /// Called for each notification of the session for which the bridge is registered.
    func arrived(_ notification: ArrivedNotification)
    /// Called for notifications that did not reach the bridge, with their number.
    func missed(_ count: UInt64)
    /// Called when a notification service has appeared or disappeared.
    func serviceChanged(isThere: Bool)
    /// Called when the names that observers want have changed.
    func interestChanged()
    /// Called when retained values of the service have ended.
    func valuesRemoved()
}

/// The bridge's connection to the notification service of its session, as an ordinary client (F1, E3). It registers the
/// bridge's observers, posts notifications and calls methods. It lives as long as the bridge, so that a reload misses
/// no notification.
final class CenterLink: @unchecked Sendable {
    // Sendable: the bridge has one thread, on which everything here runs.

    weak var delegate: (any CenterLinkDelegate)?
    /// The requests to the service, in order.
    private let outbox = SharedOutbox()
    private let context: MainContext
    /// The connection to one service after the other.
    private var session: ServiceSession!
    /// The registered observers for exported names.
    private var observers = BridgeObservers()
    /// Whether the service is connected.
    private(set) var isThere = false
    /// The reason why some notifications can't be exported, for the status; nil for none.
    private(set) var refusal: String?
    /// The timer of ``askSoon()`` and ``stop(_:)``.
    private var timer: EventSource?
    /// The completions of posts that did not fit into the outbox. ``fullTimer`` calls them with the error.
    private var full: [@Sendable (Result<Int, ServiceError>) -> Void] = []
    /// Runs before these calls.
    private var fullTimer: EventSource?
    /// Whether the link was started and not stopped.
    private var isStarted = false
    /// The number of elements at the beginning of ``laterDetails`` that the present service does not know, because it
    /// is of an earlier version.
    private var missingDetails = 0

    /// Creates a link that connects when it is started.
    init(_ environment: BridgeEnvironment, context: MainContext) {
        self.context = context
        session = ServiceSession(
            bus: environment.sessionBus, wish: TransportPreference(ofUser: .ofEnvironment), outbox: outbox,
            receiver: self)
    }

    /// The details that the bridge needs with each notification.
    private static let details: Details = [.host, .user, .retained, .time, .kept, .expiry]
    /// The details that later versions of the service have added, the newest first.
    private static let laterDetails: [Details] = [.allSessions, .whileConnected]

    /// Whether the service supports notifications for all sessions of the machine (G1).
    var knowsAllSessions: Bool { missingDetails == 0 }

    /// Requests the details from the service.
    private func askForDetails() {
        outbox.add(.details(Self.laterDetails.dropFirst(missingDetails).reduce(Self.details) { $0.union($1) }))
    }

    /// Connects to the service.
    func start() {
        askForDetails()
        isStarted = true
        session.start()
    }

    /// Observes the exported names, with their retained values, and no others.
    ///
    /// For an exact name the bridge is an ordinary observer, which posters see as a receiver. The service does not
    /// match prefixes. For a prefix or `*` the bridge therefore observes every name as a monitor, which counts neither
    /// as interest nor as a receiver.
    ///
    /// All observers are delivered immediately, so that a suspension of the bridge delays nothing.
    func export(_ patterns: [NamePattern]) {
        var wanted: Set<RegistrationKey> = []
        var options = ObserverOptions(
            suspensionBehavior: .deliverImmediately, automaticSuspension: false, wantsRetained: true)
        for case .exactly(let name) in Set(patterns) {
            wanted.insert(RegistrationKey(name: ExactText(name), object: nil, options: options))
        }
        let isExact = patterns.allSatisfy { if case .exactly = $0 { true } else { false } }
        if !isExact {
            // Without effect: the service delivers to each monitor immediately. `coalesce` is the option's default.
            options.suspensionBehavior = .coalesce
            options.isMonitor = true
            wanted.insert(RegistrationKey(name: nil, object: nil, options: options))
        }
        let (ended, begun) = observers.want(wanted)
        change(ended, begun)
        // A refused observer is reported again.
        refusal = nil
        session.pump()
    }

    /// Sends an empty request after two seconds, by which the client connects to the service again.
    private func askSoon() {
        timer = .once(milliseconds: 2_000, on: context) { [unowned self] in
            timer = nil
            submit(.barrier { _ in })
        }
    }

    /// Unregisters and registers observers.
    private func change(_ ended: [RegistrationKey], _ begun: [RegistrationKey] = []) {
        for registered in ended { outbox.add(.unregister(registered)) }
        for registered in begun { outbox.add(.register(registered)) }
    }

    /// Has the service send its retained values again, by new observers. No notification is missed meanwhile: the
    /// earlier observers are unregistered only when all notifications queued for them have arrived.
    ///
    /// - Parameter done: receives whether these have arrived; false if the service has ended meanwhile or needs too
    ///   long. The earlier observers then stay until the next replay, because the next service may send notifications
    ///   for them alone.
    func replayValues(_ done: @escaping (Bool) -> Void) {
        // `mark` is the last registration number before the replay. It is no marker (``Marker``).
        let (ended, begun, mark) = observers.replay()
        change(ended, begun)
        whenCaughtUp(within: Self.patience) { [weak self] hasArrived in
            guard let self else { return }
            if hasArrived { change(observers.caughtUp(behind: mark)) }
            session.pump()
            done(hasArrived)
        }
    }

    /// Unregisters all observers as soon as all earlier notifications have arrived.
    ///
    /// - Parameters:
    ///   - milliseconds: the time limit for these notifications.
    ///   - done: receives the number of notifications that have not arrived; nil if it is unknown.
    func withdraw(within milliseconds: UInt32, _ done: @escaping (UInt64?) -> Void) {
        guard isThere, !observers.isEmpty else { return done(0) }
        whenCaughtUp(within: milliseconds) { [self] hasArrived in
            guard !hasArrived else { return unregisterAll { done(0) } }
            // The service drops the notifications that are still queued, when their observers are unregistered.
            let box = MainThreadClosure(done)
            ask(ListClients()) { [self] result in
                let own = session.uniqueName
                let waiting = (try? result.get())?.first { $0.name == own }.map { UInt64($0.queued) }
                unregisterAll { box.run(waiting) }
            }
        }
    }

    /// Unregisters all observers, and waits until the service has done so.
    private func unregisterAll(_ done: @escaping () -> Void) {
        change(observers.removeAll())
        let box = MainThreadClosure<Void>(done)
        submit(.barrier { _ in box.run(()) })
    }

    /// The name of the markers: notifications that the bridge posts to itself behind all notifications queued for it.
    /// When a marker arrives, all earlier ones have arrived.
    private static let markerName = "org.carillon.Bridge.Mark"
    /// The time limit for the marker of a replay, in milliseconds. All notifications queued before the marker have to
    /// arrive first. The limit also ends the wait for a marker that the service dropped.
    private static let patience: UInt32 = 600_000
    /// The pause before a marker that the service has not accepted is posted again, in milliseconds.
    private static let pauseOfMarkers: UInt32 = 5_000

    /// A marker that has not arrived. Each has its own observer, for the marker's object alone.
    private struct Marker {
        /// The observer that receives the marker.
        let key: RegistrationKey
        /// The time limit.
        let timer: EventSource
        /// The timer of the next attempt to post the marker.
        var retry: EventSource?
        let done: (Bool) -> Void
    }

    /// The markers that have not arrived, by their objects.
    private var markers: [String: Marker] = [:]

    /// Waits until all notifications that the service now has queued for the bridge have arrived.
    ///
    /// - Parameter done: receives whether they have arrived within the time limit.
    private func whenCaughtUp(within milliseconds: UInt32, _ done: @escaping (Bool) -> Void) {
        let number = observers.nextNumber()
        let object = "\(number)"
        let options = ObserverOptions(suspensionBehavior: .deliverImmediately, automaticSuspension: false)
        let key = RegistrationKey(
            name: ExactText(Self.markerName), object: ExactText(object), options: options, number: number)
        let timer = EventSource.once(milliseconds: milliseconds, on: context) { [unowned self] in
            markerArrived(object, isInTime: false)
        }
        markers[object] = Marker(key: key, timer: timer, done: done)
        outbox.add(.register(key))
        postMarker(object)
    }

    /// Posts a marker.
    private func postMarker(_ object: String) {
        announce(Self.markerName, about: object, [:]) { [weak self] isTaken in
            guard let self, !isTaken else { return }
            markers[object]?.retry = .once(milliseconds: Self.pauseOfMarkers, on: context) { [unowned self] in
                postMarker(object)
            }
        }
    }

    /// Ends the wait for a marker.
    private func markerArrived(_ object: String, isInTime: Bool) {
        guard let mark = markers.removeValue(forKey: object) else { return }
        outbox.add(.unregister(mark.key))
        session.pump()
        mark.done(isInTime)
    }

    /// Disconnects from the service when all requests are sent, or after one second.
    func stop(_ done: @escaping () -> Void) {
        isStarted = false
        markers = [:]
        stop(attempts: isThere ? 50 : 0, done)
    }

    /// Checks every 20 ms, up to a number of attempts, whether all requests are sent.
    private func stop(attempts: Int, _ done: @escaping () -> Void) {
        guard attempts > 0, isThere, !session.mayStop() else {
            timer = nil
            isThere = false
            session.stop()
            return done()
        }
        timer = .once(milliseconds: 20, on: context) { [unowned self] in stop(attempts: attempts - 1, done) }
    }

    /// Sends a request to the service, or queues it while there is none.
    func submit(_ request: Request) {
        outbox.add(request)
        session.pump()
    }

    /// Posts a notification of the bridge itself.
    ///
    /// - Parameters:
    ///   - object: its object; empty for none.
    ///   - isValue: whether the service retains it until the bridge leaves the bus.
    func announce(_ name: String, about object: String = "", _ userInfo: [String: PropertyList], isValue: Bool = false)
    {
        var options = PostOptions()
        if isValue { options.retention = Retention(whileConnected: true) }
        do throws(CenterError) {
            submit(.post(try OutgoingPost(name: name, object: object, userInfo: userInfo, options: options)))
        } catch {
            Log.warning("\(name) can't be posted: \(error)")
        }
    }

    /// Posts a notification of the bridge itself and reports the outcome.
    ///
    /// - Parameter outcome: receives whether the service has accepted it. Never called before this returns; not called
    ///   for an invalid notification.
    func announce(
        _ name: String, about object: String, _ userInfo: [String: PropertyList],
        outcome: @escaping (_ isTaken: Bool) -> Void
    ) {
        let box = MainThreadClosure(outcome)
        do throws(CenterError) {
            let post = try PostCall(name: name, object: object, userInfo: userInfo)
            try self.post(post) { result in box.run((try? result.get()) != nil) }
        } catch {
            Log.warning("\(name) can't be posted: \(error)")
        }
    }
}

/// A closure for the bridge's thread, for an interface that requires a closure that any thread may call.
private final class MainThreadClosure<Argument>: @unchecked Sendable {
    // Sendable: the bridge has one thread.
    let run: (Argument) -> Void

    init(_ run: @escaping (Argument) -> Void) {
        self.run = run
    }
}

/// Method calls to the service.
extension CenterLink: CallableService {
    func ask<Method: CenterMethod>(
        _ method: Method, completion: @escaping @Sendable (Result<Method.Reply, ServiceError>) -> Void
    ) {
        submit(.call(method, completion: completion))
    }
}

/// Posts of other hosts' messages.
extension CenterLink: PostingService {
    func post(
        _ post: PostCall, completion: @escaping @Sendable (Result<Int, ServiceError>) -> Void
    ) throws(CenterError) {
        let post = try OutgoingPost(post, completion: completion)
        do throws(ServiceError) {
            try outbox.append(.post(post))
        } catch {
            // The completion may not be called before this returns, so a timer calls it.
            full.append(completion)
            fullTimer = .once(milliseconds: 100, on: context) { [unowned self] in
                let completions = full
                (full, fullTimer) = ([], nil)
                for completion in completions { completion(.failure(error)) }
            }
            return
        }
        session.pump()
    }
}

extension SharedOutbox {
    /// Adds a request. Only posts have a limit, so only a post can be refused. The loss is then logged. The callers of
    /// this function make few requests, so the other requests need no limit.
    fileprivate func add(_ request: Request) {
        do throws(ServiceError) {
            try append(request)
        } catch {
            Log.warning("a request was not sent to the service: \(error)")
        }
    }
}

/// Events of the client library.
extension CenterLink: ServiceReceiver {
    func received(_ notification: ArrivedNotification, for _: [RegistrationKey]) {
        guard notification.name != Self.markerName else { return markerArrived(notification.object, isInTime: true) }
        delegate?.arrived(notification)
    }

    /// Handles the state of the connection. Only a connected service counts as present.
    func stateChanged(_ state: ConnectionState) {
        // A `ServiceSession` without observers does not reconnect by itself.
        if case .disconnected = state, observers.isEmpty, isStarted { askSoon() }
        // A service that does not answer for a while still counts as present: it processes the requests afterwards.
        if case .notAnswering = state, isThere { return }
        let isThere = state == .connected
        guard isThere != self.isThere else { return }
        // A new service may know the details that the earlier one did not know.
        if isThere, missingDetails > 0 {
            missingDetails = 0
            askForDetails()
        }
        self.isThere = isThere
        // The service to which the markers were posted is gone.
        if !isThere { for object in markers.keys.sorted() { markerArrived(object, isInTime: false) } }
        delegate?.serviceChanged(isThere: isThere)
    }

    /// Reports a gap in the notifications of the service.
    func mayHaveMissed(_ gap: Gap) {
        switch gap {
        case .dropped(let count, _), .missing(let count), .overflow(let count): delegate?.missed(count)
        case .undecodable: delegate?.missed(1)
        // The next service reports the losses of the one before it.
        case .serviceChanged: break
        }
    }

    /// Handles the refusal of an observer: its names are not exported.
    func registrationRefused(_ key: RegistrationKey, because error: ServiceError) {
        let name = key.name?.text ?? "any name"
        Log.warning("\(name) is not exported: \(error)", ["CARILLON_REASON": error.description])
        refusal = "\(name): \(error)"
    }

    /// Handles the refusal of details: requests fewer, for a service of an earlier version.
    func detailsRefused(because error: ServiceError) {
        if missingDetails < Self.laterDetails.count {
            let missing = Self.laterDetails[missingDetails].all.map(\.rawValue).joined()
            Log.notice("the service is of an earlier version, and does not send '\(missing)': \(error)")
            missingDetails += 1
            askForDetails()
            return session.pump()
        }
        // Without these details the bridge can't recognize imported notifications, which must not be exported again in
        // a loop.
        Log.warning("nothing is exported, because the service does not send the origin of notifications: \(error)")
        refusal = "the service does not send the origin of notifications: \(error)"
    }

    func lostPosts(_ count: Int, because error: ServiceError) {
        Log.warning("the service did not accept \(count) posts of the bridge: \(error)")
    }
    /// Does nothing, because the bridge's observers are delivered immediately in spite of a suspension.
    func suspensionChanged(_: Bool, cause _: String) {}
    func interestChanged() { delegate?.interestChanged() }
    func valuesRemoved() { delegate?.valuesRemoved() }
}
