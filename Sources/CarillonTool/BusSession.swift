import DBus
import MainLoop
import NotificationWire

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// One run of a command on the session bus: a connection and a loop that ends with an exit code.
final class BusSession {
    let connection: Connection
    private let loop = EventLoop()
    private var exitCode: ExitCode?
    private var sources: [EventSource] = []

    private init() throws(BusError) {
        connection = try Connection(address: try Connection.sessionBusAddress())
    }

    /// Connects, calls `start` when the bus has accepted the connection, and runs until ``finish(_:)``.
    static func run(_ start: (BusSession) -> Void) -> ExitCode {
        do throws(BusError) {
            let session = try BusSession()
            return session.run(start)
        } catch {
            printError("carillon: no bus: \(error.message)")
            return .unavailable
        }
    }

    private func run(_ start: (BusSession) -> Void) -> ExitCode {
        connection.onDisconnect = { [unowned self] in
            printError("carillon: the bus closed the connection")
            finish(.unavailable)
        }
        var failure: BusError?
        var isReady = false
        connection.hello { result in
            switch result {
            case .success: isReady = true
            case .failure(let error): failure = error
            }
        }
        while !isReady && failure == nil && exitCode == nil { connection.context.iterate(mayBlock: true) }
        if let failure {
            printError("carillon: the bus refused the connection: \(failure)")
            return .unavailable
        }
        if exitCode == nil { start(self) }
        if exitCode == nil { loop.run() }
        return exitCode ?? .done
    }

    /// Ends the run. The first code counts.
    func finish(_ code: ExitCode) {
        exitCode = exitCode ?? code
        loop.quit()
    }

    /// Ends the run with what an error of the bus or the service means, and says it.
    func fail(_ error: BusError) {
        printError("carillon: \(error.name.rawValue.hasPrefix("org.carillon.") ? error.message : error.description)")
        finish(error.name.rawValue.hasPrefix("org.carillon.Error.") ? .usage : .unavailable)
    }

    func finish(_ code: ExitCode, afterSeconds seconds: Double) {
        sources.append(
            .timer(milliseconds: UInt32(max(1, seconds * 1000)), on: connection.context) { [unowned self] in
                finish(code)
                return .remove
            })
    }

    /// Ends the run on SIGINT and SIGTERM, with what `code` says then.
    func finishWhenInterrupted(_ code: @escaping () -> ExitCode) {
        for signal in [SIGINT, SIGTERM] {
            sources.append(
                .unixSignal(signal, on: connection.context) { [unowned self] in
                    finish(code())
                    return .remove
                })
        }
    }
}
