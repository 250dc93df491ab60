// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCollections
import CarillonCore
import CarillonDBus
import CarillonWire

/// One program's dealings with the service: connects to the bus, has the service started, registers, posts, and does
/// it again whenever the bus or the service is another one (E3).
///
/// This file has the states and their changes; `+Requests` what is sent, `+Signals` what arrives, `+Batches` what goes
/// together, `+Channel` the way beside the bus. Threads: everything on the thread of its bus, but `init`.
public final class ServiceSession {
    enum State {
        /// No connection. The next attempt comes with the next request, or with the timer.
        case offline(ServiceError)
        /// The bus has not answered the handshake.
        case greeting
        /// Connected, and nothing was wanted of the service yet.
        case idle
        /// The service, which the bus may have to start, was asked what it has of ours.
        case asking
        /// There is no service and the bus can't start one, or its name is a stranger's. Its coming is announced.
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
        didSet { if case .ready = state {} else { takeLineBack() } }
    }
    private(set) var owners = ServiceOwners()
    /// Who has the service's name, as far as the bus told.
    var owner: UniqueName? { owners.present }
    var registrations = Registrations()
    /// The program's word; nil when it gave none, or took it back.
    var suspension: Bool?
    /// By the service's last word.
    var isSuspendedByService = false
    /// Whether it took it back: a service that ended just then may have left the word to the next one.
    var isSuspensionTakenBack = false
    /// What the program wants to be told besides (P1).
    var details: Details = []
    var sequence = SequenceCheck()
    var recent = ArrivedNotification.Recent()
    var batching = Batching()
    var channels = Channels()
    /// Calls whose answer is on its way, and matters.
    var pendingAnswers = 0
    /// Whether the bus was asked something behind all that was sent; its answer is one of ``pendingAnswers``.
    var isBusAsked = true
    private var isConnecting = false
    private var wasEverReady = false
    var refusedCalls = RefusedCalls()
    /// The last time that the service was asked; answers to earlier questions are not waited for.
    private(set) var question = 0
    /// Whether the service is asked piece by piece, as it refused to say all at once.
    private var asksInPieces = false
    /// Who had the name when it was asked; nil where that was not known.
    private var asked: UniqueName?
    /// Set while an answer of the service is awaited: its silence is announced in the end.
    var silence: AnyObject?
    /// Whether a service that was ready does not answer, as the program was told.
    var isSilent = false
    /// Another number whenever the service has answered.
    var answerCount: UInt64 = 0
    /// Set while posts are not confirmed, until the service is asked about them.
    var confirmationTimer: AnyObject?
    var unresolved: Unresolved?
    var ownerDoubt = OwnerDoubt.none
    /// Set while another attempt is due.
    private var retry: AnyObject?
    /// Holds the last connection until its callbacks have returned.
    private var release: AnyObject?
    private var backOff = BackOff()
    private var lastFailure: ContinuousClock.Instant?
    /// A service that is started has answered by then, as a rule.
    static let patienceMilliseconds: UInt32 = 5000

    /// - Parameters:
    ///   - startsService: let the bus start a service when there is none.
    ///   - wish: how posts and notifications shall go; call ``pump()`` when it has changed.
    ///   - outbox: what the program asks for; call ``pump()`` when something came into it.
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

    /// Whether ``stop()`` loses nothing that was asked for and could be sent. To be asked again after each turn of the
    /// loop: it is found out on the way.
    ///
    /// That the socket took all is not enough. A connection that is closed while something waits unread in it, and that
    /// may be an answer or a Ping, is reset, and the bus then drops what it has not read. So the bus is asked something,
    /// and has read all that was sent before when it answers.
    public func mayStop() -> Bool {
        takeLineBack()
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

    /// Goes on with what waits in the outbox.
    public func pump() {
        switch state {
        case .greeting, .asking: break
        case .ready: sendRequests()
        case .idle: if !outbox.isEmpty { ask() }
        case .absent(let error), .offline(let error):
            guard !outbox.isEmpty else { return }
            // A program that posts in a loop shall not make the bus try to start a service for each post.
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
        // A handshake that fails may be followed by the end of the connection.
        if case .offline = state, !isConnecting { return }
        isConnecting = false
        silence = nil
        // It belongs to the name that the bus gave us.
        endChannel(reason)
        channels = Channels()
        owners.reset()
        ownerDoubt = .none
        isSuspensionTakenBack = false
        refusedCalls = RefusedCalls()
        registrations.reset()
        sequence.reset()
        batching = Batching()
        takeLineBack()
        outbox.reset()
        isSilent = false
        announceUnresolved(because: reason)
        let error = ServiceError.disconnected(reason)
        state = .offline(error)
        lastFailure = bus.now
        // Not released inside its own callback.
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

    /// The name of its connection to the bus; nil without one.
    public var uniqueName: UniqueName? { connection?.uniqueName }

    // MARK: The service

    /// Asks the service what it has of ours, which starts it where the bus can, and repairs that.
    private func ask() {
        guard let connection, let name = connection.uniqueName else { return }
        retry = nil
        state = .asking
        question += 1
        asked = owner
        if asksInPieces {
            askForPiece(behind: [], of: name, on: connection)
        } else {
            ask(ListObservers(of: name.rawValue), on: connection) { [unowned self] listed, sender in
                answered(listed, by: sender)
            }
        }
        guard case .asking = state, silence == nil else { return }
        awaitAnswer()
    }

    /// Takes the answer unless another question was asked since.
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
            // Each piece is behind the one before, or there would be no end.
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
        // One that gave its name up since may answer as well, and knows nothing of what comes.
        if let owner, owner != sender { return askAgain() }
        silence = nil
        asksInPieces = false
        let isSame = owner == sender
        owners.answered(sender)
        // One that answers has the state of the one before, which has ended and written nothing since.
        if let channel = channels.channel, channel.service != sender { endChannel("the service is another one") }
        channels.answered(sender)
        let repair = registrations.compare(with: listed)
        // A service that remembers none of ours may not know us, and then counts our notifications from one.
        if !registrations.areAnyRemembered {
            sequence.mayBeginAnew()
            // Nor does it know of a suspension; one that there is it tells.
            if isSuspendedByService, suspension != true {
                isSuspendedByService = false
                receiver.suspensionChanged(false, cause: SuspensionCause.none.rawValue)
            }
        }
        // It answers in order: what was sent to it before is taken.
        outbox.reset(keeping: channels.channel?.sender.unsettled ?? 0, isTaken: isSame)
        resolveUnresolved()
        isSilent = false
        // It may be of another version than the one before.
        batching = Batching()
        state = .ready
        backOff = BackOff()
        lastFailure = nil
        receiver.stateChanged(.connected)
        if wasEverReady, !registrations.isEmpty { receiver.mayHaveMissed(.serviceChanged) }
        wasEverReady = true
        channels.sentOnBus += 1
        refusedCalls = RefusedCalls()
        if suspension != nil || isSuspensionTakenBack { callUnawaited(.suspension) }
        if !details.isEmpty { callUnawaited(.details) }
        if !registrations.isEmpty { askForBatches() }
        for id in repair.surplus { callUnawaited(.removal(id)) }
        for key in repair.missing { sendRegistration(of: key) }
        channels.channel?.goOn()
        sendRequests()
    }

    /// Asks who has the name by now, of which the bus need not have told, and that one.
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
            guard asksInPieces else { return notACenter(because: error) }
            // An older service, perhaps, that can't be asked so.
            asksInPieces = false
            return tryAgainLater { [unowned self] in ask() }
        }
        if error.centerError == .limitExceeded {
            // It is overloaded, or has more to say than one answer may hold. Posts wait for a while, and then fail.
            silence = nil
            asksInPieces = true
            let isLong = backOff.isLong
            tryAgainLater { [unowned self] in ask() }
            if isLong { becomeAbsent(ServiceError(error), telling: .notAnswering("\(Wire.busName): \(error.message)")) }
            return
        }
        guard error.meansNotServed || (error.meansNoService && owner == nil) else {
            // It ended while it was asked, or is busy starting: the bus has given up what waited for it.
            giveUpUnresolved(because: "the service has ended")
            return tryAgainLater { [unowned self] in ask() }
        }
        becomeAbsent(ServiceError(error), telling: .serviceUnavailable(error.message))
    }

    private func becomeAbsent(_ reason: ServiceError, telling told: ConnectionState) {
        silence = nil
        lastFailure = bus.now
        // An overloaded one is there, and may still take what is on its way.
        if case .refused(let error) = reason, error.centerError == .limitExceeded {} else { outbox.reset() }
        giveUpUnresolved(because: "there is no service")
        state = .absent(reason)
        receiver.stateChanged(told)
        settleWithoutService(reason)
    }

    /// Whoever has the service's name answered as no notification center does. It is asked again when the name has
    /// another owner, and with a later request.
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

    /// The service may be slow, or stopped: it is waited for, and the program told that.
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
        // Also while it is asked something: posts on their way went to the one before.
        takeLineBack()
        outbox.reset()
        resolvePosts(of: former)
        switch state {
        case .offline, .greeting, .idle: break
        // Its answer would be that of a former owner.
        case .asking: if asked != nil { ask() }
        case .absent: if newOwner != nil { ask() }
        case .ready:
            (silence, isSilent) = (nil, false)
            receiver.stateChanged(.connecting)
            ask()
        }
    }

    /// The service has to be asked again, as it did not answer a request.
    func doubtService() {
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

/// A call whose result no program waits for.
enum UnawaitedCall: Hashable {
    /// The program's latest request about its suspension.
    case suspension
    case removal(ObserverID)
    case details
    case batches
}

/// Calls that an overloaded service refused, to be made again.
struct RefusedCalls {
    private var waiting = Deque<UnawaitedCall>()
    private var contained: Set<UnawaitedCall> = []
    /// Set while another attempt is due.
    var attempt: AnyObject?
    /// Whether one of them is being made again.
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

/// Growing times between attempts.
struct BackOff {
    private var milliseconds: UInt32 = 50

    /// Whether attempts have failed for more than ten seconds.
    var isLong: Bool { milliseconds > 6_400 }

    mutating func next() -> UInt32 {
        defer { milliseconds = min(milliseconds * 2, 30_000) }
        return milliseconds
    }
}
