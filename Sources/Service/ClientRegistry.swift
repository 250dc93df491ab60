// SPDX-License-Identifier: Apache-2.0
import CarillonActivity
import CarillonCollections
import CarillonCore
import CarillonDBus
import CarillonMainLoop

/// Who is behind the clients' connections, and whether they are still on the bus.
///
/// Each client is watched with a match rule of its own: a service that nobody uses is not woken by the coming and
/// going of other programs. Where the bus allows no more rules, ``DepartureWatch`` finds another way.
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
    /// The process of a connection, where the bus has told it.
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

    /// Has the bus tell when `client` leaves, and asks for its process.
    ///
    /// - Parameter isGone: called when it turns out that it left before the bus began to watch.
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
                Log.info("the bus does not tell the process of \(client): \(error)")
            }
            unidentified.remove(client)
        }
    }

    /// The bus's answer is small where it only has to tell that the connection is there.
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

    /// Gives up what is kept of clients that are gone (E8).
    func releaseRoom() {
        processes.releaseRoom()
        refusals.releaseRoom()
        unidentified.releaseRoom()
        departures.releaseRoom()
    }

    /// The entries that are kept for each client, to look at.
    var kept: [(what: String, count: Int)] {
        [
            ("processes", processes.count), ("counts of refusals", refusals.count),
            ("match rules", departures.keptCount),
        ]
    }

    func process(of client: ClientName) -> Process? {
        processes[client]
    }

    /// Counts a refused call that wanted no answer. Strangers, who are not watched, share one count.
    ///
    /// - Returns: the count, when it is to be logged.
    func countRefusal(of client: ClientName) -> UInt64? {
        guard processes[client] != nil else { return refusalsOfOthers.note(client) }
        return Log.throttle(&refusals[client, default: 0])
    }
}
