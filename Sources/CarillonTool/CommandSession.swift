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

/// One run of a command: a client of the service on the main loop, which ends with an exit code.
///
/// It is the same client as in the Swift library. The command prints on standard error the events that the library
/// reports to its program.
final class CommandSession: @unchecked Sendable {
    // Sendable: the command has one thread, on which everything here runs.

    /// The receiver of events for a command that continues for a while.
    protocol Listener: AnyObject {
        func received(_ notification: ArrivedNotification)
        func mayHaveMissed(_ gap: Gap)
        func stateChanged(_ state: ConnectionState)
    }

    weak var listener: (any Listener)?
    private let loop = EventLoop()
    private let outbox = SharedOutbox()
    private var session: ServiceSession!
    private let startsService: Bool
    private var hasStarted = false
    private var hasBeenServed = false
    private var exitCode: ExitCode?
    private var sources: [EventSource] = []

    private init(startsService: Bool) {
        self.startsService = startsService
        session = ServiceSession(
            bus: LoopBus(address: { () throws(BusError) in try Connection.sessionBusAddress() }, context: .default),
            startsService: startsService, wish: TransportWish(ofUser: .ofEnvironment), outbox: outbox, receiver: self)
    }

    /// Calls `start`, which submits the requests, and runs until ``finish(_:)``.
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

    func submit(_ request: Request) {
        do throws(ServiceError) {
            try outbox.append(request)
        } catch {
            fail(error)
        }
        if hasStarted { session.pump() }
    }

    /// Calls a method of the service; an error ends the run.
    func ask<Method: CenterMethod>(_ method: Method, _ answer: @escaping @Sendable (Method.Reply) -> Void) {
        submit(.call(method) { [self] in take($0, answer) })
    }

    /// Asks for all properties of the service; an error ends the run.
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

    /// Prints a line for the caller; a failure ends the run.
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

    /// Ends the run on SIGINT and SIGTERM, with the exit code that `code` returns then.
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
        if case .notAnswering(let reason) = state, listener == nil, exitCode == nil {
            printError("carillon: \(reason); waiting for it")
        }
        if !hasEnded { listener?.stateChanged(state) }
    }

    func registrationRefused(_: RegistrationKey, because error: ServiceError) { fail(error) }
    func detailsRefused(because error: ServiceError) { fail(error) }
    func lostPosts(_: Int, because error: ServiceError) { fail(error) }
    func suspensionChanged(_: Bool, cause _: String) {}
}
