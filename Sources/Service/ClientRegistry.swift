// SPDX-License-Identifier: Apache-2.0
import CarillonActivity
import CarillonCollections
import CarillonCore
import CarillonDBus
import CarillonMainLoop

/// The processes behind the clients' connections, and the watches on their departure.
///
/// Each client has a match rule of its own, so that an unused service is not woken when other programs come and go.
/// Where the bus allows no more rules, ``DepartureWatch`` falls back to other means.
final class ClientRegistry {
    /// The process behind a connection, as the bus verified it.
    struct Process {
        let id: UInt32
        /// The kernel's short name of the program; empty when the process is gone or hidden.
        let name: String
    }

    private let bus: any MessageBus
    private let table: any ProcessTable
    /// Called when the process of a client is known.
    var onIdentified: ((ClientName, UInt32) -> Void)?
    /// Returns the process of a connection that the bus has already identified.
    var knownProcess: ((ClientName) -> UInt32?)?
    private let departures: DepartureWatch
    private var processes: [ClientName: Process] = [:]
    private var unidentified: Set<ClientName> = []
    private var refusals: [ClientName: UInt64] = [:]
    private var refusalsOfOthers = Log.Throttle<ClientName>()

    init(bus: any MessageBus, table: any ProcessTable) {
        self.bus = bus
        self.table = table
        departures = DepartureWatch(bus: bus)
    }

    /// Has the bus report when `client` leaves, and asks for its process.
    ///
    /// - Parameter isGone: called when the client turns out to have left before the watch began.
    func watch(_ client: ClientName, isGone: @escaping () -> Void) {
        unidentified.insert(client)
        departures.watch(client, isGone: isGone)
        // Asked behind the match rule: either this fails, or a later departure is announced.
        askForProcess(of: client) { [weak self] result in
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

    /// Asks for the process. Where it is known already, the bus only confirms the connection, with a smaller answer.
    private func askForProcess(of client: ClientName, completion: @escaping (Result<UInt32, BusError>) -> Void) {
        guard let id = knownProcess?(client) else { return bus.processID(of: client, completion: completion) }
        bus.nameOwner(of: client) { result in completion(result.map { _ in id }) }
    }

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

    func process(of client: ClientName) -> Process? {
        processes[client]
    }

    /// Counts a refused call that wanted no reply. Unregistered peers, which are not watched, share one count.
    ///
    /// - Returns: the count, when it is to be logged.
    func countRefusal(of client: ClientName) -> UInt64? {
        guard processes[client] != nil else { return refusalsOfOthers.note(client) }
        return Log.throttle(&refusals[client, default: 0])
    }
}
