import BusNames
import DBus
import MainLoop
import NotificationCore
import NotificationWire

/// The address of a bus, in the syntax of D-Bus, or why there is none.
typealias BusAddress = @Sendable () throws(BusError) -> String

/// What a ``ServiceSession`` reports. Called on the bus thread; must not block.
protocol ServiceReceiver: Sendable {
    /// - Parameter keys: the registrations that it matched, as the service says.
    func received(_ signal: NotificationSignal, for keys: [RegistrationKey])
    func stateChanged(_ state: DistributedNotificationCenter.ConnectionState)
    func mayHaveMissed(_ gap: DistributedNotificationCenter.Gap)
    /// A post of which nobody waits for the outcome was not made.
    func lostPost(because error: DistributedNotificationError)
    func registrationRefused(_ key: RegistrationKey, because error: DistributedNotificationError)
    func suspensionChanged(_ isSuspended: Bool, cause: String)
}

/// One program's dealings with the service: connects to the bus, has the service started, registers, posts, and does
/// it again whenever the bus or the service is another one (E3).
///
/// This file has the states and their changes; `+Requests` what is sent, `+Signals` what arrives. Threads: everything
/// on the bus thread, but `init`.
final class ServiceSession {
    enum State {
        /// No connection. The next attempt comes with the next request, or with the timer.
        case offline(DistributedNotificationError)
        /// The bus has not answered the handshake.
        case greeting
        /// Connected, and nothing was wanted of the service yet.
        case idle
        /// The service, which the bus may have to start, was asked what it has of ours.
        case asking
        /// There is no service and the bus can't start one. Its coming is announced.
        case absent(DistributedNotificationError)
        case ready
    }

    private let address: BusAddress
    private let context: MainContext
    let outbox: SharedOutbox
    let receiver: any ServiceReceiver
    private(set) var connection: Connection?
    private(set) var state = State.offline(.disconnected("not connected yet"))
    /// Who has the service's name, as far as the bus told. Nobody else's signals are believed.
    var owner: UniqueName?
    var registrations = Registrations()
    /// The program's word; nil when it gave none.
    var suspension: Bool?
    var sequence = SequenceCheck()
    /// Barriers whose answer is on its way.
    var pendingAnswers = 0
    private var isConnecting = false
    private var wasEverReady = false
    private var retry: EventSource?
    /// Holds the last connection until its callbacks have returned.
    private var release: EventSource?
    private var backOff = BackOff()
    private var lastFailure: ContinuousClock.Instant?

    init(address: @escaping BusAddress, context: MainContext, outbox: SharedOutbox, receiver: any ServiceReceiver) {
        self.address = address
        self.context = context
        self.outbox = outbox
        self.receiver = receiver
    }

    func start() {
        connect()
    }

    func stop() {
        connection = nil
    }

    /// Whether nothing is left to send that could be sent.
    var isAtRest: Bool {
        switch state {
        case .offline, .absent: true
        case .greeting, .asking: outbox.isEmpty
        case .idle, .ready: outbox.isEmpty && pendingAnswers == 0 && (connection?.outgoingBytes ?? 0) == 0
        }
    }

    /// Goes on with what waits in the outbox.
    func pump() {
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
        lastFailure.map { ContinuousClock.now - $0 > .seconds(1) } ?? true
    }

    // MARK: The bus

    private func connect() {
        retry = nil
        isConnecting = true
        do throws(BusError) {
            let connection = try Connection(address: try address(), context: context)
            connection.onMessage = { [unowned self] message in handle(message) }
            connection.onDisconnect = { [weak self] in self?.disconnected(.disconnected("the bus closed it")) }
            self.connection = connection
            state = .greeting
            connection.hello { [weak self] result in
                guard let self else { return }
                switch result {
                case .success: greeted()
                case .failure(let error): disconnected(.disconnected(error.message))
                }
            }
        } catch {
            disconnected(.disconnected(error.message))
        }
    }

    private func greeted() {
        isConnecting = false
        backOff = BackOff()
        connection?.addMatch(OwnerChange.matchRule(for: Wire.busName))
        state = .idle
        if !registrations.isEmpty || suspension != nil { ask() } else { pump() }
    }

    private func disconnected(_ error: DistributedNotificationError) {
        // A handshake that fails may be followed by the end of the connection.
        if case .offline = state, !isConnecting { return }
        isConnecting = false
        owner = nil
        registrations.reset()
        sequence.reset()
        outbox.reset()
        state = .offline(error)
        lastFailure = .now
        // Not released inside its own callback.
        if let old = connection {
            release = .idle(on: context, priority: .default) {
                withExtendedLifetime(old) {}
                return .remove
            }
        }
        connection = nil
        receiver.stateChanged(.disconnected(error.description))
        settleWithoutService(error)
        if !registrations.isEmpty { tryAgainLater { [unowned self] in connect() } }
    }

    // MARK: The service

    /// Asks the service what it has of ours, which starts it where the bus can, and repairs that.
    private func ask() {
        guard let connection, let name = connection.uniqueName else { return }
        retry = nil
        state = .asking
        connection.call(ListObservers(of: name.rawValue).message()) { [weak self, weak connection] result in
            guard let self, connection === self.connection, case .asking = state else { return }
            switch result {
            case .success(let reply): answered(reply)
            case .failure(let error): askingFailed(error)
            }
        }
    }

    private func answered(_ reply: Message) {
        owner = reply.sender
        let repair = registrations.compare(with: (try? ListObservers.reply(in: reply)) ?? [])
        // A service that knows none of ours counts our notifications from one.
        if !registrations.areAnyKnown { sequence.reset() }
        outbox.reset()
        if let suspension { connection?.send(SetSuspended(suspension)) }
        for id in repair.surplus { connection?.send(RemoveObserver(id)) }
        for key in repair.missing { sendRegistration(of: key) }
        state = .ready
        backOff = BackOff()
        lastFailure = nil
        receiver.stateChanged(.connected)
        if wasEverReady, !registrations.isEmpty { receiver.mayHaveMissed(.serviceChanged) }
        wasEverReady = true
        sendRequests()
    }

    private func askingFailed(_ error: BusError) {
        if error.meansNoService, owner == nil {
            let reason = DistributedNotificationError.serviceUnavailable(error.message)
            lastFailure = .now
            state = .absent(reason)
            receiver.stateChanged(.serviceUnavailable(error.message))
            settleWithoutService(reason)
        } else {
            // It ended while it was asked, or is busy starting.
            tryAgainLater { [unowned self] in ask() }
        }
    }

    func ownerChanged(to newOwner: UniqueName?) {
        guard newOwner != owner else { return }
        owner = newOwner
        switch state {
        case .offline, .greeting, .idle, .asking: break
        case .absent: if newOwner != nil { ask() }
        case .ready:
            outbox.reset()
            receiver.stateChanged(.connecting)
            ask()
        }
    }

    /// The service has to be asked again, as it did not answer a request.
    func doubtService() {
        guard case .ready = state, retry?.isPending != true else { return }
        tryAgainLater { [unowned self] in if case .ready = state { ask() } }
    }

    private func tryAgainLater(_ action: @escaping () -> Void) {
        retry = .once(milliseconds: backOff.next(), on: context, action: action)
    }
}

/// Growing times between attempts.
private struct BackOff {
    private var milliseconds: UInt32 = 50

    mutating func next() -> UInt32 {
        defer { milliseconds = min(milliseconds * 2, 30_000) }
        return milliseconds
    }
}
