// SPDX-License-Identifier: Apache-2.0
import CarillonCore

/// A center that is driven as the service drives it, and the steps of its events (E8).
///
/// Clients answer each probe, unless they are in ``silent``. What is due leaves in turns of ``perDispatch``, as in the
/// service, so that each turn is an event of its own.
final class MeteredCenter {
    private final class Payload: UserInfo {
        let byteCount: Int

        init(byteCount: Int) {
            self.byteCount = byteCount
        }
    }

    /// As many as the service sends in one dispatch of a source.
    static let perDispatch = 32

    let center = DistributedCenter()
    /// Clients that answer no probe and read nothing.
    var silent: Set<ClientName> = []
    /// What the clock shows, in microseconds.
    var now: Int64 = 1_000_000_000
    /// The most steps that an event took, by the name of its function.
    private(set) var costs: [String: Int] = [:]
    private var probed: [ClientName] = []
    private let payload = Payload(byteCount: 8)

    init() {
        center.checksInvariants = false
        center.remembersChanges = true
        center.clock = Clock(time: { 0 }, uptime: { [unowned self] in now })
        center.meter.eventEnded = { [unowned self] event, steps in
            let name = String("\(event)".prefix { $0 != "(" })
            costs[name] = max(costs[name] ?? 0, steps)
        }
    }

    /// Has an event happen, and what comes of it.
    @discardableResult
    func perform<Result>(_ event: (inout [Effect]) throws -> Result) rethrows -> Result {
        let result = try carryOut(event)
        settle()
        return result
    }

    /// Has events happen with nothing between them: the rest of what they made waits until the next one is performed.
    func carryOut<Result>(_ event: (inout [Effect]) throws -> Result) rethrows -> Result {
        var effects: [Effect] = []
        let result = try event(&effects)
        for case .probe(let client) in effects where !silent.contains(client) { probed.append(client) }
        return result
    }

    /// Answers what was asked, and sends what is due, turn by turn.
    private func settle() {
        while true {
            if let client = probed.popLast() {
                carryOut { center.clientAnswered(client, effects: &$0) }
            } else if center.isAnythingReady {
                carryOut { center.sendReady(upTo: .standard, limit: Self.perDispatch, effects: &$0) }
            } else {
                return
            }
        }
    }

    // MARK: Events

    func observe(
        _ client: ClientName, _ name: String = "", _ object: String = "",
        _ options: ObserverOptions = ObserverOptions()
    ) throws {
        try perform { effects in
            _ = try center.addObserver(of: client, name: name, object: object, options: options, effects: &effects)
        }
    }

    func post(
        _ name: String, _ object: String = "", from poster: ClientName, _ options: PostOptions = PostOptions()
    ) throws {
        while try !perform({ effects in
            try center.removeCoalesced(
                name: name, object: object, userInfo: payload, options: options, from: poster, effects: &effects)
        }) {}
        try perform { effects in
            _ = try center.post(
                name: name, object: object, userInfo: payload, options: options, from: poster, effects: &effects)
        }
    }

    func suspend(_ client: ClientName, _ isSuspended: Bool = true) throws {
        try perform { try center.setSuspended(isSuspended, of: client, effects: &$0) }
    }

    func leave(_ client: ClientName) {
        if center.leavesInSlices(client) {
            while perform({ center.removeSlice(client, effects: &$0) }) {}
        }
        perform { center.clientDisappeared(client, effects: &$0) }
    }
}
