// SPDX-License-Identifier: Apache-2.0
import CarillonActivity
import CarillonBusNames
import CarillonCore
import CarillonDBus
import CarillonMainLoop
import CarillonWire

/// The D-Bus object of the wire contract: dispatches arriving messages to the table of methods, the core, or the
/// activity monitor.
///
/// It runs on the thread of the bus's context, and no member blocks.
package final class CenterObject {
    private let barrier: BusBarrier
    private unowned let bus: any MessageBus
    private let machine: Machine
    private let clients: ClientRegistry
    private let callers: Callers
    private let gate: PolicyGate
    private let driver: CenterDriver
    private let turns: DeliveryTurns
    private let refusals: RejectionLog
    private let revocations: PolicyRevocations
    private let parts: CallsInParts
    private let manyPosts: PostBatches
    private let channelPosts: ChannelPosts
    private let configuration: ConfigurationKeeper
    private let sessions: Sessions
    private var sessionsCenter: SessionsCenter?
    private let present: PresentConnections
    private var exporter: ObjectExporter!
    /// The queue of calls; nil while no control connection is in use.
    private var calls: CallQueue?
    private let lookups: ProcessLookups
    /// The bus through which replies to calls go out (``ReplyQueue``).
    private let answers: any MessageBus

    /// - Parameter bus: the bus on which effects are carried out; the caller keeps it.
    package convenience init(bus: any MessageBus) {
        self.init(bus: bus, on: .own(address: ""), configuration: nil, sessions: nil)
    }

    /// - Parameters:
    ///   - bus: the bus on which effects are carried out; the caller keeps it.
    ///   - machine: the machine on which the service runs.
    ///   - inherited: the configuration of an earlier object; nil to read the files.
    ///   - sessions: the connection to other sessions of an earlier object; nil to make a new one.
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
        turns = DeliveryTurns(of: driver, on: bus.context)
        refusals = RejectionLog(driver: driver, clients: clients, bus: bus)
        revocations = PolicyRevocations(of: driver, callers: callers, gate: gate)
        parts = CallsInParts(driver: driver)
        manyPosts = PostBatches(driver: driver, turns: turns, gate: gate, refusals: refusals, parts: parts)
        channelPosts = ChannelPosts(
            driver: driver, turns: turns, callers: callers, gate: gate, refusals: refusals,
            configuration: configuration, machine: machine)
        let handlers = CenterHandlers(
            driver: driver, turns: turns, clients: clients, callers: callers, gate: gate,
            refusals: refusals, revocations: revocations,
            parts: parts, manyPosts: manyPosts, channelPosts: channelPosts,
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
        // Handled like a departure that the bus reports: behind the client's messages, and in parts.
        driver.effects.onGone = { [unowned self] name in _ = handle(OwnerChange.departure(of: name)) }
        driver.effects.onForgotten = { [unowned self] name in callers.forget(name) }
        driver.onRest = { [unowned self] in
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

    /// Restores the state that an earlier process left for this bus, and persists state from now on. Call it before the
    /// first message is handled, until it succeeds; ``resume()`` follows when the service has its name.
    ///
    /// - Parameters:
    ///   - directory: a directory private to the user.
    ///   - busID: the ID of the object's bus.
    ///   - address: the address of the bus.
    ///   - takesLock: false where the process that holds the state is known to be unable to use it any more.
    /// - Returns: false while another process holds the state.
    package func recover(
        directory: String, busID: String, address: String = "", takesLock: Bool = true
    ) -> Bool {
        driver.recover(directory: directory, busID: busID, address: address, takesLock: takesLock)
    }

    /// Tracks the activity of applications in the session from now on. Call once, before ``resume()``.
    ///
    /// - Parameter uniqueName: the unique name of the bus connection, to which some desktops report.
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

    /// Connects to the other sessions of the machine from now on (G1). Call once, when the service has its name.
    ///
    /// - Parameter uniqueName: the unique name of the bus connection, which is the poster of their notifications.
    func joinSessions(as uniqueName: UniqueName) {
        sessions.limits = { [unowned driver] in driver.center.limits }
        driver.effects.ownName = { uniqueName }
        sessions.post = { [unowned self] imported throws(BusError) in
            turns.noteActivity()
            let notification = imported.notification
            try mappingCenterErrors { () throws(CenterError) in
                try driver.perform { effects throws(CenterError) in
                    _ = try driver.center.post(
                        name: notification.name, object: notification.object, userInfo: notification.userInfo,
                        options: imported.options, from: uniqueName, as: imported.identity, effects: &effects)
                }
            }
        }
        sessionsCenter = SessionsCenter(
            driver, as: uniqueName, announce: { [unowned self] post in calls?.lose(post) },
            isWriting: { [unowned self] in calls?.isWriting == true })
        sessions.center = sessionsCenter
        driver.effects.sessions = sessions
        sessions.pause(false)
        sessions.begin()
    }

    /// Watches the restored clients, and delivers their queued notifications.
    package func resume() {
        driver.center.restoresOnlyIdentified = true
        driver.perform { effects in driver.center.finishRestoring(effects: &effects) }
        if driver.center.hasQueuedPosts(.whenIdle) { turns.expectIdleness() }
    }

    /// Whether the service has stopped serving, because the process is about to end.
    private var isSettling = false
    /// A timer that delays the end of the process for clients that may still ask about their posts.
    private var lingering: EventSource?
    /// The length of ``lingering``, in milliseconds.
    private static let lingeringTime: UInt32 = 20
    /// The time for which queued calls are still served when the process is about to end.
    private static let timeToSettle = Duration.milliseconds(1500)

    /// Serves queued calls and sends scheduled messages before the process ends. No more calls arrive:
    /// ``CenterDriver/settle(_:)``.
    func settle(_ completion: @escaping () -> Void) {
        guard !isSettling else { return }
        calls?.serveAll(for: Self.timeToSettle)
        channelPosts.endAll(isLast: true)
        guard callers.isAnythingWaiting else {
            endServing()
            return driver.settle { [weak self] in self?.finishServing(completion) ?? completion() }
        }
        // Its answer comes behind the answers that queued calls wait for.
        callers.way.busID { [weak self] result in
            guard let self, case .success = result else { return completion() }
            settle(completion)
        }
    }

    /// Ends without serving queued calls, where no time is left: ``CenterDriver/settleAtOnce(_:)``.
    func settleAtOnce(_ completion: @escaping () -> Void) {
        if !isSettling {
            channelPosts.endAll(isLast: true)
            endServing()
        }
        driver.settleAtOnce { [weak self] in self?.finishServing(completion) ?? completion() }
    }

    /// Stops serving. Queued calls are lost; their posters and the affected observers are notified.
    private func endServing() {
        isSettling = true
        calls?.stop()
        loseWaitingCalls()
    }

    /// Finishes when the bus has carried everything. Calls to the service's unique name may have arrived meanwhile.
    private func finishServing(_ completion: @escaping () -> Void) {
        guard loseWaitingCalls() else {
            // A client that has just learned the new owner of the name may still ask about its posts.
            lingering = .once(milliseconds: Self.lingeringTime, on: bus.context, priority: .of(.control)) {
                [weak self] in
                guard let self else { return }
                lingering = nil
                guard loseWaitingCalls() else { return completion() }
                driver.settleAtOnce(completion)
            }
            return
        }
        driver.settleAtOnce { [weak self] in self?.finishServing(completion) ?? completion() }
    }

    /// Announces queued calls as lost. Calls of `org.freedesktop.DBus.Peer` are answered after the announcements: a
    /// client learns from the answer that everything it sent before has been accounted for.
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

    /// Ends serving and writes the state, from which a later process continues.
    package func finish() {
        loseWaitingCalls()
        driver.finish()
        sessions.end()
    }

    /// Hands over everything to the object of the next connection, when the bus has closed this one.
    func handOver(busID: String) -> HandoverState {
        // The bus has already answered these callers with an error. OpenChannel is left out: the reply with its
        // descriptor can't arrive.
        let kept = ((takeKeptCalls() ?? []) + callers.takeWaiting()).filter { $0.member != OpenChannel.member }
        let (center, store, largest) = driver.handOver()
        driver.effects.sessions = nil
        sessions.pause(true)
        sessions.post = nil
        sessions.center = nil
        // The driver is released; the next driver inherits its limits.
        sessions.limits = { [limits = center.limits] in limits }
        return HandoverState(
            busID: busID, center: center, store: store, configuration: configuration, sessions: sessions, calls: kept,
            maxBytes: center.maxBytes, largest: largest)
    }

    /// Takes out the queued calls. Calls that were begun are served completely, so that nothing is posted twice.
    private func takeKeptCalls() -> [Message]? {
        guard let calls else { return nil }
        channelPosts.finishBegun()
        let finished = parts.finishAll()
        return calls.takeAll().filter { message in !finished.contains { $0 === message } }
    }

    /// Takes a report of a source of activity about a client's application.
    func report(_ activity: Activity, of client: ClientName) {
        driver.perform { effects in driver.center.setActivity(activity, of: client, effects: &effects) }
    }

    /// The numbers of table entries per client besides the state machine, for tests.
    var kept: [(what: String, count: Int)] {
        let lost = callers.names.count { !driver.center.knows($0) }
        return driver.effects.kept + clients.kept + sessions.kept + [("callers whom nothing lets go of", lost)]
    }

    /// The other sessions, as the property `Sessions` shows them.
    var shownSessions: [String: PropertyList] { sessions.shown }

    /// The retained values that are sent to other sessions, for tests.
    var valuesForSessions: [ExportedNotification] {
        var (values, after): ([ExportedNotification], UInt64) = ([], 0)
        while let (value, serial) = driver.center.valueForSessions(after: after, through: .max - 1) {
            values.append(value)
            after = serial
        }
        return values
    }

    /// The state machine, for tests.
    var center: DistributedCenter { driver.center }
    /// Whether queued notifications would be lost with the process, because the state has no space for them.
    var isWithoutQueues: Bool { driver.effects.store?.isWithoutQueues ?? false }

    /// The size from which the bus is not known to carry a notification, in bytes. Notifications of this size and larger
    /// are reported as lost.
    var maxBytes: Int {
        get { driver.center.maxBytes }
        set { driver.center.maxBytes = newValue }
    }

    /// Takes over the state of an object whose connection the bus closed, instead of
    /// ``recover(directory:busID:address:takesLock:)``.
    func inherit(_ handoverState: HandoverState) {
        driver.inherit(handoverState.center, handoverState.store)
        maxBytes = handoverState.maxBytes
    }

    /// Reads the configuration files again. If one has a fault, which is logged, everything stays as it was.
    func reloadConfiguration() {
        try? configuration.read()
    }

    // MARK: Arriving messages

    /// Handles an arriving message. Returns whether it was for this object.
    package func handle(_ message: Message) -> Bool {
        !callers.admit(message) || handleNow(message)
    }

    private func handleNow(_ message: Message) -> Bool {
        // Messages that are unread after the end are not served. The bus answers their callers with an error.
        guard !driver.isOver else { return true }
        turns.noteActivity()
        if message.kind == .methodCall, let sender = message.sender {
            guard let calls else { return serve(message, of: sender) }
            return calls.take(message, of: sender, line(of: sender)) { serve(message, of: sender) }
        }
        if let change = OwnerChange(message) {
            #if CARILLON_PLANTED
                if change.departed != nil, PlantedFault.strikes(.missedDeparture, oneOf: 4) { return true }
            #endif
            if let client = change.departed, let calls {
                channelPosts.isLeaving(client)
                calls.takeEnd(message, of: client, line(of: client)) { ownerChanged(change) }
            } else {
                ownerChanged(change)
            }
            return true
        }
        if let error = message.error, error.name == BusError.limitsExceededName, message.isFromBus {
            refusals.noteRejection(error)
            driver.effects.signalRefused(serial: message.replySerial)
            return true
        }
        return driver.effects.activity?.handle(message) == true
    }

    private func account(of connection: UniqueName) -> AccountID {
        callers[connection]?.account ?? .connection(connection)
    }

    /// Returns the account in whose queue the messages of a connection wait. Connections that left before they were
    /// identified share one account: one process may have made many of them.
    private func line(of connection: UniqueName) -> AccountID {
        callers[connection]?.hasLeft == true ? .user(.max) : account(of: connection)
    }

    /// Serves a message that ``CallQueue`` kept.
    private func serveKept(_ message: Message) {
        turns.noteActivity()
        if parts.goOn(message) { return }
        if let change = OwnerChange(message) { return ownerChangeIsDue(change, message) }
        guard let sender = message.sender, !serve(message, of: sender), !message.expectsNoReply else { return }
        answers.send(message.errorReply(.unknownMethod("there is no such method")))
    }

    private func ownerChangeIsDue(_ change: OwnerChange, _ message: Message) {
        guard let client = change.departed, driver.center.takesPartsToLeave(client) else {
            return ownerChanged(change)
        }
        parts.begin(message) { [unowned self] _ in
            let isMore = driver.perform { effects in driver.center.takeApart(client, effects: &effects) }
            if !isMore { ownerChanged(change) }
            return !isMore
        }
    }

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
        if hasLeft(sender), Self.questions.contains(where: call.hasMember) { return true }
        driver.noteServing()
        driver.effects.activity?.noteUse()
        if !call.expectsNoReply { refusals.notices.reportNow(sender) }
        if driver.center.isAnythingReady, isBarrier(call) {
            driver.perform { effects in driver.center.sendAllReady(effects: &effects) }
        }
        return driver.effects.activity?.handle(call) == true
            || exporter.handle(call, from: answers)
    }

    /// Whether a connection is known to have left, while messages that it sent before are still queued.
    private func hasLeft(_ connection: UniqueName) -> Bool {
        callers[connection]?.hasLeft == true || calls?.hasLeft(connection) == true
    }

    private var overload: BusError {
        let limit = CenterError.limitExceeded(.waitingCallBytes, value: driver.center.limits[.waitingCallBytes])
        return BusError(.limitExceeded, message: "calls arrive faster than they can be served: \(limit)")
    }

    /// Whether a call may be served: a caller that does not read its replies is not served until it does (A4).
    private func isServed(_ call: Message, of sender: UniqueName) -> Bool {
        guard !call.expectsNoReply, !driver.center.isServed(sender) else { return true }
        refuse(call, of: sender, with: ChannelPosts.unread)
        return false
    }

    /// Refuses a call with an error reply, as long as the quota of replies allows one.
    private func refuse(_ call: Message, of sender: UniqueName, with error: BusError) {
        if driver.center.mayRefuse(sender) {
            exporter.refuse(call, with: error, from: answers)
        } else {
            refusals.noteUnserved(call, of: sender)
        }
    }

    /// Asks the bus about callers over `control` from now on, and probes clients over it. Its answers do not wait
    /// behind the callers' messages.
    ///
    /// - Parameter main: the connection on which calls arrive; the caller keeps both.
    func use(control: Connection, beside main: Connection) {
        let calls = makeCallQueue(on: main)
        self.calls = calls
        // The connection may go on reading for a moment after this object is gone.
        main.onArrivingCall = { [weak calls] call in calls?.takeAtGlance(call) == true }
        barrier.use(control: control)
        callers.control = control
        control.routePeerCalls()
        control.onMessage = { [unowned self, unowned control] message in
            barrier.handle(message) || refuseStray(message, on: control)
        }
    }

    private func makeCallQueue(on main: Connection) -> CallQueue {
        let calls = CallQueue(of: driver, parts, on: main)
        calls.serve = { [unowned self] message in serveKept(message) }
        calls.serveChannel = { [unowned channelPosts] channel in channelPosts.take(from: channel) }
        channelPosts.calls = calls
        callers.onPutOff = { [unowned calls] in calls.keptElsewhere = $0 }
        calls.refuse = { [unowned self] message in
            guard let sender = message.sender else { return }
            refuse(message, of: sender, with: overload)
        }
        calls.onRefusedPosts = { [refusals] poster, count in refusals.noteLost(count, of: poster) }
        calls.onLostPosts = { [unowned self] poster, count in
            refusals.notices.note(count, overload, of: poster)
        }
        calls.mayTakeAtGlance = { [unowned self] in !driver.isOver && !callers.isAnythingWaiting }
        calls.onGlance = { [unowned turns] in turns.noteGlance() }
        calls.onPart = { [unowned turns] posts in turns.notePart(posts: posts) }
        calls.mayPost = { [gate] poster in
            guard !gate.isFree(poster) else { return nil }
            return { name in (try? gate.check(poster) { .post(name: name) }) != nil }
        }
        return calls
    }

    /// Answers a call to the control connection, which has no objects.
    private func refuseStray(_ message: Message, on control: Connection) -> Bool {
        guard message.kind == .methodCall, let sender = message.sender else { return false }
        return !isServed(message, of: sender)
            || ObjectExporter.answerWithoutObject(message, from: driver.effects.answers.way(to: control))
    }

    /// Whether accepted posts have to be sent before this call is answered, so that the reply tells the client that
    /// everything is on its way. Posts wait for their own deliveries, and suspension takes effect before all queued
    /// messages (M6).
    private func isBarrier(_ message: Message) -> Bool {
        !Self.withoutBarrier.contains(where: message.hasMember)
    }

    private static let withoutBarrier = [
        PostCall.member, PostJSON.member, PostMany.member, SetSuspended.member, FollowActivity.member,
    ]

    /// Calls that have no effect but their reply.
    private static let questions = [
        ListClients.member, ListPosters.member, ListObservers.member, ListObserversFrom.member, GetClient.member,
        Explain.member, Get.member, FollowInterest.member, FollowValues.member,
    ]

    // MARK: Configuration changes

    private func applyConfiguration() {
        let configuration = configuration.current
        let hasLimits = driver.center.limits == configuration.limits
        driver.center.limits = configuration.limits
        if !hasLimits { driver.perform { effects in driver.center.limitsChanged(effects: &effects) } }
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
