// SPDX-License-Identifier: Apache-2.0
import CarillonDBus
import CarillonMainLoop
import CarillonService
import CarillonWire

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// The program `carillond`: parses its arguments, and runs the notification service on the session bus until a signal ends it
/// or the bus is gone.
@main
struct Carillond {
    /// The exit codes, as in the manual page carillond(1).
    enum ExitCode: Int32 {
        /// Ended by a signal, or after `--help`, `--version` or a successful `--check`.
        case done = 0
        /// The arguments are wrong, or `--check` has found a mistake.
        case usage = 1
        /// The service could not connect to the session bus.
        case noBus = 2
        /// Another process owns the service's bus name, or the bus gave the name to another process.
        case nameTaken = 3
        /// The bus is gone, or has closed the connection and accepts no new one.
        case disconnected = 4
        /// The output could not be written; used by ``CommandLineParser/end(writing:)``.
        case outputFailed = 5
    }

    static func main() {
        let parser = CommandLineParser(
            program: "carillond", usage: "[--check [FILE ...]]",
            summary: "Serves the distributed notification center on the session bus.")
        let version = parser.flag("version", help: "Show the version and exit")
        let verbose = parser.flag("verbose", short: "v", help: "Log all messages, including routine ones")
        let check = parser.flag("check", help: "Check FILE, or the installed configuration, and exit")
        var files: [String] = []
        do throws(CommandLineParser.UsageError) {
            files = try parser.parse(try CommandLineParser.processArguments())
            if let file = files.first, !parser.value(check) {
                throw CommandLineParser.UsageError("unexpected argument '\(file)'")
            }
        } catch {
            printError("carillond: \(error)\nTry 'carillond --help'.")
            exit(ExitCode.usage.rawValue)
        }
        if parser.value(version) {
            CommandLineParser.end(writing: "carillond \(Wire.softwareVersion)")
        }
        // Without files, `--check` checks the installed configuration. It ends the process.
        if parser.value(check) {
            let reading = files.isEmpty ? Configuration.Reading.ofMachine() : Configuration.Reading(paths: files)
            ConfigurationReport(
                files: reading.files, faults: reading.faults, named: files,
                none: "there is no carillon/carillon.conf: the defaults are in force"
            ).end()
        }
        Log.useStandardError()
        if parser.value(verbose) {
            Log.showAll()
        } else if getenv("DBUS_STARTER_ADDRESS") != nil, !Log.goesToJournal {
            // Bus activation has started the service, for example under dbus-run-session. Standard error is then the
            // terminal of another program, which gets only warnings and errors.
            Log.hideNotices()
        }
        exit(serve().rawValue)
    }

    /// Runs the service until a signal ends it or it can't continue. Returns the exit code.
    private static func serve() -> ExitCode {
        // Without these, a write to a file at its size limit or to a closed pipe would end the process. The writers handle
        // the error instead.
        signal(SIGXFSZ, SIG_IGN)
        signal(SIGPIPE, SIG_IGN)
        let loop = EventLoop()
        var result = ExitCode.done
        do throws(Service.End) {
            let service = try Service(address: try sessionBusAddress()) { reason in
                result = report(reason)
                loop.quit()
            }
            let signals = ControlSignals {
                service.reloadConfiguration()
            } end: { signal in
                Log.notice("ended by signal \(signal)")
                service.stop { loop.quit() }
            }
            service.start()
            loop.run()
            withExtendedLifetime((service, signals)) {}
        } catch {
            result = report(error)
        }
        return result
    }

    /// Returns the address of the session bus from the environment.
    private static func sessionBusAddress() throws(Service.End) -> String {
        do throws(BusError) {
            return try Connection.sessionBusAddress()
        } catch {
            throw .noBus(error)
        }
    }

    /// Logs the reason for the end of the service. Returns its exit code.
    private static func report(_ reason: Service.End) -> ExitCode {
        switch reason {
        case .noBus(let error):
            Log.critical("no bus: \(error)")
            return .noBus
        case .nameTaken:
            Log.critical("\(Wire.busName) is owned by another process: is a carillond running already?")
            return .nameTaken
        case .nameLost:
            Log.critical("the bus took \(Wire.busName) away from this process")
            return .nameTaken
        case .busGone:
            // The usual end of a session, so it is no error in the log.
            Log.notice("the bus closed the connection, and is gone")
            return .disconnected
        case .disconnected:
            Log.critical("the bus closed the connection and accepts no new one; the state is kept")
            return .disconnected
        }
    }
}
