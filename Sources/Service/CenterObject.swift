// SPDX-License-Identifier: Apache-2.0
import CarillonActivity
import CarillonBusNames
import CarillonCore
import CarillonDBus
import CarillonMainLoop
import CarillonWire

/// The D-Bus object of the service: it makes and connects all parts of the service for one bus connection, and
/// dispatches each arriving message.
///
/// ``ServiceLink`` makes one for each connection. A message takes this path:
///
/// 1. ``Callers`` keeps it until its sender is identified.
/// 2. A method call goes to the ``CallQueue``, which serves it at once or keeps it, fair to all accounts.
/// 3. The exporter dispatches it by the table of methods (``CenterHandlers``); a handler passes an event to the core.
/// 4. Other messages are departures of clients, errors of the bus, and signals of the desktop.
///
/// At the end of the process, or of the connection, the object serves, loses or hands over the messages that wait.
///
/// It runs on the thread of the bus's context. No member blocks, except writes to the recovery log.
package final class CenterObject {
    private let barrier: BusBarrier
    /// The main connection, on which calls arrive and signals are sent.
    private unowned let bus: any MessageBus
    private let machine: Machine
    private let clients: ClientRegistry
    private let callers: Callers
    private let gate: PolicyGate
    private let driver: CenterDriver
    private let deliverySources: DeliverySources
    private let refusals: RejectionLog
    private let revocations: PolicyRevocations
    /// The calls that are served in slices.
    private let parts: SlicedCalls
    private let postBatches: PostBatches
    private let channelPosts: ChannelPosts
    private let configuration: ConfigurationKeeper
    /// The exchange of notifications with the services of other sessions.
    private let sessions: Sessions
    /// The adapter through which other sessions use the core.
    private var sessionsCenter: SessionsCenter?
    private let present: PresentConnections
    /// Dispatches calls by the table of methods, and sends errors.
    private var exporter: ObjectExporter!
    /// The queue of calls; nil without a control connection, and calls are then served at once.
    private var calls: CallQueue?
    /// Runs lookups about processes that may block.
    private let lookups: ProcessLookups
    /// The main connection behind the reply queue: a reply that is sent on it waits for the caller's window
    /// (``ReplyQueue``).
    private let answers: any MessageBus

    /// Makes an object with the configuration of this machine, for tests.
    ///
    /// - Parameter bus: the bus on which effects are carried out; the caller keeps it.
    package convenience init(bus: any MessageBus) {
        self.init(bus: bus, on: .own(address: ""), configuration: nil, sessions: nil)
    }

    /// - Parameters:
    ///   - bus: the bus on which effects are carried out; the caller keeps it.
    ///   - machine: the machine on which the service runs.
    ///   - inherited: the configuration of the object of the previous connection; nil to read the files.
    ///   - sessions: the exchange with other sessions of that object; nil to make a new one.
    init(
        bus: any MessageBus, on machine: Machine, configuration inherited: ConfigurationKeeper?, sessions: Sessions?
    ) {
        self.bus = bus
        self.machine = machine
        self.sessions = sessions ?? Sessions(on: machine, context: bus.context)
        configuration = inherited ?? ConfigurationKeeper(reading: machine.readConfiguration)
        clients = ClientRegistry(bus: bus, table: machine.processes)
        lookups = ProcessLookups(on: bus.context)
        callers = Callers(bus: bus, table: machine.processes, lookups: lookups)
        present = PresentConnections(callers)
        gate = PolicyGate(callers: callers, maySandboxesCall: machine.maySandboxesCall)
        barrier = BusBarrier(bus: bus)
        driver = CenterDriver(bus: bus, clients: clients, barrier: barrier, machine: machine)
        answers = driver.effects.answers.way(to: bus)
        deliverySources = DeliverySources(of: driver, on: bus.context)
        refusals = RejectionLog(driver: driver, clients: clients, bus: bus)
        revocations = PolicyRevocations(of: driver, callers: callers, gate: gate)
        parts = SlicedCalls(driver: driver)
        postBatches = PostBatches(
            driver: driver, deliverySources: deliverySources, gate: gate, refusals: refusals, parts: parts)
        channelPosts = ChannelPosts(
            driver: driver, deliverySources: deliverySources, callers: callers, gate: gate, refusals: refusals,
            configuration: configuration, machine: machine)
        let handlers = CenterHandlers(
            driver: driver, deliverySources: deliverySources, clients: clients, callers: callers, gate: gate,
            refusals: refusals, revocations: revocations,
            parts: parts, postBatches: postBatches, channelPosts: channelPosts,
            configuration: configuration, sessions: self.sessions, present: present)
        exporter = ObjectExporter(path: Wire.path, interface: handlers.interface)
        refusals.notices.account = { [unowned self] in account(of: $0) }
        exporter.onRefusal = { [unowned self] call, error in refusals.note(call, error) }
        callers.onKnown = { [unowned self] name, caller in
            gate.learned(caller)
            // Revocation precedes identification, so that a restored client is sent nothing that policy no longer
            // allows.
            revocations.revoke(of: name)
            driver.perform { effects in
                driver.center.identify(
                    name, as: caller.account, identity: caller.identity, effects: &effects)
            }
        }
        callers.handle = { [unowned self] message in _ = handleNow(message) }
        clients.knownProcess = { [callers] name in callers[name].flatMap { $0.processID > 0 ? $0.processID : nil } }
        driver.effects.onWatched = { [unowned self] name in callers.identify(name) }
        // Such a departure is handled like a signal of the bus: after the client's waiting messages, and in slices.
        driver.effects.onGone = { [unowned self] name in _ = handle(OwnerChange.departure(of: name)) }
        driver.effects.onForgotten = { [unowned self] name in callers.forget(name) }
        driver.onMemoryReturn = { [unowned self] in
            callers.releaseMemory()
            clients.releaseMemory()
            calls?.releaseMemory()
            revocations.releaseMemory()
        }
        if inherited == nil { configuration.begin() }
        applyConfiguration()
        configuration.onRead = { [unowned self] before in
            applyConfiguration()
            announceChanges(since: before)
        }
    }

    // MARK: Life cycle

    /// Restores the state that an earlier process left for this bus, and persists all changes from now on. Call it
    /// before the first message is handled, again and again until it returns true. ``resume()`` follows.
    ///
    /// - Parameters:
    ///   - directory: a directory private to the user.
    ///   - busID: the ID of the object's bus.
    ///   - address: the address of the bus.
    ///   - takesLock: whether to lock the recovery log. False if the process that has the lock can't use the state any
    ///     more.
    /// - Returns: false while another process has the lock.
    package func recover(
        directory: String, busID: String, address: String = "", takesLock: Bool = true
    ) -> Bool {
        driver.recover(directory: directory, busID: busID, address: address, takesLock: takesLock)
    }

    /// Begins to follow which application is active on the desktop, because inactive applications may be suspended.
    /// Call once, before ``resume()``.
    ///
    /// - Parameter uniqueName: the unique name of the bus connection, to which some desktops send their reports.
    func followActivity(uniqueName: UniqueName) {
        let driver = driver
        let monitor = ActivityMonitor(
            bus: bus, uniqueName: uniqueName, choice: configuration.current.activityChoice,
            rules: configuration.current.inactivity, session: machine.session, processes: machine.processes,
            lookups: lookups
        ) { [unowned driver] client, activity in
            Log.info("activity of \(client): \(activity.rawValue)", ["CARILLON_CLIENT": client.rawValue])
            driver.perform { effects in driver.center.setActivity(activity, of: client, effects: &effects) }
        }
        monitor.onChange = { [unowned self] in announce([.activitySource, .activityState, .activityReason]) }
        clients.onIdentified = { [unowned monitor] client, processID in
            monitor.clientIdentified(client, processID: processID)
        }
        driver.effects.activity = monitor
        monitor.start()
    }

    /// Begins to exchange notifications with the other sessions of the machine (G1). Call once, when the service has
    /// its name.
    ///
    /// - Parameter uniqueName: the unique name of the bus connection. Imported notifications have it as their poster.
    func joinSessions(as uniqueName: UniqueName) {
        sessions.limits = { [unowned driver] in driver.center.limits }
        driver.effects.ownName = { uniqueName }
        sessions.post = { [unowned self] imported throws(BusError) in
            deliverySources.noteActivity()
            let notification = imported.notification
            try mappingCenterErrors { () throws(CenterError) in
                try driver.perform { effects throws(CenterError) in
                    _ = try driver.center.post(
                        name: notification.name, object: notification.object, userInfo: notification.userInfo,
                        options: imported.options, from: uniqueName, as: imported.identity, effects: &effects)
                }
            }
        }
        // Posts of other sessions that were lost on their way join the lost posts of this session, of which the call
        // queue informs the observers.
        sessionsCenter = SessionsCenter(
            driver, as: uniqueName, announce: { [unowned self] post in calls?.lose(post) },
            isWriting: { [unowned self] in calls?.isWriting == true })
        sessions.center = sessionsCenter
        driver.effects.sessions = sessions
        sessions.pause(false)
        sessions.begin()
    }

    /// Watches the restored clients, and delivers their queued notifications. Each client gets them after it is
    /// identified, because policy may have revoked its observers.
    package func resume() {
        driver.center.restoresOnlyIdentified = true
        driver.perform { effects in driver.center.finishRestoring(effects: &effects) }
        if driver.center.hasQueuedPosts(.whenIdle) { deliverySources.expectIdleness() }
    }

    /// Whether the object has stopped serving calls, because the process is about to end.
    private var isSettling = false
    /// The timer of a last wait for calls before the process ends.
    private var lastWaitTimer: EventSource?
    /// The length of that wait, in milliseconds.
    private static let lingeringTime: UInt32 = 20
    /// The maximum time for serving queued calls when the process is about to end. It is below the time for a stop
    /// (``ServiceLink``), so that time remains to send the messages.
    private static let timeToSettle = Duration.milliseconds(1500)

    /// Serves queued calls and sends all due messages before the process ends. Call it when the service has released
    /// its name, so that new calls go to the next process.
    ///
    /// - Parameter completion: called when the bus has carried all messages, or is gone. Then call ``finish()``.
    func settle(_ completion: @escaping () -> Void) {
        // After ``settleAtOnce(_:)`` this is too late: that call has its own completion.
        guard !isSettling else { return }
        calls?.serveAll(for: Self.timeToSettle)
        channelPosts.endAll(isLast: true)
        guard callers.isAnythingWaiting else {
            endServing()
            return driver.settle { [weak self] in self?.finishServing(completion) ?? completion() }
        }
        // Callers are still to be identified. The reply to this query comes after the credentials that their calls wait
        // for.
        callers.way.busID { [weak self] result in
            guard let self, case .success = result else { return completion() }
            settle(completion)
        }
    }

    /// Ends without serving queued calls, because no time is left.
    ///
    /// - Parameter completion: called when the bus has carried all messages that were sent before, or is gone.
    func settleAtOnce(_ completion: @escaping () -> Void) {
        if !isSettling {
            channelPosts.endAll(isLast: true)
            endServing()
        }
        driver.settleAtOnce { [weak self] in self?.finishServing(completion) ?? completion() }
    }

    /// Stops serving. Queued calls are lost. Their posters, and the observers that the posts would have reached, are
    /// notified.
    private func endServing() {
        isSettling = true
        calls?.stop()
        loseWaitingCalls()
    }

    /// Calls `completion` when no more calls arrive. The bus has carried all sent messages, but clients may have called
    /// the service by its unique name meanwhile. Such calls are lost, and their notices have to be carried first.
    private func finishServing(_ completion: @escaping () -> Void) {
        guard loseWaitingCalls() else {
            // A client that has just learned that the name has another owner sends a Ping, by which it finds out
            // whether its posts were served. The wait is for such Pings.
            lastWaitTimer = .once(milliseconds: Self.lingeringTime, on: bus.context, priority: .of(.control)) {
                [weak self] in
                guard let self else { return }
                lastWaitTimer = nil
                guard loseWaitingCalls() else { return completion() }
                driver.settleAtOnce(completion)
            }
            return
        }
        driver.settleAtOnce { [weak self] in self?.finishServing(completion) ?? completion() }
    }

    /// Loses all waiting calls. Lost posts are reported to their posters and observers; other calls get an error. Calls
    /// of `org.freedesktop.DBus.Peer` are answered last: the answer to a Ping shows that all earlier posts were served
    /// or reported.
    ///
    /// - Returns: whether there were any calls.
    @discardableResult
    private func loseWaitingCalls() -> Bool {
        let left = ((takeKeptCalls() ?? []) + callers.takeWaiting()).filter { $0.kind == .methodCall }
        let others = calls?.loseAtEnd(left) ?? []
        refusals.notices.reportAll()
        let lost = left.count - others.count { $0.hasInterface(ObjectExporter.peer) }
        if lost > 0 {
            Log.warning("\(lost) queued calls are lost, as the service ends")
        }
        for message in others {
            if message.hasInterface(ObjectExporter.peer) {
                _ = ObjectExporter.answerWithoutObject(message, from: answers)
            } else {
                calls?.refuse(message)
            }
        }
        return left.count > 0
    }

    /// Loses the calls that still wait, and writes the state, from which the next process continues.
    package func finish() {
        loseWaitingCalls()
        driver.finish()
        sessions.end()
    }

    /// Ends this object when the bus has closed its connection, and returns its state for the object of the next one.
    func handOver(busID: String) -> HandoverState {
        // These calls are served on the next connection, although the bus has already returned an error to their
        // callers. OpenChannel is left out, because its reply with a descriptor can't reach the caller.
        let kept = ((takeKeptCalls() ?? []) + callers.takeWaiting()).filter { $0.member != OpenChannel.member }
        let (center, store, largest) = driver.handOver()
        driver.effects.sessions = nil
        sessions.pause(true)
        sessions.post = nil
        sessions.center = nil
        // The previous closure refers to the driver, which is released now.
        sessions.limits = { [limits = center.limits] in limits }
        return HandoverState(
            busID: busID, center: center, store: store, configuration: configuration, sessions: sessions, calls: kept,
            maxBytes: center.maxBytes, largest: largest)
    }

    /// Removes and returns the calls in the call queue; nil without a queue. Calls that are served in slices are
    /// finished first, so that none of their posts is made twice.
    private func takeKeptCalls() -> [Message]? {
        guard let calls else { return nil }
        channelPosts.finishBegun()
        let finished = parts.finishAll()
        return calls.takeAll().filter { message in !finished.contains { $0 === message } }
    }

    /// Sets the activity of a client's application, in a simulation.
    func report(_ activity: Activity, of client: ClientName) {
        driver.perform { effects in driver.center.setActivity(activity, of: client, effects: &effects) }
    }

    /// The numbers of entries in the tables outside the core, for tests. The last is the number of identified
    /// connections that the core does not know, which would be a leak.
    var kept: [(what: String, count: Int)] {
        let lost = callers.names.count { !driver.center.knows($0) }
        return driver.effects.kept + clients.kept + sessions.kept + [
            ("identified connections that the core does not know", lost)
        ]
    }

    /// The other sessions, as the property `Sessions` shows them.
    var shownSessions: [String: PropertyList] { sessions.shown }

    /// The retained values that are sent to other sessions, for tests.
    var valuesForSessions: [ExportedNotification] {
        var (values, after): ([ExportedNotification], UInt64) = ([], 0)
        // The highest serial is left out, because the next one after it would overflow.
        while let (value, serial) = driver.center.valueForSessions(after: after, through: .max - 1) {
            values.append(value)
            after = serial
        }
        return values
    }

    /// The core, for tests.
    var center: DistributedCenter { driver.center }
    /// Whether a crash would lose queued notifications, because the recovery log has no space for them.
    var isWithoutQueues: Bool { driver.effects.store?.isWithoutQueues ?? false }

    /// The size in bytes from which notifications are reported as lost and not sent, because the bus may close the
    /// connection over them; `Int.max` where no limit is known.
    var maxBytes: Int {
        get { driver.center.maxBytes }
        set { driver.center.maxBytes = newValue }
    }

    /// Restores the state of the object whose connection the bus closed. Call it instead of
    /// ``recover(directory:busID:address:takesLock:)``.
    func inherit(_ handoverState: HandoverState) {
        driver.inherit(handoverState.center, handoverState.store)
        maxBytes = handoverState.maxBytes
    }

    /// Reads the configuration files again. If a file has a fault, the fault is logged and the old configuration stays.
    func reloadConfiguration() {
        try? configuration.read()
    }

    // MARK: Arriving messages

    /// Handles an arriving message, now or when its sender is identified.
    ///
    /// - Returns: false for a message that is not for this object.
    package func handle(_ message: Message) -> Bool {
        !callers.admit(message) || handleNow(message)
    }

    /// Handles a message whose sender is identified.
    private func handleNow(_ message: Message) -> Bool {
        // After the end of the driver no message is served. The bus returns errors to the callers.
        guard !driver.isOver else { return true }
        deliverySources.noteActivity()
        if message.kind == .methodCall, let sender = message.sender {
            guard let calls else { return serve(message, of: sender) }
            return calls.take(message, of: sender, queueAccount(of: sender)) { serve(message, of: sender) }
        }
        if let change = OwnerChange(message) {
            #if CARILLON_PLANTED
                if change.departed != nil, PlantedFault.strikes(.missedDeparture, oneOf: 4) { return true }
            #endif
            // The departure waits in the call queue behind the client's calls.
            if let client = change.departed, let calls {
                channelPosts.beginLeaving(client)
                calls.takeEnd(message, of: client, queueAccount(of: client)) { ownerChanged(change) }
            } else {
                ownerChanged(change)
            }
            return true
        }
        // The bus refuses a signal with this error, such as when its queue for the receiver is full.
        if let error = message.error, error.name == BusError.limitsExceededName, message.isFromBus {
            refusals.noteRejection(error)
            driver.effects.signalRefused(serial: message.replySerial)
            return true
        }
        return driver.effects.activity?.handle(message) == true
    }

    /// Returns the account that is charged for a connection.
    private func account(of connection: UniqueName) -> AccountID {
        callers[connection]?.account ?? .connection(connection)
    }

    /// Returns the account in whose fair queue the messages of a connection wait. Connections that left before they
    /// were identified share one account, because a single process may have made many of them.
    private func queueAccount(of connection: UniqueName) -> AccountID {
        callers[connection]?.hasLeft == true ? .user(.max) : account(of: connection)
    }

    /// Serves a message from the ``CallQueue``, or the next slice of it.
    private func serveKept(_ message: Message) {
        deliverySources.noteActivity()
        if parts.goOn(message) { return }
        if let change = OwnerChange(message) { return serveOwnerChange(change, message) }
        guard let sender = message.sender, !serve(message, of: sender), !message.expectsNoReply else { return }
        answers.send(message.errorReply(.unknownMethod("there is no such method")))
    }

    /// Handles a departure whose turn in the call queue has come, in slices if the client has much state.
    private func serveOwnerChange(_ change: OwnerChange, _ message: Message) {
        guard let client = change.departed, driver.center.leavesInSlices(client) else {
            return ownerChanged(change)
        }
        parts.begin(message) { [unowned self] _ in
            let isMore = driver.perform { effects in driver.center.removeSlice(client, effects: &effects) }
            if !isMore { ownerChanged(change) }
            return !isMore
        }
    }

    /// Removes the state of a departed client.
    private func ownerChanged(_ change: OwnerChange) {
        if let client = change.departed {
            channelPosts.left(client)
            refusals.notices.forget(client)
            driver.perform { effects in driver.center.clientDisappeared(client, effects: &effects) }
        }
        driver.effects.activity?.ownerChanged(change)
    }

    /// Serves a call of an identified connection.
    private func serve(_ call: Message, of sender: UniqueName) -> Bool {
        guard isServed(call, of: sender) else { return true }
        // Nobody would receive the reply of a pure query.
        if hasLeft(sender), Self.pureQueries.contains(where: call.hasMember) { return true }
        driver.noteServing()
        // A desktop that no longer answers would leave clients suspended, so it is checked while calls arrive.
        driver.effects.activity?.noteUse()
        // Refusals of earlier posts are reported before a reply, by which the caller knows that these posts are
        // accounted for.
        if !call.expectsNoReply { refusals.notices.reportNow(sender) }
        if driver.center.isAnythingReady, sendsDueFirst(call) {
            driver.perform { effects in driver.center.sendAllReady(effects: &effects) }
        }
        return driver.effects.activity?.handle(call) == true
            || exporter.handle(call, from: answers)
    }

    /// Whether a connection is known to have left, while messages that it sent before are still queued.
    private func hasLeft(_ connection: UniqueName) -> Bool {
        callers[connection]?.hasLeft == true || calls?.hasLeft(connection) == true
    }

    /// The error of a call that exceeds the quota of waiting calls.
    private var overload: BusError {
        let limit = CenterError.limitExceeded(.waitingCallBytes, value: driver.center.limits[.waitingCallBytes])
        return BusError(.limitExceeded, message: "calls arrive faster than they can be served: \(limit)")
    }

    /// Returns whether a call may be served, and refuses it otherwise. A caller with too many unread replies gets no
    /// further call with a reply served (A4).
    private func isServed(_ call: Message, of sender: UniqueName) -> Bool {
        guard !call.expectsNoReply, !driver.center.isServed(sender) else { return true }
        refuse(call, of: sender, with: ChannelPosts.unread)
        return false
    }

    /// Refuses a call with an error reply. If the quota of unread replies allows none, the call is only counted and
    /// logged.
    private func refuse(_ call: Message, of sender: UniqueName, with error: BusError) {
        if driver.center.mayRefuse(sender) {
            exporter.refuse(call, with: error, from: answers)
        } else {
            refusals.noteUnserved(call, of: sender)
        }
    }

    /// Uses a control connection from now on: for barriers, probes of clients, and queries about callers. Replies on it
    /// do not wait behind the callers' messages. Only with it does the service read calls ahead of serving them
    /// (``CallQueue``).
    ///
    /// - Parameters:
    ///   - control: the control connection; the caller keeps it.
    ///   - main: the connection on which calls arrive; the caller keeps it.
    func use(control: Connection, beside main: Connection) {
        let calls = makeCallQueue(on: main)
        self.calls = calls
        // The reference is weak, because the connection may read for a moment after this object is gone.
        main.onArrivingCall = { [weak calls] call in calls?.takeUndecoded(call) == true }
        barrier.use(control: control)
        callers.control = control
        // The reply queue also bounds the answers to Pings, which the connection would otherwise send itself.
        control.routePeerCalls()
        control.onMessage = { [unowned self, unowned control] message in
            barrier.handle(message) || refuseStray(message, on: control)
        }
    }

    /// Makes the call queue, and connects it with the other parts.
    private func makeCallQueue(on main: Connection) -> CallQueue {
        let calls = CallQueue(of: driver, parts, on: main)
        calls.serve = { [unowned self] message in serveKept(message) }
        calls.serveChannel = { [unowned channelPosts] channel in channelPosts.take(from: channel) }
        channelPosts.calls = calls
        callers.onKeptBytesChanged = { [unowned calls] in calls.bytesInCallers = $0 }
        calls.refuse = { [unowned self] message in
            guard let sender = message.sender else { return }
            refuse(message, of: sender, with: overload)
        }
        // Posts of a lost call that are invalid or forbidden count as refused. The others are lost posts, of which the
        // poster is only notified here.
        calls.onRefusedPosts = { [refusals] poster, count in refusals.noteRefusedInLostCall(count, of: poster) }
        calls.onLostPosts = { [unowned self] poster, count in
            refusals.notices.note(count, overload, of: poster)
        }
        calls.mayTakeUndecoded = { [unowned self] in !driver.isOver && !callers.isAnythingWaiting }
        calls.onUndecodedCall = { [unowned deliverySources] in deliverySources.noteUndecodedCall() }
        calls.onPart = { [unowned deliverySources] posts in deliverySources.notePart(posts: posts) }
        calls.mayPost = { [gate] poster in
            guard !gate.isFree(poster) else { return nil }
            return { name in (try? gate.check(poster) { .post(name: name) }) != nil }
        }
        return calls
    }

    /// Returns an error for a call to the control connection, which has no D-Bus objects. Pings are answered.
    private func refuseStray(_ message: Message, on control: Connection) -> Bool {
        guard message.kind == .methodCall, let sender = message.sender else { return false }
        return !isServed(message, of: sender)
            || ObjectExporter.answerWithoutObject(message, from: driver.effects.answers.way(to: control))
    }

    /// Whether all due messages are sent before this call is served. By the reply the client then knows that the
    /// deliveries of all earlier posts were sent. Exceptions are calls with posts, whose replies wait for their
    /// deliveries in any case, and calls about suspension, which takes effect before queued messages (M6).
    private func sendsDueFirst(_ message: Message) -> Bool {
        !Self.callsWithoutSendingFirst.contains(where: message.hasMember)
    }

    /// The calls of this exception.
    private static let callsWithoutSendingFirst = [
        PostCall.member, PostJSON.member, PostMany.member, SetSuspended.member, FollowActivity.member,
    ]

    /// The calls that only query, so that their reply is their only effect.
    private static let pureQueries = [
        ListClients.member, ListPosters.member, ListObservers.member, ListObserversFrom.member, GetClient.member,
        Explain.member, Get.member, FollowInterest.member, FollowValues.member,
    ]

    // MARK: Configuration changes

    /// Passes the configuration in force to all parts.
    private func applyConfiguration() {
        let configuration = configuration.current
        let areLimitsUnchanged = driver.center.limits == configuration.limits
        driver.center.limits = configuration.limits
        if !areLimitsUnchanged { driver.perform { effects in driver.center.limitsChanged(effects: &effects) } }
        driver.perform { effects in
            driver.center.setAutomaticSuspension(configuration.suspendsAutomatically, effects: &effects)
        }
        driver.effects.activity?.choose(configuration.activityChoice, configuration.inactivity)
        if !configuration.allowsChannels { channelPosts.endAll() }
        gate.sessions = configuration.sessions
        sessions.use(configuration.sessions)
        guard configuration.policy != gate.policy else { return }
        gate.policy = configuration.policy
        #if CARILLON_PLANTED
            if PlantedFault.strikes(.policyKeepsObservers) { return }
        #endif
        revocations.begin()
    }

    /// Logs a change of the configuration, and announces the changed properties.
    private func announceChanges(since before: Configuration) {
        guard configuration.current != before else { return }
        Log.notice("configuration changed")
        var changed: [CenterProperties.Name] = []
        if configuration.current.limits != before.limits { changed.append(.limits) }
        if configuration.current.policy != before.policy { changed.append(.policy) }
        if !changed.isEmpty { announce(changed) }
    }

    /// Emits `PropertiesChanged` for these properties.
    private func announce(_ properties: [CenterProperties.Name]) {
        bus.send(exporter.propertiesChanged(Set(properties.map(\.rawValue))))
    }
}
