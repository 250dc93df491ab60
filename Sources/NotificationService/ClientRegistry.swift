import DBus
import MainLoop
import NotificationWire

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// Who is behind the clients' connections, and whether they are still on the bus.
///
/// Each client is watched with a match rule of its own: a service that nobody uses is not woken by the coming and
/// going of other programs.
final class ClientRegistry {
    /// The process behind a connection, as the bus verified it.
    struct Process {
        let id: UInt32
        /// The kernel's short name of the program; empty when the process is gone or hidden.
        let name: String
    }

    private let bus: any MessageBus
    /// Called when the process of a client is known.
    var onIdentified: ((String, UInt32) -> Void)?
    private var processes: [String: Process] = [:]
    private var unidentified: Set<String> = []
    private var waiting: [() -> Void] = []
    private var refusals: [String: UInt64] = [:]
    private var refusalsOfOthers: UInt64 = 0

    init(bus: any MessageBus) {
        self.bus = bus
    }

    /// Has the bus tell when `client` leaves, and asks for its process.
    ///
    /// - Parameter isGone: called when it turns out that it left before the bus began to watch.
    func watch(_ client: String, isGone: @escaping () -> Void) {
        let name = BusName(unchecked: client)
        unidentified.insert(client)
        bus.addMatch(OwnerChange.matchRule(for: name)) { result in
            if case .failure(let error) = result {
                Log.warning("the bus does not tell when \(client) leaves: \(error)", ["CARILLON_CLIENT": client])
            }
        }
        // Asked behind the match rule: either this fails, or a later departure is announced.
        bus.processID(of: name) { [weak self] result in
            guard let self, unidentified.contains(client) else { return }
            switch result {
            case .success(let id):
                let process = Process(id: id, name: processName(of: id))
                processes[client] = process
                Log.info("\(client) is \(process.name), process \(id)", ["CARILLON_CLIENT": client])
                onIdentified?(client, id)
            case .failure(let error) where error.name == BusError.nameHasNoOwnerName: isGone()
            case .failure(let error):
                Log.info("the bus does not tell the process of \(client): \(error)")
            }
            identified(client)
        }
    }

    func forget(_ client: String) {
        bus.removeMatch(OwnerChange.matchRule(for: BusName(unchecked: client)))
        Log.info("\(client) left", ["CARILLON_CLIENT": client])
        processes[client] = nil
        refusals[client] = nil
        identified(client)
    }

    func process(of client: String) -> Process? {
        processes[client]
    }

    /// Runs `body` when every client's process is known, at once if so.
    func whenIdentified(_ body: @escaping () -> Void) {
        if unidentified.isEmpty { body() } else { waiting.append(body) }
    }

    /// Counts a refused call that wanted no answer. Strangers, who are not watched, share one count.
    ///
    /// - Returns: the count, when it is to be logged.
    func countRefusal(of client: String) -> UInt64? {
        guard processes[client] != nil else { return Log.throttle(&refusalsOfOthers) }
        return Log.throttle(&refusals[client, default: 0])
    }

    private func identified(_ client: String) {
        unidentified.remove(client)
        guard unidentified.isEmpty else { return }
        let ready = waiting
        waiting = []
        ready.forEach { $0() }
    }
}

private func processName(of id: UInt32) -> String {
    guard id != 0, let file = fopen("/proc/\(id)/comm", "re") else { return "" }
    defer { fclose(file) }
    var buffer = [UInt8](repeating: 0, count: 64)
    let count = fread(&buffer, 1, buffer.count, file)
    return String(decoding: buffer[..<count].prefix { $0 != UInt8(ascii: "\n") }, as: UTF8.self)
}
