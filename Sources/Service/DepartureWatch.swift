// SPDX-License-Identifier: Apache-2.0
import CarillonCollections
import CarillonCore
import CarillonDBus
import CarillonMainLoop

/// Has the bus tell when clients leave (D8).
///
/// Each has a match rule of its own, so that the service sleeps while others come and go. A bus bounds the number of
/// rules. Where it refuses one, a single rule for everybody takes the place of all; where it refuses that too, the
/// clients without a rule are asked for now and then, until the bus takes the rule. Nothing is asked, and no timer
/// runs, while all are watched.
final class DepartureWatch {
    private enum General {
        case notNeeded
        case asked
        case active
        case refused
    }

    private let bus: any MessageBus
    /// Watched or to be watched, with what to call when one is gone.
    private var clients: [ClientName: () -> Void] = [:]
    /// Those with a rule of their own, as far as the bus has not refused it.
    private var ruled: Set<ClientName> = []
    private var general = General.notNeeded
    private var refusals: UInt64 = 0
    private var timer: EventSource?
    /// Where the next round of questions begins.
    private var asked: ClientName?

    /// Matches every change of a connection's own name, and of all others.
    static let generalRule =
        "type='signal',sender='org.freedesktop.DBus',path='/org/freedesktop/DBus',"
        + "interface='org.freedesktop.DBus',member='NameOwnerChanged'"
    private static let pauseMilliseconds: UInt32 = 5000
    /// Questions in a round.
    private static let maxQuestions = 256

    init(bus: any MessageBus) {
        self.bus = bus
    }

    /// - Parameter isGone: called when it turns out that the client left unobserved.
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

    /// How many clients are watched, to look at.
    var keptCount: Int { clients.count }

    /// Gives up what is kept of clients that are gone (E8).
    func releaseRoom() {
        clients.releaseRoom()
        ruled.releaseRoom()
    }

    func forget(_ client: ClientName) {
        clients[client] = nil
        if ruled.remove(client) != nil { bus.removeMatch(OwnerChange.matchRule(for: client)) }
        if clients.count == ruled.count { timer = nil }
        // From here on there is room again, as far as it depends on us.
        guard clients.isEmpty, general != .asked else { return }
        if general == .active { bus.removeMatch(Self.generalRule) }
        general = .notNeeded
    }

    private func useGeneralRule(because error: BusError) {
        guard general == .notNeeded || general == .refused else { return }
        if let count = Log.throttle(&refusals) {
            Log.warning(
                "the bus allows no more match rules (\(count) times so far), one for all is tried: \(error)",
                ["CARILLON_REASON": "bus-limits"])
        }
        general = .asked
        // Makes room for it. That client is covered by it as well, or asked for.
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
                // Behind the rule: whoever left before it is missed by no one.
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

    /// Asks for those without a rule, and for the rule again.
    private func askAround() {
        let unwatched = clients.keys.filter { !ruled.contains($0) }.sorted()
        guard general != .active, !unwatched.isEmpty else { return }
        let start = asked.flatMap { last in unwatched.firstIndex { $0 > last } } ?? 0
        let round = (unwatched[start...] + unwatched[..<start]).prefix(Self.maxQuestions)
        asked = round.last
        for client in round { ask(for: client) }
        if general == .refused { useGeneralRule(because: .failed("there was no room for it before")) }
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
