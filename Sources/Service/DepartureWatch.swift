// SPDX-License-Identifier: Apache-2.0
import CarillonCollections
import CarillonCore
import CarillonDBus
import CarillonMainLoop

/// The watch on clients that leave the bus (D8).
///
/// Each client has a match rule of its own, so that the service sleeps while other connections come and go. A bus
/// limits the number of rules. Where it refuses one, a single general rule replaces all of them. Where it refuses that
/// too, the bus is asked every 5 s about clients without a rule, until it accepts the general rule. While all clients
/// are watched, nothing is asked and no timer runs.
final class DepartureWatch {
    private enum General {
        case notNeeded
        case asked
        case active
        case refused
    }

    private let bus: any MessageBus
    /// The watched clients, with the handlers of their departure.
    private var clients: [ClientName: () -> Void] = [:]
    /// The clients with a rule of their own that the bus has not refused.
    private var ruled: Set<ClientName> = []
    private var general = General.notNeeded
    private var refusals: UInt64 = 0
    private var timer: EventSource?
    /// The client after which the next round of questions begins.
    private var asked: ClientName?

    /// The general rule: matches every owner change of unique names, and of all other names.
    static let generalRule =
        "type='signal',sender='org.freedesktop.DBus',path='/org/freedesktop/DBus',"
        + "interface='org.freedesktop.DBus',member='NameOwnerChanged'"
    private static let pauseMilliseconds: UInt32 = 5000
    /// The maximum of questions in a round.
    private static let maxQuestions = 256

    init(bus: any MessageBus) {
        self.bus = bus
    }

    /// Watches a client.
    ///
    /// - Parameter isGone: called when the client turns out to have left before it was watched.
    func watch(_ client: ClientName, isGone: @escaping () -> Void) {
        guard clients.updateValue(isGone, forKey: client) == nil else { return }
        switch general {
        case .active: break
        case .asked, .refused: askLater()
        case .notNeeded:
            ruled.insert(client)
            bus.addMatch(OwnerChange.matchRule(for: client)) { [weak self] result in
                guard let self, case .failure(let error) = result, error.name != BusError.disconnectedName else {
                    return
                }
                ruled.remove(client)
                guard clients[client] != nil else { return }
                useGeneralRule(because: error)
            }
        }
    }

    /// The number of watched clients, for tests.
    var keptCount: Int { clients.count }

    /// Releases the memory of entries of departed clients (E8).
    func releaseMemory() {
        clients.releaseMemory()
        ruled.releaseMemory()
    }

    func forget(_ client: ClientName) {
        clients[client] = nil
        if ruled.remove(client) != nil { bus.removeMatch(OwnerChange.matchRule(for: client)) }
        if clients.count == ruled.count { timer = nil }
        // From here on the bus has quota for rules again, as far as it depends on this service.
        guard clients.isEmpty, general != .asked else { return }
        if general == .active { bus.removeMatch(Self.generalRule) }
        general = .notNeeded
    }

    private func useGeneralRule(because error: BusError) {
        guard general == .notNeeded || general == .refused else { return }
        if let count = Log.throttle(&refusals) {
            Log.warning(
                "the bus allows no more match rules (\(count) times so far), trying one general rule: \(error)",
                ["CARILLON_REASON": "bus-limits"])
        }
        general = .asked
        // Frees a rule for the general one, which covers that client as well; otherwise the client is asked about.
        if let client = ruled.first {
            ruled.remove(client)
            bus.removeMatch(OwnerChange.matchRule(for: client))
        }
        bus.addMatch(Self.generalRule) { [weak self] result in
            guard let self else { return }
            switch result {
            case .success:
                general = .active
                for client in ruled { bus.removeMatch(OwnerChange.matchRule(for: client)) }
                ruled = []
                timer = nil
                #if CARILLON_PLANTED
                    if PlantedFault.strikes(.departedBeforeRule) { return }
                #endif
                // Asked behind the rule: a client that left before it is detected.
                for client in clients.keys.sorted() { ask(for: client) }
            case .failure:
                general = .refused
                askLater()
            }
        }
    }

    private func askLater() {
        guard timer?.isPending != true, general != .active else { return }
        timer = .once(milliseconds: Self.pauseMilliseconds, on: bus.context) { [unowned self] in askAround() }
    }

    /// Asks about the clients without a rule, and tries the general rule again.
    private func askAround() {
        let unwatched = clients.keys.filter { !ruled.contains($0) }.sorted()
        guard general != .active, !unwatched.isEmpty else { return }
        let start = asked.flatMap { last in unwatched.firstIndex { $0 > last } } ?? 0
        let round = (unwatched[start...] + unwatched[..<start]).prefix(Self.maxQuestions)
        asked = round.last
        for client in round { ask(for: client) }
        if general == .refused { useGeneralRule(because: .failed("the bus allowed no match rule for it before")) }
        askLater()
    }

    private func ask(for client: ClientName) {
        bus.processID(of: client) { [weak self] result in
            if case .failure(let error) = result, error.name == BusError.nameHasNoOwnerName {
                self?.clients[client]?()
            }
        }
    }
}
