// SPDX-License-Identifier: Apache-2.0
import CarillonClient
import CarillonDBus
import CarillonMainLoop
import CarillonWire

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// One run of a command that needs the service: it connects, sends requests from the main loop, and ends with an exit
/// code.
///
/// It uses the client of the Swift library, `ServiceSession`. An error of the bus or the service ends the run: the
/// session prints it with advice, and returns the exit code for it. A command starts it with ``run(startsService:_:)``.
final class CommandSession: @unchecked Sendable {
    // Sendable: the command has one thread, on which everything here runs.

    /// The receiver of notifications and other events, for a command that continues until it is ended. ``Observation``
    /// is one.
    protocol Listener: AnyObject {
        func received(_ notification: ArrivedNotification)
        func mayHaveMissed(_ gap: Gap)
        func stateChanged(_ state: ConnectionState)
    }

    /// The listener; nil for a command that only makes calls or posts.
    weak var listener: (any Listener)?
    private let loop = EventLoop()
    private let outbox = SharedOutbox()
    private var session: ServiceSession!
    private let startsService: Bool
    /// Whether `session` was started. Before, requests are only queued.
    private var hasStarted = false
    /// Whether a service has been connected, so that a later disconnection is a loss.
    private var hasBeenServed = false
    /// The code with which the run ends; nil while it continues.
    private var exitCode: ExitCode?
    /// The timers and signal handlers of the run.
    private var sources: [EventSource] = []

    private init(startsService: Bool) {
        self.startsService = startsService
        // `wish` is the transport of posts and notifications: a channel if the user's environment requests one,
        // otherwise the bus.
        session = ServiceSession(
            bus: LoopBus(address: { () throws(BusError) in try Connection.sessionBusAddress() }, context: .default),
            startsService: startsService, wish: TransportPreference(ofUser: .ofEnvironment), outbox: outbox,
            receiver: self)
    }

    /// Calls `start`, which submits the first requests, and then runs the loop until ``finish(_:)``.
    ///
    /// - Parameter startsService: whether the bus may start a service if there is none.
    static func run<Failure: Error>(
        startsService: Bool = true, _ start: (CommandSession) throws(Failure) -> Void
    ) throws(Failure) -> ExitCode {
        let session = CommandSession(startsService: startsService)
        try start(session)
        session.hasStarted = true
        session.session.start()
        if session.exitCode == nil { session.loop.run() }
        return session.exitCode ?? .done
    }

    /// Whether the run is over, so that no event is reported any more.
    var hasEnded: Bool { exitCode != nil }

    /// Ends the run. The code of the first call counts.
    func finish(_ code: ExitCode) {
        exitCode = exitCode ?? code
        loop.quit()
    }

    // MARK: Requests

    /// Queues a request, and sends it as soon as the service is connected. Its result goes to the request's completion.
    func submit(_ request: Request) {
        do throws(ServiceError) {
            try outbox.append(request)
        } catch {
            fail(error)
        }
        if hasStarted { session.pump() }
    }

    /// Calls a method of the service. `answer` receives the reply; an error ends the run instead.
    func ask<Method: CenterMethod>(_ method: Method, _ answer: @escaping @Sendable (Method.Reply) -> Void) {
        submit(.call(method) { [self] in take($0, answer) })
    }

    /// Requests all properties of the service. `answer` receives them; an error ends the run instead.
    func askProperties(_ answer: @escaping @Sendable (CenterProperties) -> Void) {
        submit(.properties { [self] in take($0, answer) })
    }

    private func take<Value>(_ result: Result<Value, ServiceError>, _ answer: (Value) -> Void) {
        switch result {
        case .success(let value): answer(value)
        case .failure(let error): fail(error)
        }
    }

    // MARK: Output

    /// Prints a line on standard output; a failure ends the run. Nothing is printed after the end.
    func print(_ line: String) {
        if exitCode == nil, !Output.write(line) { finish(.outputFailed) }
    }

    /// Ends the run with the exit code for an error of the bus or the service, and prints the error.
    func fail(_ error: ServiceError) {
        guard exitCode == nil else { return }
        if case .unavailable = error, !startsService {
            printError("carillon: the service does not run")
        } else {
            printError("carillon: \(error)\(Advice.after(error).map { "\n\($0)" } ?? "")")
        }
        if case .refused(let error) = error, error.isRefusal { finish(.usage) } else { finish(.unavailable) }
    }

    // MARK: Timers and signals

    /// Runs an action once, after a time in seconds.
    func after(_ seconds: Double, _ action: @escaping () -> Void) {
        sources.append(.once(milliseconds: UInt32(max(1, seconds * 1000)), on: .default, action: action))
    }

    /// Ends the run on the signals SIGINT and SIGTERM, with the exit code that `code` returns then.
    func finishWhenInterrupted(_ code: @escaping () -> ExitCode) {
        for signal in [SIGINT, SIGTERM] {
            sources.append(
                .unixSignal(signal, on: .default) { [unowned self] in
                    finish(code())
                    return .remove
                })
        }
    }
}

extension CommandSession: ServiceReceiver {
    func received(_ notification: ArrivedNotification, for _: [RegistrationKey]) {
        if exitCode == nil { listener?.received(notification) }
    }

    func mayHaveMissed(_ gap: Gap) {
        if exitCode == nil { listener?.mayHaveMissed(gap) }
    }

    func stateChanged(_ state: ConnectionState) {
        if case .disconnected(let reason) = state {
            guard exitCode == nil else { return }
            printError(hasBeenServed ? "carillon: \(reason)" : "carillon: no bus: \(reason)\n\(Advice.withoutBus)")
            return finish(.unavailable)
        }
        if state == .connected { hasBeenServed = true }
        // A listener reports this itself.
        if case .notAnswering(let reason) = state, listener == nil, exitCode == nil {
            printError("carillon: \(reason); waiting for it")
        }
        if !hasEnded { listener?.stateChanged(state) }
    }

    func registrationRefused(_: RegistrationKey, because error: ServiceError) { fail(error) }
    func detailsRefused(because error: ServiceError) { fail(error) }
    func lostPosts(_: Int, because error: ServiceError) { fail(error) }
    /// No command shows its own suspension.
    func suspensionChanged(_: Bool, cause _: String) {}
}
