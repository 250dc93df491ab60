// SPDX-License-Identifier: Apache-2.0

/// Whether clients are suspended as they should be.
extension Simulation {
    /// A2, B3: others' words, a client's own, and the activity of its application decide in this order.
    func judgeSuspensions() {
        guard let center = host.center, host.isServing else { return }
        for status in center.clientStatuses {
            guard let client = all.first(where: { $0.witness?.client == status.name }), client.isThere,
                let witness = client.witness, (client as? PlainClient)?.role.isLiar != true,
                !ledger.wasStateLost(since: witness.joined), witness.isWordKnown,
                let expected = witness.outside.isSuspended(
                    word: witness.word, at: world.now, by: host.servingName),
                expected != status.isSuspended
            else { continue }
            world.violate(
                "A2",
                "\(witness.client) is \(status.isSuspended ? "suspended" : "active") by \(status.cause.rawValue), and should not be"
            )
        }
    }

    /// Nobody is suspended by anything but its own word any more.
    func endOutsideSuspension() {
        guard plan.suspendsAutomatically, let caller = all.last(where: { $0.isThere && $0 is PlainClient }) else {
            return
        }
        for client in all where client.isThere {
            guard let witness = client.witness, witness.outside.isConcerned else { continue }
            caller.override(nil, of: witness)
            if host.report(.active, of: witness.client) {
                witness.outside.note(.active, at: world.now, by: host.servingName)
            }
        }
    }
}
