// SPDX-License-Identifier: Apache-2.0
import CarillonBridge
import CarillonDBus
import CarillonMainLoop
import CarillonWire

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// The program `carillon-bridge`: it runs a ``Bridge``, or checks a configuration (`--check`).
@main
struct CarillonBridgeProgram {
    /// The exit codes, which carillon-bridge(1) explains.
    enum ExitCode: Int32 {
        case done = 0
        case usage = 1
        case noBus = 2
        case nameTaken = 3
        case disconnected = 4
        /// Used by ``CommandLineParser/end(writing:)``.
        case outputFailed = 5
    }

    /// Parses the arguments, reads the configuration and runs the bridge. A machine without a configured broker is no
    /// failure.
    static func main() {
        let parser = CommandLineParser(
            program: "carillon-bridge", usage: "[--check [FILE ...]]",
            summary: "Connects the notification center of the session to those of other machines through MQTT.")
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
            printError("carillon-bridge: \(error)\nTry 'carillon-bridge --help'.")
            exit(ExitCode.usage.rawValue)
        }
        if parser.value(version) {
            CommandLineParser.end(writing: "carillon-bridge \(Wire.softwareVersion)")
        }
        if parser.value(check) {
            let reading =
                files.isEmpty ? BridgeConfiguration.Reading.ofMachine() : BridgeConfiguration.Reading(paths: files)
            // Faults in the configuration files are `faults` of the report. Faults of the files that the configuration
            // names, such as certificates, are its `mistakes`. `end()` prints the report and ends the process.
            let remarks = FileRemarks(reading.configuration)
            ConfigurationReport(
                files: reading.files, faults: reading.faults, named: files,
                none: "there is no carillon/bridge.conf: the bridge is off", mistakes: remarks.faults,
                warnings: remarks.warnings
            ).end()
        }
        Log.useStandardError()
        if parser.value(verbose) { Log.showAll() }
        let reading = BridgeConfiguration.Reading.ofMachine()
        guard reading.configuration.isOn else {
            for fault in reading.faults { Log.critical("configuration refused: \(fault)") }
            guard reading.faults.isEmpty else { exit(ExitCode.usage.rawValue) }
            Log.notice("off: no broker is configured; see carillon-bridge(1) and bridge.conf")
            exit(ExitCode.done.rawValue)
        }
        for fault in reading.faults { Log.warning("configuration refused: \(fault)") }
        exit(run(reading).rawValue)
    }

    /// Runs the bridge until a signal, or until the bridge ends by itself. SIGHUP reloads the configuration.
    private static func run(_ reading: BridgeConfiguration.Reading) -> ExitCode {
        // OpenSSL writes to sockets with `write`, which can't suppress SIGPIPE. Ignored, it is an error of the write.
        signal(SIGPIPE, SIG_IGN)
        let loop = EventLoop()
        var result = ExitCode.done
        do throws(Bridge.End) {
            let bridge = try Bridge(reading, address: try sessionBusAddress()) { reason in
                result = report(reason)
                loop.quit()
            }
            let signals = ControlSignals {
                try? bridge.reload()  // a fault has been logged
            } end: { signal in
                Log.notice("ended by signal \(signal)")
                bridge.stop { loop.quit() }
            }
            bridge.start()
            loop.run()
            withExtendedLifetime((bridge, signals)) {}
        } catch {
            result = report(error)
        }
        return result
    }

    /// Returns the address of the session bus from the environment.
    private static func sessionBusAddress() throws(Bridge.End) -> String {
        do throws(BusError) {
            return try Connection.sessionBusAddress()
        } catch {
            throw .noBus(error)
        }
    }

    /// Logs the reason for the end, and returns its exit code.
    private static func report(_ reason: Bridge.End) -> ExitCode {
        switch reason {
        case .noBus(let error):
            Log.critical("no bus: \(error)")
            return .noBus
        case .nameTaken:
            Log.critical("\(BridgeWire.busName) is owned by another process: the session already has a bridge")
            return .nameTaken
        case .disconnected:
            Log.critical("the bus closed the connection")
            return .disconnected
        case .configuration(let reason):
            Log.critical("\(reason)")
            return .usage
        }
    }
}
