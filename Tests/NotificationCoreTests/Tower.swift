// SPDX-License-Identifier: Apache-2.0
import CarillonCore

/// A distributed center with what it decided so far.
final class Tower {
    final class Payload: UserInfo {
        let byteCount: Int

        init(byteCount: Int = 8) {
            self.byteCount = byteCount
        }
    }

    let center: DistributedCenter
    var effects: [Effect] = []

    init(_ change: (inout Limits) -> Void = { _ in }) {
        var limits = Limits()
        change(&limits)
        center = DistributedCenter(limits: limits)
    }

    @discardableResult
    func add(
        _ client: ClientName, _ name: String = "", _ object: String = "", _ options: ObserverOptions = ObserverOptions()
    ) throws -> ObserverID {
        try center.addObserver(of: client, name: name, object: object, options: options, effects: &effects)
    }

    /// Returns how many clients matched.
    @discardableResult
    func post(_ name: String, _ object: String = "", from poster: ClientName = ":1.99") throws -> Int {
        let receipt = try center.post(name: name, object: object, userInfo: Payload(), from: poster, effects: &effects)
        center.sendAllReady(effects: &effects)
        return receipt.receivers
    }

    func remove(_ id: ObserverID, of client: ClientName) throws {
        try center.removeObserver(id, of: client, effects: &effects)
    }

    /// Returns how many there were.
    func remove(of client: ClientName, name: String, object: String) -> Int {
        center.removeObservers(of: client, name: name, object: object, effects: &effects)
    }

    func disappear(_ client: ClientName) {
        center.clientDisappeared(client, effects: &effects)
    }

    /// Takes the deliveries out of what was decided since the last time; other effects are left.
    func takeDeliveries() -> [Delivery] {
        defer { effects.removeAll { $0.delivery != nil } }
        return effects.compactMap(\.delivery)
    }

    /// The clients that were to be watched, or forgotten.
    var watched: [ClientName] {
        effects.compactMap { if case .watch(let client) = $0 { client } else { nil } }
    }
    var forgotten: [ClientName] {
        effects.compactMap { if case .forget(let client) = $0 { client } else { nil } }
    }
}

extension Effect {
    fileprivate var delivery: Delivery? {
        if case .deliver(let delivery) = self { delivery } else { nil }
    }
}
