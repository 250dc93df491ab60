// SPDX-License-Identifier: Apache-2.0
import CarillonActivity
import CarillonCollections
import CarillonCore
import CarillonDBus
import CarillonMainLoop

/// The record of watched connections: the process behind each, and the watch that reports its departure from the bus.
///
/// The connections are the clients, and the posters of retained values. ``EffectRunner`` adds a connection when the
/// core asks for a watch, and removes it when the core has forgotten it. ``DepartureWatch`` does the watching.
final class ClientRegistry {
    /// The process behind a connection.
    struct Process {
        /// The process ID, which the bus got from the kernel.
        let id: UInt32
        /// The kernel's short name of the program; empty when the process is gone or hidden.
        let name: String
    }

    private let bus: any MessageBus
    private let table: any ProcessTable
    /// Called with a client and its process ID when the bus has identified the process.
    var onIdentified: ((ClientName, UInt32) -> Void)?
    /// Returns the process ID of a connection that ``Callers`` has identified before; nil for others.
    var knownProcess: ((ClientName) -> UInt32?)?
    private let departures: DepartureWatch
    private var processes: [ClientName: Process] = [:]
    /// The clients whose process the bus has not reported yet.
    private var unidentified: Set<ClientName> = []
    /// The number of refused calls of each client that expected no reply, for throttled logging.
    private var refusals: [ClientName: UInt64] = [:]
    /// The same count for connections that are not watched.
    private var refusalsOfOthers = Log.Throttle<ClientName>()

    init(bus: any MessageBus, table: any ProcessTable) {
        self.bus = bus
        self.table = table
        departures = DepartureWatch(bus: bus)
    }

    /// Begins to watch a connection for its departure, and requests its process ID from the bus.
    ///
    /// - Parameter isGone: called if a query finds that the connection has left. Otherwise the departure arrives as a
    ///   signal of the bus (``CenterObject``).
    func watch(_ client: ClientName, isGone: @escaping () -> Void) {
        unidentified.insert(client)
        departures.watch(client, isGone: isGone)
        // The request follows the match rule. A client that left before the rule makes the request fail, and a later
        // departure causes a signal, so no departure is missed.
        askForProcess(of: client) { [weak self] result in
            // The client may have been forgotten meanwhile.
            guard let self, unidentified.contains(client) else { return }
            switch result {
            case .success(let id):
                let process = Process(id: id, name: table.name(of: id))
                processes[client] = process
                Log.info("\(client) is \(process.name), process \(id)", ["CARILLON_CLIENT": client.rawValue])
                onIdentified?(client, id)
            case .failure(let error) where error.name == BusError.nameHasNoOwnerName: isGone()
            case .failure(let error):
                Log.info("the bus did not return the process ID of \(client): \(error)")
            }
            unidentified.remove(client)
        }
    }

    /// Requests the process ID from the bus. If it is known already, the bus is only asked whether the connection
    /// exists, which takes a smaller reply.
    private func askForProcess(of client: ClientName, completion: @escaping (Result<UInt32, BusError>) -> Void) {
        guard let id = knownProcess?(client) else { return bus.processID(of: client, completion: completion) }
        bus.nameOwner(of: client) { result in completion(result.map { _ in id }) }
    }

    /// Ends the watch on a connection, and removes its record.
    func forget(_ client: ClientName) {
        departures.forget(client)
        Log.info("\(client) left", ["CARILLON_CLIENT": client.rawValue])
        processes[client] = nil
        refusals[client] = nil
        unidentified.remove(client)
    }

    /// Releases the memory of entries of departed clients (E8).
    func releaseMemory() {
        processes.releaseMemory()
        refusals.releaseMemory()
        unidentified.releaseMemory()
        departures.releaseMemory()
    }

    /// The numbers of table entries per client, for tests.
    var kept: [(what: String, count: Int)] {
        [
            ("processes", processes.count), ("counts of refusals", refusals.count),
            ("match rules", departures.keptCount),
        ]
    }

    /// Returns the process of a watched connection; nil while it is not known.
    func process(of client: ClientName) -> Process? {
        processes[client]
    }

    /// Counts a refused call that expects no reply. Connections that are not watched share a throttle.
    ///
    /// - Returns: the number of refused calls so far if this one is to be logged, which are the 1st, 2nd, 4th, 8th …;
    ///   otherwise nil.
    func countRefusal(of client: ClientName) -> UInt64? {
        guard processes[client] != nil else { return refusalsOfOthers.note(client) }
        return Log.throttle(&refusals[client, default: 0])
    }
}
