// SPDX-License-Identifier: Apache-2.0
import CarillonDBus
import CarillonMainLoop

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// One side of a load on a message bus: a program for tests and benchmarks, not installed. See ``LoadOptions`` for what
/// it can do.
@main
struct BusLoad {
    static func main() {
        do throws(CommandLineParser.UsageError) {
            let options = try LoadOptions(try CommandLineParser.processArguments())
            try run(options)
        } catch {
            printError("carillon-bus-load: \(error)\nTry 'carillon-bus-load --help'.")
            exit(1)
        }
    }

    private static func run(_ options: LoadOptions) throws(CommandLineParser.UsageError) {
        do throws(BusError) {
            let channel: any LoadChannel = options.isBroadcast ? BroadcastChannel() : CenterChannel()
            switch options.role {
            case .observe: try LoadObserver(options, channel).run()
            case .post: try LoadPoster(options, channel).run()
            case .call: try FirstCaller().run()
            case .sink: try LoadSink(options).run()
            }
        } catch {
            printError("carillon-bus-load: \(error)")
            exit(2)
        }
    }
}

/// A connection and a loop.
class LoadClient {
    let connection: Connection
    let loop = EventLoop()

    init() throws(BusError) {
        connection = try Connection(address: try Connection.sessionBusAddress())
    }

    func run() throws(BusError) {
        connection.onDisconnect = {
            printError("carillon-bus-load: the bus closed the connection")
            exit(2)
        }
        connection.hello { [unowned self] result in
            if case .failure(let error) = result { fail(error) }
            start()
        }
        loop.run()
    }

    func start() {}

    func fail(_ error: BusError) -> Never {
        printError("carillon-bus-load: \(error)")
        exit(2)
    }
}

/// Nanoseconds of the clock that all processes of a machine share.
func now() -> Int64 {
    var time = timespec()
    clock_gettime(CLOCK_MONOTONIC, &time)
    return Int64(time.tv_sec) * 1_000_000_000 + Int64(time.tv_nsec)
}

/// Microseconds of processor time that this process has used.
func processorTime() -> Int64 {
    var usage = rusage()
    getrusage(__rusage_who_t(RUSAGE_SELF.rawValue), &usage)
    func microseconds(_ time: timeval) -> Int64 { Int64(time.tv_sec) * 1_000_000 + Int64(time.tv_usec) }
    return microseconds(usage.ru_utime) + microseconds(usage.ru_stime)
}
