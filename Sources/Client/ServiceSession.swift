// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCollections
import CarillonCore
import CarillonDBus
import CarillonWire

/// A **service session**: the client side of a program's relation to the notification center service.
///
/// It connects to the bus, has the bus start the service, sends the requests of an outbox, and passes notifications to
/// a receiver. When the connection or the service is replaced, it connects again and restores the program's
/// registrations (E3). The client library (`BusLink`), the command and the bridge each run one session for each
/// connection.
///
/// The session is a state machine. This file has its states and transitions. `+Requests` has outgoing requests,
/// `+Signals` incoming messages, `+Confirmation` acknowledgments of posts, `+Batches` batches, `+Owner` the owner of
/// the service's name, and `+Channel` the transport beside the bus.
///
/// Threads: all members except `init` are used on the thread of the session's bus.
public final class ServiceSession {
    enum State {
        /// No connection. The next request or the retry timer starts the next attempt.
        case offline(ServiceError)
        /// The session has sent `Hello`, and the bus has not answered.
        case greeting
        /// Connected to the bus. The service has been asked nothing, because the program has no requests and no
        /// observers. This way a program without requests does not start the service.
        case idle
        /// The service has been asked for its list of this program's registrations, and has not answered. The bus may
        /// have to start the service first. Requests wait in the outbox.
        case asking
        /// There is no service and the bus can't start one, or another program owns the service's name. The session
        /// asks again when the bus announces a new owner, or with a later request.
        case absent(ServiceError)
        /// The service has answered, and its registrations match the program's. Requests are sent.
        case ready
    }

    let bus: any SessionBus
    /// Whether calls may make the bus start the service.
    let startsService: Bool
    /// The requested transport: the bus or a channel.
    let wish: TransportPreference
    let outbox: SharedOutbox
    let receiver: any ServiceReceiver
    /// The connection to the bus; nil while there is none.
    private(set) var connection: (any BusConnection)?
    private(set) var state = State.offline(.disconnected("not connected yet")) {
        didSet { if case .ready = state {} else { endDirectSending() } }
    }
    /// The owners of the service's name whose signals are trusted.
    private(set) var owners = ServiceOwners()
    /// The owner of the service's name, as far as the bus has announced it.
    var owner: UniqueName? { owners.present }
    /// The program's registrations, and their numbers at the service.
    var registrations = Registrations()
    /// The suspension that the program requested; nil when it requested none or withdrew its request.
    var suspension: Bool?
    /// Whether the service last reported that the program is suspended.
    var isSuspendedByService = false
    /// Whether the program withdrew its request. A service that ended at that moment may have handed the request over
    /// to its successor.
    var isSuspensionWithdrawn = false
    /// The details that the program requests besides the content of notifications (P1).
    var details: Details = []
    /// The check of the sequence numbers of received notifications; it finds losses and duplicates.
    var sequence = SequenceCheck()
    /// The fields of the previous notification, which decoding reuses if the next one repeats them.
    var recent = ArrivedNotification.Recent()
    /// The support for batches at the present service.
    var batching = Batching()
    /// The channel, or the attempts to open one.
    var channels = Channels()
    /// The number of calls in flight whose answers must arrive before a stop.
    var pendingAnswers = 0
    /// Whether a call to the bus follows the last message that was sent. Its answer proves that the bus has read that
    /// message; ``mayStop()`` waits for it, as one of ``pendingAnswers``.
    var isBusReadProbed = true
    /// Whether a connection attempt is in progress. Its failure is reported even though the state is already `offline`.
    private var isConnecting = false
    /// Whether a service has answered before. Each later `ready` state follows a replacement, a new connection or
    /// missing answers of the service, so notifications may have been lost.
    private var wasEverReady = false
    /// The calls that an overloaded service refused, to be repeated.
    var refusedCalls = RefusedCalls()
    /// The number of the latest question to the service about its registrations. Answers to earlier questions are
    /// ignored. Requests from before the latest question are settled by its answer.
    private(set) var question = 0
    /// Whether the service is asked for its list in pages, because it refused to send the whole list at once.
    private var asksInPages = false
    /// The owner of the name when the latest question was sent; nil when the owner was unknown.
    private var asked: UniqueName?
    /// The timer that reports a silent service as ``ConnectionState/notAnswering(_:)``. It is set while an answer of
    /// the service is awaited.
    var silenceTimer: AnyObject?
    /// Whether the program was informed that the service, which was ready before, does not answer.
    var isSilent = false
    /// A counter that changes whenever the service answers.
    var answerCount: UInt64 = 0
    /// The timer of the next confirmation request to the service; set while posts are unconfirmed.
    var confirmationTimer: AnyObject?
    /// The posts of an ended service whose outcome is unknown; nil when there are none.
    var unresolved: Unresolved?
    /// The state of the check of the name's owner after a signal of an unexpected sender.
    var ownerCheck = OwnerCheck.none
    /// The timer of the next connection attempt or question; nil when none is due.
    private var retry: AnyObject?
    /// A timer that keeps the previous connection alive until its callbacks have returned.
    private var release: AnyObject?
    /// The delay of the next retry.
    private var backOff = BackOff()
    /// The time of the last failed attempt; posts trigger at most one attempt per second.
    private var lastFailure: ContinuousClock.Instant?
    /// The time within which a service that is being started usually answers, in milliseconds. After it, a silent
    /// service is reported.
    static let patienceMilliseconds: UInt32 = 5000

    /// - Parameters:
    ///   - startsService: whether the bus may start a service when there is none.
    ///   - wish: the requested transport of posts and notifications; call ``pump()`` after a change.
    ///   - outbox: the program's requests; call ``pump()`` after a request was appended.
    ///   - receiver: the receiver of notifications and reports.
    public init(
        bus: any SessionBus, startsService: Bool = true, wish: TransportPreference = TransportPreference(),
        outbox: SharedOutbox,
        receiver: any ServiceReceiver
    ) {
        self.bus = bus
        self.startsService = startsService
        self.wish = wish
        self.outbox = outbox
        self.receiver = receiver
    }

    /// Begins the first connection attempt.
    public func start() {
        connect()
    }

    /// Closes the connection to the bus at once. Call ``mayStop()`` first, until it returns true.
    public func stop() {
        channels = Channels()
        connection = nil
    }

    /// Continues an orderly end, and returns whether ``stop()`` would lose no request that could still be sent. Call it
    /// after each iteration of the loop until it returns true.
    ///
    /// The steps are: send the outbox without waiting for batches, await the answers, and then ask the bus a question.
    /// Without that question, the bus might drop requests that it has not read. The reason is that the kernel resets a
    /// connection that closes with unread input, such as an answer or a Ping. The answer to the question proves that
    /// the bus has read all earlier data.
    public func mayStop() -> Bool {
        endDirectSending()
        switch state {
        // No request could be sent.
        case .offline, .absent: return true
        // The answer of the bus or the service is awaited. After it, waiting requests leave or fail, and unresolved
        // posts are settled.
        case .greeting, .asking: return outbox.isEmpty && outbox.unresolved == 0
        case .idle, .ready:
            if !outbox.isEmpty {
                outbox.flushBatch()
                pump()
            }
            guard outbox.isEmpty, pendingAnswers == 0, (channels.channel?.sender.postsInFlight ?? 0) == 0 else {
                return false
            }
            guard !isBusReadProbed, let connection else { return true }
            isBusReadProbed = true
            pendingAnswers += 1
            connection.busID { [weak self] _ in self?.pendingAnswers -= 1 }
            return false
        }
    }

    /// Sends the requests in the outbox as far as the state permits. Call it after a request was appended. Without a
    /// service it starts an attempt, or fails the requests if the last attempt failed within a second.
    public func pump() {
        switch state {
        case .greeting, .asking: break
        case .ready: sendRequests()
        case .idle: if !outbox.isEmpty { ask() }
        case .absent(let error), .offline(let error):
            guard !outbox.isEmpty else { return }
            // A program that posts in a loop must not make the bus try to start a service for each post.
            guard mayTryAgain else { return settleWithoutService(error) }
            if connection == nil { connect() } else { ask() }
        }
    }

    /// Whether the last failed attempt was more than a second ago.
    private var mayTryAgain: Bool {
        lastFailure.map { bus.now - $0 > .seconds(1) } ?? true
    }

    // MARK: The bus

    /// Opens a connection to the bus and sends `Hello`.
    private func connect() {
        retry = nil
        isConnecting = true
        do throws(BusError) {
            let connection = try bus.connect()
            connection.onMessage = { [unowned self] message in handle(message) }
            connection.onDisconnect = { [weak self] in self?.disconnected("the bus closed the connection") }
            self.connection = connection
            state = .greeting
            connection.hello { [weak self] result in
                guard let self else { return }
                switch result {
                case .success: greeted()
                case .failure(let error): disconnected(error.message)
                }
            }
        } catch {
            disconnected(error.message)
        }
    }

    /// Handles the answer to `Hello`. The service is asked at once if the program has observers or a suspension to
    /// restore. Otherwise the first request triggers the question.
    private func greeted() {
        isConnecting = false
        backOff = BackOff()
        connection?.addMatch(OwnerChange.matchRule(for: Wire.busName))
        state = .idle
        if !registrations.isEmpty || suspension != nil { ask() } else { pump() }
    }

    /// Resets all state that belongs to the connection, fails the waiting requests, and schedules a reconnection if the
    /// program has observers.
    private func disconnected(_ reason: String) {
        // A failed handshake and the end of its connection are reported separately; the second report is ignored.
        if case .offline = state, !isConnecting { return }
        isConnecting = false
        silenceTimer = nil
        // The channel belongs to the unique name that the bus assigned to this connection.
        endChannel(reason)
        channels = Channels()
        owners.reset()
        ownerCheck = .none
        // A service knows no suspension of a new connection that would have to be withdrawn.
        isSuspensionWithdrawn = false
        refusedCalls = RefusedCalls()
        registrations.reset()
        sequence.reset()
        batching = Batching()
        endDirectSending()
        outbox.reset()
        isSilent = false
        announceUnresolved(because: reason)
        let error = ServiceError.disconnected(reason)
        state = .offline(error)
        lastFailure = bus.now
        // The connection must not be released inside its own callback.
        if let old = connection {
            release = bus.once(milliseconds: 0) { [weak self] in
                withExtendedLifetime(old) {}
                self?.release = nil
            }
        }
        connection = nil
        receiver.stateChanged(.disconnected(reason))
        settleWithoutService(error)
        if !registrations.isEmpty { tryAgainLater { [unowned self] in connect() } }
    }

    /// The unique name of the session's connection to the bus; nil without a connection.
    public var uniqueName: UniqueName? { connection?.uniqueName }

    // MARK: The service

    /// Asks the service for its list of this program's registrations. The answer shows which registrations to add and
    /// remove. The call also makes the bus start the service, if `startsService` permits.
    private func ask() {
        guard let connection, let name = connection.uniqueName else { return }
        retry = nil
        state = .asking
        question += 1
        asked = owner
        if asksInPages {
            askForPage(behind: [], of: name, on: connection)
        } else {
            ask(ListObservers(of: name.rawValue), on: connection) { [unowned self] listed, sender in
                answered(listed, by: sender)
            }
        }
        // A timer of an earlier question continues, so that repeated questions do not postpone the report.
        guard case .asking = state, silenceTimer == nil else { return }
        awaitAnswer()
    }

    /// Sends a question. Its answer is ignored if a later question was sent meanwhile.
    ///
    /// - Parameter take: receives a valid answer and its sender.
    private func ask<Method: CenterMethod>(
        _ method: Method, on connection: any BusConnection,
        _ take: @escaping (Method.Reply, _ sender: UniqueName?) -> Void
    ) {
        let number = question
        connection.call(method.message(startsService: startsService)) { [weak self, weak connection] result in
            guard let self, connection === self.connection, case .asking = state, number == question else { return }
            switch result {
            case .success(let reply):
                do throws(BusError) {
                    take(try Method.reply(in: reply), reply.sender)
                } catch {
                    handleForeignOwner(because: error)
                }
            case .failure(let error): askingFailed(error)
            }
        }
    }

    /// Asks for the next page of the list, until a page is empty.
    ///
    /// - Parameter listed: the entries of the previous pages.
    private func askForPage(
        behind listed: [ListedObserver], of name: UniqueName, on connection: any BusConnection
    ) {
        var all = listed
        let last = listed.last?.id ?? ObserverID(rawValue: 0)
        ask(ListObserversFrom(of: name.rawValue, after: last), on: connection) { [unowned self] piece, sender in
            guard let first = piece.first else { return answered(all, by: sender) }
            // Each page must begin after the previous one; otherwise the pages might never end.
            guard first.observer.id > last,
                zip(piece, piece.dropFirst()).allSatisfy({ $0.observer.id < $1.observer.id })
            else {
                return handleForeignOwner(because: .invalidArgs("the observers are not in the order of their numbers"))
            }
            all += piece.map(\.observer)
            // The page shows that the service is not silent, so the time begins again.
            awaitAnswer()
            askForPage(behind: all, of: name, on: connection)
        }
    }

    /// Starts the timer that reports a silent service.
    private func awaitAnswer() {
        silenceTimer = bus.once(milliseconds: Self.patienceMilliseconds) { [weak self] in self?.reportSilence() }
    }

    /// Handles the complete list of a service: compares it with the program's registrations, restores differences, and
    /// enters the `ready` state.
    ///
    /// The steps before `ready` settle the state that belonged to an earlier service. The calls after it restore
    /// suspension, details, batches and registrations.
    private func answered(_ listed: [ListedObserver], by sender: UniqueName?) {
        // An answer of a former owner does not count, because the requests that follow go to the present owner.
        if let owner, owner != sender { return askAgain() }
        silenceTimer = nil
        asksInPages = false
        let isSame = owner == sender
        owners.answered(sender)
        // The answer follows the end of the previous service, so that service writes nothing more to its channel.
        if let channel = channels.channel, channel.service != sender { endChannel("the service was replaced") }
        channels.answered(sender)
        let repair = registrations.compare(with: listed)
        // A service that has none of these registrations may not know this program. It then numbers the program's
        // notifications from one.
        if !registrations.hasInherited {
            sequence.mayBeginAnew()
            // Such a service knows no earlier suspension either; it reports a suspension that is in force.
            if isSuspendedByService, suspension != true {
                isSuspendedByService = false
                receiver.suspensionChanged(false, cause: SuspensionCause.none.rawValue)
            }
        }
        // The service answers in order. If the bus had announced it as the owner, its answer confirms all earlier
        // posts. Posts over a channel are confirmed by their own outcomes.
        outbox.reset(keeping: channels.channel?.sender.postsInFlight ?? 0, isTaken: isSame)
        resolveUnresolved()
        isSilent = false
        // The service may be of another version than its predecessor, so its support for batches is unknown.
        batching = Batching()
        state = .ready
        backOff = BackOff()
        lastFailure = nil
        receiver.stateChanged(.connected)
        if wasEverReady, !registrations.isEmpty { receiver.mayHaveMissed(.serviceChanged) }
        wasEverReady = true
        // One count for all calls below: posts over a channel wait until the service is known to have taken them.
        channels.sentOnBus += 1
        refusedCalls = RefusedCalls()
        if suspension != nil || isSuspensionWithdrawn { callUnawaited(.suspension) }
        if !details.isEmpty { callUnawaited(.details) }
        if !registrations.isEmpty { askForBatches() }
        for id in repair.surplus { callUnawaited(.removal(id)) }
        for key in repair.missing { sendRegistration(of: key) }
        // A frame in the channel may have waited for the number of a registration.
        channels.channel?.retryHeldFrame()
        sendRequests()
    }

    /// Asks the bus for the current owner of the name, whose change it may not have announced yet, and then asks that
    /// owner for its list.
    private func askAgain() {
        let number = question
        connection?.nameOwner(of: Wire.busName) { [weak self] result in
            guard let self, case .asking = state, number == question else { return }
            let former = self.owner
            // As in `ownerChanged(to:)`: the posts in flight went to the former owner.
            if let owner = result.owner, owners.change(to: owner) {
                outbox.reset()
                resolvePosts(of: former)
            }
            ask()
        }
    }

    /// Handles the failure of a question: a foreign owner, an overloaded service, no service, or a service that ended
    /// before it answered. The last case is retried.
    private func askingFailed(_ error: BusError) {
        if error.meansAnotherProgram {
            guard asksInPages else { return handleForeignOwner(because: error) }
            // The service may be an older version without this method.
            asksInPages = false
            return tryAgainLater { [unowned self] in ask() }
        }
        if error.centerError == .limitExceeded {
            // The service is overloaded, or its list exceeds the size of one answer. Posts wait during the retries of
            // about ten seconds, and then fail.
            silenceTimer = nil
            asksInPages = true
            let isLong = backOff.isLong
            tryAgainLater { [unowned self] in ask() }
            if isLong { becomeAbsent(ServiceError(error), telling: .notAnswering("\(Wire.busName): \(error.message)")) }
            return
        }
        // In the other cases there is no service: the owner or the bus refuses this program, or the bus can't start
        // one.
        guard error.meansNotServed || (error.meansNoService && owner == nil) else {
            // The service ended before it answered, or is busy starting and the bus dropped the messages that waited
            // for it.
            giveUpUnresolved(because: "the service has ended")
            return tryAgainLater { [unowned self] in ask() }
        }
        becomeAbsent(ServiceError(error), telling: .serviceUnavailable(error.message))
    }

    /// Enters the `absent` state and fails the waiting requests.
    ///
    /// - Parameters:
    ///   - reason: the error for the requests.
    ///   - reportedState: the state that is reported to the program.
    private func becomeAbsent(_ reason: ServiceError, telling reportedState: ConnectionState) {
        silenceTimer = nil
        lastFailure = bus.now
        // An overloaded service exists, and may still take posts that are in flight.
        if case .refused(let error) = reason, error.centerError == .limitExceeded {} else { outbox.reset() }
        giveUpUnresolved(because: "there is no service")
        state = .absent(reason)
        receiver.stateChanged(reportedState)
        settleWithoutService(reason)
    }

    /// Handles an owner of the service's name that does not answer as a notification center. The session asks again
    /// when the name has another owner, and with a later request.
    func handleForeignOwner(because error: BusError) {
        owners.markForeign()
        // Requests wait while the bus describes the owner. The new number makes answers to earlier questions invalid.
        state = .asking
        question += 1
        let number = question
        describeOwner { [weak self] owner in
            guard let self, case .asking = state, number == question else { return }
            let words =
                "\(Wire.busName) is owned by \(owner ?? "another program"), which does not answer as a notification center"
            becomeAbsent(.nameTaken("\(words): \(error)"), telling: .nameTaken("\(words): \(error)"))
        }
    }

    /// Reports that the service does not answer, because it is slow, stopped or still being started. The session keeps
    /// waiting.
    func reportSilence() {
        silenceTimer = nil
        guard case .asking = state else { return }
        let number = question
        let report = { [weak self] (words: String) in
            guard let self, case .asking = state, number == question else { return }
            receiver.stateChanged(.notAnswering("\(Wire.busName) \(words)"))
        }
        describeOwner { [weak self] owner in
            if let owner { return report("is owned by \(owner), which does not answer") }
            report("has no owner yet, as the service is still being started")
            guard let self, startsService, case .asking = state, number == question else { return }
            startByManager { refusal in report("has no owner: systemd does not start \(Wire.unit): \(refusal.message)")
            }
        }
    }

    /// Handles a new owner of the service's name, or the loss of the owner. Posts in flight to the former owner become
    /// unresolved, and the new owner is asked for its list.
    func ownerChanged(to newOwner: UniqueName?) {
        let former = owner
        guard owners.change(to: newOwner) else { return }
        // In every state, posts in flight went to the former owner.
        endDirectSending()
        outbox.reset()
        resolvePosts(of: former)
        switch state {
        case .offline, .greeting, .idle: break
        // The pending answer would come from a former owner. A question that was sent without an owner is still valid.
        case .asking: if asked != nil { ask() }
        case .absent: if newOwner != nil { ask() }
        case .ready:
            (silenceTimer, isSilent) = (nil, false)
            receiver.stateChanged(.connecting)
            ask()
        }
    }

    /// Schedules another question to the service, because it did not answer a request. The answer shows whether the
    /// service still has the program's registrations.
    func requeryService() {
        guard case .ready = state, retry == nil else { return }
        tryAgainLater { [unowned self] in if case .ready = state { ask() } }
    }

    /// Runs `action` after the next back-off delay.
    private func tryAgainLater(_ action: @escaping () -> Void) {
        retry = bus.once(milliseconds: backOff.next()) { [weak self] in
            self?.retry = nil
            action()
        }
    }
}

/// A call whose result the program does not await.
enum UnawaitedCall: Hashable {
    /// The program's latest request about its suspension, or its withdrawal.
    case suspension
    /// The removal of a registration at the service.
    case removal(ObserverID)
    /// The request for details with each notification (P1).
    case details
    /// The request that the service sends notifications in batches (F1).
    case batches
}

/// The calls that an overloaded service refused. They are repeated later, in order, one at a time. Each call is
/// contained once, because a repetition sends the program's latest values.
struct RefusedCalls {
    private var waiting = Deque<UnawaitedCall>()
    private var contained: Set<UnawaitedCall> = []
    /// The timer of the next attempt; nil when none is due.
    var attempt: AnyObject?
    /// Whether one of the calls is being repeated.
    var isRepeating = false
    var backOff = BackOff()

    mutating func append(_ call: UnawaitedCall) {
        if contained.insert(call).inserted { waiting.append(call) }
    }

    mutating func popFirst() -> UnawaitedCall? {
        guard let call = waiting.popFirst() else { return nil }
        contained.remove(call)
        return call
    }
}

/// The growing delays between attempts, from 50 milliseconds to 30 seconds.
struct BackOff {
    private var milliseconds: UInt32 = 50

    /// Whether the delay has passed 6.4 seconds; the attempts have then failed for more than ten seconds in total.
    var isLong: Bool { milliseconds > 6_400 }

    /// Returns the next delay in milliseconds, and doubles it.
    mutating func next() -> UInt32 {
        defer { milliseconds = min(milliseconds * 2, 30_000) }
        return milliseconds
    }
}
