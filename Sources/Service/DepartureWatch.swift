// SPDX-License-Identifier: Apache-2.0
import CarillonCollections
import CarillonCore
import CarillonDBus
import CarillonMainLoop

/// The watch for clients that leave the bus (D8). ``ClientRegistry`` uses it.
///
/// A match rule makes the bus send a signal when a connection leaves. The signals arrive at ``CenterObject``. The watch
/// has three levels, because a bus limits the number of match rules of a connection:
///
/// 1. Each client has a match rule of its own. The service is then not woken when other connections come and go.
/// 2. If the bus refuses a rule, one general rule for all connections replaces them.
/// 3. If the bus refuses the general rule too, the bus is queried every 5 s about the clients without a rule, and the
///    general rule is tried again each time.
///
/// On the first two levels no timer runs. When no client is left, the watch returns to the first level.
final class DepartureWatch {
    /// The state of the general rule.
    private enum General {
        /// The clients have rules of their own.
        case notNeeded
        /// The rule was sent to the bus, which has not answered yet.
        case asked
        case active
        /// The bus has refused the rule.
        case refused
    }

    private let bus: any MessageBus
    /// The watched clients, with the function to call when a query finds that the client has left.
    private var clients: [ClientName: () -> Void] = [:]
    /// The clients with a rule of their own that the bus has not refused.
    private var ruled: Set<ClientName> = []
    private var general = General.notNeeded
    /// The number of refused rules, for throttled logging.
    private var refusals: UInt64 = 0
    /// The timer of the next round of queries on the third level.
    private var timer: EventSource?
    /// The last client of the last round. The next round begins behind it.
    private var asked: ClientName?

    /// The general rule. It matches the change of owner of every name; a connection that leaves is one such change.
    static let generalRule =
        "type='signal',sender='org.freedesktop.DBus',path='/org/freedesktop/DBus',"
        + "interface='org.freedesktop.DBus',member='NameOwnerChanged'"
    /// The time between two rounds of queries.
    private static let pauseMilliseconds: UInt32 = 5000
    /// The maximum number of queries in a round. The next round continues with the other clients.
    private static let maxQuestions = 256

    init(bus: any MessageBus) {
        self.bus = bus
    }

    /// Watches a client.
    ///
    /// - Parameter isGone: called when a query finds that the client has left. Departures that a rule covers arrive as
    ///   signals.
    func watch(_ client: ClientName, isGone: @escaping () -> Void) {
        guard clients.updateValue(isGone, forKey: client) == nil else { return }
        switch general {
        case .active: break
        // If the general rule becomes active, the timer is cancelled, and all clients are queried at once.
        case .asked, .refused: scheduleQueries()
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

    /// Ends the watch on a client.
    func forget(_ client: ClientName) {
        clients[client] = nil
        if ruled.remove(client) != nil { bus.removeMatch(OwnerChange.matchRule(for: client)) }
        // If each client has a rule, there is nothing to query.
        if clients.count == ruled.count { timer = nil }
        // Without clients the service uses no rules, so rules for single clients may work again. While the bus has not
        // answered about the general rule, its state stays.
        guard clients.isEmpty, general != .asked else { return }
        if general == .active { bus.removeMatch(Self.generalRule) }
        general = .notNeeded
    }

    /// Tries to replace the rules of clients by the general rule.
    private func useGeneralRule(because error: BusError) {
        guard general == .notNeeded || general == .refused else { return }
        if let count = Log.throttle(&refusals) {
            Log.warning(
                "the bus allows no more match rules (\(count) times so far), trying one general rule: \(error)",
                ["CARILLON_REASON": "bus-limits"])
        }
        general = .asked
        // One client's rule is removed to make quota for the general rule, which covers this client as well. If the bus
        // refuses the general rule, the client is queried.
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
                // A client may have left before the rule was active, without a signal, so all clients are queried once.
                for client in clients.keys.sorted() { ask(for: client) }
            case .failure:
                general = .refused
                scheduleQueries()
            }
        }
    }

    /// Starts the timer of the next round of queries.
    private func scheduleQueries() {
        guard timer?.isPending != true, general != .active else { return }
        timer = .once(milliseconds: Self.pauseMilliseconds, on: bus.context) { [unowned self] in queryUnwatched() }
    }

    /// Queries the clients without a rule, as many as a round may have, and tries the general rule again.
    private func queryUnwatched() {
        let unwatched = clients.keys.filter { !ruled.contains($0) }.sorted()
        guard general != .active, !unwatched.isEmpty else { return }
        let start = asked.flatMap { last in unwatched.firstIndex { $0 > last } } ?? 0
        let round = (unwatched[start...] + unwatched[..<start]).prefix(Self.maxQuestions)
        asked = round.last
        for client in round { ask(for: client) }
        if general == .refused { useGeneralRule(because: .failed("the bus allowed no match rule for it before")) }
        scheduleQueries()
    }

    /// Queries the bus about a client. NameHasNoOwner means that it has left.
    private func ask(for client: ClientName) {
        bus.processID(of: client) { [weak self] result in
            if case .failure(let error) = result, error.name == BusError.nameHasNoOwnerName {
                self?.clients[client]?()
            }
        }
    }
}
