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

@main
struct Carillond {
    /// The exit codes, which the manual page explains.
    enum ExitCode: Int32 {
        case done = 0
        case usage = 1
        case noBus = 2
        case nameTaken = 3
        case disconnected = 4
        /// Set by ``CommandLineParser/end(writing:)``.
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
            // Started by a bus, such as that of dbus-run-session: the terminal is another program's, and gets only
            // warnings and errors.
            Log.hideNotices()
        }
        exit(serve().rawValue)
    }

    /// Serves until a signal, or until the service can't go on.
    private static func serve() -> ExitCode {
        // A write to a full file or a closed pipe fails with an error, which the writer handles.
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

    private static func sessionBusAddress() throws(Service.End) -> String {
        do throws(BusError) {
            return try Connection.sessionBusAddress()
        } catch {
            throw .noBus(error)
        }
    }

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
            // A session ends this way.
            Log.notice("the bus closed the connection, and is gone")
            return .disconnected
        case .disconnected:
            Log.critical("the bus closed the connection and accepts no new one; the state is kept")
            return .disconnected
        }
    }
}
