// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCollections
import CarillonCore
import CarillonDBus
import CarillonWire

/// The session of one program with the service: connects to the bus, has the service started, registers and posts. It
/// repeats these steps whenever the connection to the bus or the service is replaced (E3).
///
/// This file has the states and their transitions; `+Requests` has outgoing requests, `+Signals` incoming messages,
/// `+Batches` batches, and `+Channel` the transport beside the bus. Threads: all members except `init` are used on the
/// thread of the session's bus.
public final class ServiceSession {
    enum State {
        /// No connection. The next request or the retry timer starts the next attempt.
        case offline(ServiceError)
        /// The bus has not answered the handshake.
        case greeting
        /// Connected; the service has been asked nothing yet.
        case idle
        /// The service, which the bus may have to start, has been asked for its list of this program's registrations.
        case asking
        /// There is no service and the bus can't start one, or another program owns its name. The bus announces a new
        /// owner.
        case absent(ServiceError)
        case ready
    }

    let bus: any SessionBus
    let startsService: Bool
    let wish: TransportWish
    let outbox: SharedOutbox
    let receiver: any ServiceReceiver
    private(set) var connection: (any BusConnection)?
    private(set) var state = State.offline(.disconnected("not connected yet")) {
        didSet { if case .ready = state {} else { endDirectSending() } }
    }
    private(set) var owners = ServiceOwners()
    /// The owner of the service's name, as far as the bus has announced it.
    var owner: UniqueName? { owners.present }
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
    var sequence = SequenceCheck()
    var recent = ArrivedNotification.Recent()
    var batching = Batching()
    var channels = Channels()
    /// The number of calls in flight whose answers must arrive before a stop.
    var pendingAnswers = 0
    /// Whether a question to the bus follows the last message that was sent; its answer is one of ``pendingAnswers``.
    var isBusAsked = true
    private var isConnecting = false
    private var wasEverReady = false
    var refusedCalls = RefusedCalls()
    /// The number of the latest question to the service; answers to earlier questions are ignored.
    private(set) var question = 0
    /// Whether the service is asked for its list in pages, because it refused to send the whole list at once.
    private var asksInPages = false
    /// The owner of the name when the question was sent; nil when the owner was unknown.
    private var asked: UniqueName?
    /// The timer that reports a silent service; set while an answer of the service is awaited.
    var silence: AnyObject?
    /// Whether the program was informed that a service, once ready, does not answer.
    var isSilent = false
    /// A counter that changes whenever the service answers.
    var answerCount: UInt64 = 0
    /// The timer of the next confirmation request to the service; set while posts are unconfirmed.
    var confirmationTimer: AnyObject?
    var unresolved: Unresolved?
    var ownerDoubt = OwnerDoubt.none
    /// The timer of the next attempt; nil when none is due.
    private var retry: AnyObject?
    /// Keeps the previous connection alive until its callbacks have returned.
    private var release: AnyObject?
    private var backOff = BackOff()
    private var lastFailure: ContinuousClock.Instant?
    /// The time within which a service that is being started usually answers.
    static let patienceMilliseconds: UInt32 = 5000

    /// - Parameters:
    ///   - startsService: whether the bus may start a service when there is none.
    ///   - wish: the wished transport of posts and notifications; call ``pump()`` after a change.
    ///   - outbox: the program's requests; call ``pump()`` after a request was appended.
    public init(
        bus: any SessionBus, startsService: Bool = true, wish: TransportWish = TransportWish(), outbox: SharedOutbox,
        receiver: any ServiceReceiver
    ) {
        self.bus = bus
        self.startsService = startsService
        self.wish = wish
        self.outbox = outbox
        self.receiver = receiver
    }

    public func start() {
        connect()
    }

    public func stop() {
        channels = Channels()
        connection = nil
    }

    /// Whether ``stop()`` loses no request that could still be sent. Call it again after each turn of the loop, because
    /// each call continues the necessary steps.
    ///
    /// A socket that has accepted all bytes is not enough. A connection that closes with unread input, such as an
    /// answer or a Ping, is reset, and the bus then drops the data that it has not read. Therefore the session asks the
    /// bus a question, whose answer proves that the bus has read all earlier data.
    public func mayStop() -> Bool {
        endDirectSending()
        switch state {
        case .offline, .absent: return true
        case .greeting, .asking: return outbox.isEmpty && outbox.unresolved == 0
        case .idle, .ready:
            if !outbox.isEmpty {
                outbox.hurry()
                pump()
            }
            guard outbox.isEmpty, pendingAnswers == 0, (channels.channel?.sender.unsettled ?? 0) == 0 else {
                return false
            }
            guard !isBusAsked, let connection else { return true }
            isBusAsked = true
            pendingAnswers += 1
            connection.busID { [weak self] _ in self?.pendingAnswers -= 1 }
            return false
        }
    }

    /// Continues with the requests in the outbox.
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

    private var mayTryAgain: Bool {
        lastFailure.map { bus.now - $0 > .seconds(1) } ?? true
    }

    // MARK: The bus

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

    private func greeted() {
        isConnecting = false
        backOff = BackOff()
        connection?.addMatch(OwnerChange.matchRule(for: Wire.busName))
        state = .idle
        if !registrations.isEmpty || suspension != nil { ask() } else { pump() }
    }

    private func disconnected(_ reason: String) {
        // A failed handshake may be followed by the end of the same connection.
        if case .offline = state, !isConnecting { return }
        isConnecting = false
        silence = nil
        // The channel belongs to the unique name that the bus assigned to this connection.
        endChannel(reason)
        channels = Channels()
        owners.reset()
        ownerDoubt = .none
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

    /// Asks the service for its list of this program's registrations, and repairs differences. The call starts the
    /// service where the bus can do that.
    private func ask() {
        guard let connection, let name = connection.uniqueName else { return }
        retry = nil
        state = .asking
        question += 1
        asked = owner
        if asksInPages {
            askForPiece(behind: [], of: name, on: connection)
        } else {
            ask(ListObservers(of: name.rawValue), on: connection) { [unowned self] listed, sender in
                answered(listed, by: sender)
            }
        }
        guard case .asking = state, silence == nil else { return }
        awaitAnswer()
    }

    /// Sends a question. Its answer is ignored if a later question was sent meanwhile.
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
                    notACenter(because: error)
                }
            case .failure(let error): askingFailed(error)
            }
        }
    }

    private func askForPiece(
        behind listed: [ListedObserver], of name: UniqueName, on connection: any BusConnection
    ) {
        var all = listed
        let last = listed.last?.id ?? ObserverID(rawValue: 0)
        ask(ListObserversFrom(of: name.rawValue, after: last), on: connection) { [unowned self] piece, sender in
            guard let first = piece.first else { return answered(all, by: sender) }
            // Each page must begin after the previous one; otherwise the pages might never end.
            guard first.observer.id > last,
                zip(piece, piece.dropFirst()).allSatisfy({ $0.observer.id < $1.observer.id })
            else { return notACenter(because: .invalidArgs("the observers are not in the order of their numbers")) }
            all += piece.map(\.observer)
            awaitAnswer()
            askForPiece(behind: all, of: name, on: connection)
        }
    }

    private func awaitAnswer() {
        silence = bus.once(milliseconds: Self.patienceMilliseconds) { [weak self] in self?.announceSilence() }
    }

    private func answered(_ listed: [ListedObserver], by sender: UniqueName?) {
        // A former owner of the name may answer as well, but it does not receive the requests that follow.
        if let owner, owner != sender { return askAgain() }
        silence = nil
        asksInPages = false
        let isSame = owner == sender
        owners.answered(sender)
        // A service that answers has the state of its predecessor, which has ended and wrote nothing afterwards.
        if let channel = channels.channel, channel.service != sender { endChannel("the service was replaced") }
        channels.answered(sender)
        let repair = registrations.compare(with: listed)
        // A service without any of these registrations may not know this program, and then numbers its notifications
        // from one.
        if !registrations.areAnyRemembered {
            sequence.mayBeginAnew()
            // Such a service knows no earlier suspension either; it reports a suspension that is in force.
            if isSuspendedByService, suspension != true {
                isSuspendedByService = false
                receiver.suspensionChanged(false, cause: SuspensionCause.none.rawValue)
            }
        }
        // The service answers in order, so it has taken everything that was sent to it before.
        outbox.reset(keeping: channels.channel?.sender.unsettled ?? 0, isTaken: isSame)
        resolveUnresolved()
        isSilent = false
        // The service may be of another version than its predecessor.
        batching = Batching()
        state = .ready
        backOff = BackOff()
        lastFailure = nil
        receiver.stateChanged(.connected)
        if wasEverReady, !registrations.isEmpty { receiver.mayHaveMissed(.serviceChanged) }
        wasEverReady = true
        channels.sentOnBus += 1
        refusedCalls = RefusedCalls()
        if suspension != nil || isSuspensionWithdrawn { callUnawaited(.suspension) }
        if !details.isEmpty { callUnawaited(.details) }
        if !registrations.isEmpty { askForBatches() }
        for id in repair.surplus { callUnawaited(.removal(id)) }
        for key in repair.missing { sendRegistration(of: key) }
        channels.channel?.goOn()
        sendRequests()
    }

    /// Asks the bus for the current owner of the name, whose change it may not have announced, and then asks that
    /// owner.
    private func askAgain() {
        let number = question
        connection?.nameOwner(of: Wire.busName) { [weak self] result in
            guard let self, case .asking = state, number == question else { return }
            let former = self.owner
            if let owner = result.owner, owners.change(to: owner) {
                outbox.reset()
                resolvePosts(of: former)
            }
            ask()
        }
    }

    private func askingFailed(_ error: BusError) {
        if error.meansAnotherProgram {
            guard asksInPages else { return notACenter(because: error) }
            // The service may be an older version without this method.
            asksInPages = false
            return tryAgainLater { [unowned self] in ask() }
        }
        if error.centerError == .limitExceeded {
            // The service is overloaded, or its list exceeds the size of one answer. Posts wait for a while, and then
            // fail.
            silence = nil
            asksInPages = true
            let isLong = backOff.isLong
            tryAgainLater { [unowned self] in ask() }
            if isLong { becomeAbsent(ServiceError(error), telling: .notAnswering("\(Wire.busName): \(error.message)")) }
            return
        }
        guard error.meansNotServed || (error.meansNoService && owner == nil) else {
            // The service ended before it answered, or is busy starting and the bus dropped the messages that waited
            // for it.
            giveUpUnresolved(because: "the service has ended")
            return tryAgainLater { [unowned self] in ask() }
        }
        becomeAbsent(ServiceError(error), telling: .serviceUnavailable(error.message))
    }

    private func becomeAbsent(_ reason: ServiceError, telling told: ConnectionState) {
        silence = nil
        lastFailure = bus.now
        // An overloaded service exists, and may still take posts that are in flight.
        if case .refused(let error) = reason, error.centerError == .limitExceeded {} else { outbox.reset() }
        giveUpUnresolved(because: "there is no service")
        state = .absent(reason)
        receiver.stateChanged(told)
        settleWithoutService(reason)
    }

    /// Handles an owner of the service's name that does not answer as a notification center. The session asks again
    /// when the name has another owner, and with a later request.
    func notACenter(because error: BusError) {
        owners.isNoCenter()
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

    /// Reports that the service does not answer, because it is slow or stopped. The session keeps waiting.
    func announceSilence() {
        silence = nil
        guard case .asking = state else { return }
        let number = question
        let tell = { [weak self] (words: String) in
            guard let self, case .asking = state, number == question else { return }
            receiver.stateChanged(.notAnswering("\(Wire.busName) \(words)"))
        }
        describeOwner { [weak self] owner in
            if let owner { return tell("is owned by \(owner), which does not answer") }
            tell("has no owner yet, as the service is still being started")
            guard let self, startsService, case .asking = state, number == question else { return }
            startByManager { refusal in tell("has no owner: systemd does not start \(Wire.unit): \(refusal.message)") }
        }
    }

    func ownerChanged(to newOwner: UniqueName?) {
        let former = owner
        guard owners.change(to: newOwner) else { return }
        // This also applies while an answer is awaited: posts in flight went to the former owner.
        endDirectSending()
        outbox.reset()
        resolvePosts(of: former)
        switch state {
        case .offline, .greeting, .idle: break
        // The pending answer would come from a former owner.
        case .asking: if asked != nil { ask() }
        case .absent: if newOwner != nil { ask() }
        case .ready:
            (silence, isSilent) = (nil, false)
            receiver.stateChanged(.connecting)
            ask()
        }
    }

    /// Schedules another question to the service, because it did not answer a request.
    func requeryService() {
        guard case .ready = state, retry == nil else { return }
        tryAgainLater { [unowned self] in if case .ready = state { ask() } }
    }

    private func tryAgainLater(_ action: @escaping () -> Void) {
        retry = bus.once(milliseconds: backOff.next()) { [weak self] in
            self?.retry = nil
            action()
        }
    }
}

/// A call whose result the program does not await.
enum UnawaitedCall: Hashable {
    /// The program's latest request about its suspension.
    case suspension
    case removal(ObserverID)
    case details
    case batches
}

/// The calls that an overloaded service refused, to be repeated later.
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

    /// Whether attempts have failed for more than ten seconds.
    var isLong: Bool { milliseconds > 6_400 }

    mutating func next() -> UInt32 {
        defer { milliseconds = min(milliseconds * 2, 30_000) }
        return milliseconds
    }
}
