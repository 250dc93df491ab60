// SPDX-License-Identifier: Apache-2.0
import CarillonBridge
import DBus
import MainLoop
import NotificationWire

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

@main
struct CarillonBridgeProgram {
    /// The exit codes, which the manual page explains.
    enum ExitCode: Int32 {
        case done = 0
        case usage = 1
        case noBus = 2
        case nameTaken = 3
        case disconnected = 4
    }

    static func main() {
        let parser = CommandLineParser(
            program: "carillon-bridge", usage: "",
            summary: "Joins the session's notification center to those of other machines, by an MQTT broker.")
        let version = parser.flag("version", help: "Show the version and exit")
        let verbose = parser.flag("verbose", short: "v", help: "Log everything, also what is normal")
        let check = parser.flag("check", help: "Read the configuration, say what is wrong with it, and exit")
        do throws(CommandLineParser.UsageError) {
            try parser.parseOptions()
        } catch {
            printError("carillon-bridge: \(error)\nTry 'carillon-bridge --help'.")
            exit(ExitCode.usage.rawValue)
        }
        if parser.value(version) {
            print("carillon-bridge \(Wire.softwareVersion)")
            exit(ExitCode.done.rawValue)
        }
        Log.useStandardError()
        if parser.value(verbose) { Log.showAll() }
        let configuration: BridgeConfiguration
        do throws(KeyFile.Fault) {
            configuration = try BridgeConfiguration()
        } catch {
            Log.critical("\(error)")
            exit(ExitCode.usage.rawValue)
        }
        guard configuration.isOn else {
            Log.notice("off: no broker is configured; see carillon-bridge(1) and bridge.conf")
            exit(ExitCode.done.rawValue)
        }
        if parser.value(check) { exit(ExitCode.done.rawValue) }
        exit(run(configuration).rawValue)
    }

    /// Runs until a signal, or until the bridge can't go on.
    private static func run(_ configuration: BridgeConfiguration) -> ExitCode {
        // A reader that is gone is an error of the write; OpenSSL writes to sockets as to files.
        signal(SIGPIPE, SIG_IGN)
        let loop = EventLoop()
        var result = ExitCode.done
        do throws(Bridge.End) {
            let bridge = try Bridge(configuration, address: try sessionBusAddress()) { reason in
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

    private static func sessionBusAddress() throws(Bridge.End) -> String {
        do throws(BusError) {
            return try Connection.sessionBusAddress()
        } catch {
            throw .noBus(error)
        }
    }

    private static func report(_ reason: Bridge.End) -> ExitCode {
        switch reason {
        case .noBus(let error):
            Log.critical("no bus: \(error)")
            return .noBus
        case .nameTaken:
            Log.critical("\(BridgeWire.busName) is owned by another process: the session has a bridge already")
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
