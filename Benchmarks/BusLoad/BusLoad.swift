import DBus
import MainLoop
import NotificationCore
import NotificationWire

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// One side of a load on the notification center: a program for tests and benchmarks, not installed.
///
///     bus-load observe NAME [BEHAVIOR]     registers, prints "ready", reads until it gets NAME.end, prints a report
///     bus-load post NAME COUNT BYTES       posts COUNT notifications with BYTES of data, then NAME.end
///
/// The report is one line of `key=value`: what was received, what the service said was lost, and whether sequence,
/// serial and the poster's own numbers are in order without a hole that was not announced.
@main
struct BusLoad {
    static func main() {
        let arguments = CommandLine.arguments.dropFirst()
        do throws(BusError) {
            switch (arguments.first, arguments.count) {
            case ("observe", 2...3):
                try LoadObserver(name: arguments[2], behavior: arguments.count == 3 ? arguments[3] : "coalesce").run()
            case ("post", 4):
                guard let count = UInt64(arguments[3]), let size = Int(arguments[4]) else { usage() }
                try LoadPoster(name: arguments[2], count: count, size: size).run()
            default: usage()
            }
        } catch {
            printError("bus-load: \(error)")
            exit(2)
        }
    }

    private static func usage() -> Never {
        printError("usage: bus-load observe NAME [BEHAVIOR] | bus-load post NAME COUNT BYTES")
        exit(1)
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
            printError("bus-load: the bus closed the connection")
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
        printError("bus-load: \(error)")
        exit(2)
    }
}

final class LoadObserver: LoadClient {
    private let name: String
    private let behavior: String
    private var received: UInt64 = 0
    private var dropped: UInt64 = 0
    private var sequence: UInt64 = 0
    private var serial: UInt64 = 0
    private var number: Int64 = -1
    private var faults = 0

    init(name: String, behavior: String) throws(BusError) {
        self.name = name
        self.behavior = behavior
        try super.init()
    }

    override func start() {
        connection.onMessage = { [unowned self] message in handle(message) }
        var missing = 2
        for name in [name, name + ".end"] {
            let call = Wire.methodCall("AddObserver")
            var writer = MessageWriter(call)
            writer.append(name)
            writer.append("")
            writer.array(of: "{sv}") { $0.entry("suspension-behavior", behavior) }
            connection.call(call) { [unowned self] result in
                if case .failure(let error) = result { fail(error) }
                missing -= 1
                if missing == 0 { printLine("ready \(connection.uniqueName!)") }
            }
        }
    }

    private func handle(_ message: Message) -> Bool {
        if message.isSignal(Wire.interface, "Dropped") {
            var reader = MessageReader(message)
            let count = (try? reader.read(UInt64.self)) ?? 0
            dropped += count
            sequence += count
            return true
        }
        guard let signal = try? NotificationSignal(message) else { return false }
        sequence += 1
        if signal.sequence != sequence || signal.serial <= serial { faults += 1 }
        sequence = signal.sequence
        serial = signal.serial
        if signal.name == name + ".end" {
            printLine("received=\(received) dropped=\(dropped) sequence=\(sequence) last=\(number) faults=\(faults)")
            loop.quit()
            return true
        }
        received += 1
        if case .int64(let next)? = signal.userInfo["number"] {
            if next <= number { faults += 1 }
            number = next
        }
        return true
    }
}

final class LoadPoster: LoadClient {
    /// Every so many posts one asks for a reply, and two may be unanswered, so that the bus is not flooded.
    private static let window: UInt64 = 64

    private let name: String
    private let count: UInt64
    private let data: [UInt8]
    private var posted: UInt64 = 0
    private var unanswered = 0

    init(name: String, count: UInt64, size: Int) throws(BusError) {
        self.name = name
        self.count = count
        data = [UInt8](repeating: 0x42, count: size)
        try super.init()
    }

    override func start() {
        while unanswered < 2, posted < count { postOne() }
        if posted == count, unanswered == 0 {
            posted += 1
            connection.call(message(name + ".end")) { [unowned self] result in
                if case .failure(let error) = result { fail(error) }
                loop.quit()
            }
        }
    }

    private func postOne() {
        let message = message(name)
        posted += 1
        guard posted % Self.window == 0 || posted == count else {
            message.expectsNoReply = true
            return connection.send(message)
        }
        unanswered += 1
        connection.call(message) { [unowned self] result in
            if case .failure(let error) = result { fail(error) }
            unanswered -= 1
            start()
        }
    }

    private func message(_ name: String) -> Message {
        let message = Wire.methodCall("Post")
        var writer = MessageWriter(message)
        writer.append(name)
        writer.append("")
        writer.array(of: "{sv}") { writer in
            writer.entry("number", Int64(posted))
            writer.dictEntry { writer in
                writer.append("data")
                writer.variant(of: "ay") { $0.append(fixedArray: data) }
            }
        }
        writer.array(of: "{sv}") { _ in }
        return message
    }
}
