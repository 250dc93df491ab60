// SPDX-License-Identifier: Apache-2.0
import CarillonCore

/// The verdicts for the time when nothing happens any more.
extension Simulation {
    /// E4: what the service says of a client is so.
    func judge(_ client: any Client, by center: DistributedCenter) {
        guard let witness = client.witness else { return }
        judgeRegistrations(witness, by: center)
        ledger.policy.judgeObservers(of: witness, by: center)
        guard let status = center.clientStatuses.first(where: { $0.name == witness.client }) else { return }
        if status.isSuspended { world.violate("S1", "\(witness.client) is suspended, and said that it is not") }
        if witness.isToldSuspended, !ledger.mayBusDiscard, !ledger.wasStateLost(since: witness.joined) {
            world.violate("S1", "\(witness.client) is not suspended, and was told last that it is")
        }
        if status.queued > 0 { world.violate("convergence", "\(status.queued) still wait for \(witness.client)") }
        guard !ledger.wasServiceTroubled, !ledger.wasBusCrowded else { return }
        // The end of a channel is told with a bound, and a library that has read all passes over it.
        guard !witness.hadBounds, (client as? LibraryClient)?.hadChannel != true else {
            if status.delivered < witness.delivered {
                world.violate("E4", "\(witness.client) got \(witness.delivered), and \(status.delivered) are counted")
            }
            return
        }
        if status.delivered != witness.delivered {
            world.violate("E4", "\(witness.client) got \(witness.delivered), and \(status.delivered) are counted")
        }
        if status.dropped != witness.announced {
            world.violate("E4", "\(witness.client) was told of \(witness.announced), and \(status.dropped) are counted")
        }
    }

    /// E3, D8: what a client registered and did not remove is there, as long as it is, and nothing else.
    private func judgeRegistrations(_ witness: Witness, by center: DistributedCenter) {
        let there = center.registrations(of: witness.client) ?? []
        for known in there {
            let isAsked = witness.registrations.contains {
                known.name == $0.name.map(Names.name) && known.object == $0.object.map(Names.object)
                    && known.options.runLoopMode == $0.mode && known.options.suspensionBehavior == $0.behavior
                    && known.options.minimumInterval == $0.interval
            }
            if !isAsked {
                world.violate("E3", "\(witness.client) is registered for what it never asked for: \(known)")
            }
        }
        for registration in witness.kept {
            let name = registration.name.map(Names.name)
            let object = registration.object.map(Names.object)
            let isThere = there.contains {
                $0.name == name && $0.object == object && $0.options.runLoopMode == registration.mode
                    && $0.options.suspensionBehavior == registration.behavior
                    && $0.options.minimumInterval == registration.interval
                    && (registration.id == nil || $0.id == registration.id)
            }
            if !isThere {
                world.violate(
                    "E3", "\(witness.client) observes \(name ?? "any") from \(object ?? "any"), and is not registered")
            }
        }
    }

    /// D8: nothing is left of those who left.
    func judgeEmptiness() {
        guard let center = host.center else { return world.violate("convergence", "there is no service") }
        ledger.values.judgeLeft(values(of: center).compactMap { $0 })
        let statistics = center.statistics
        let left: [(String, UInt64)] = [
            ("clients", statistics.clients), ("observers", statistics.observers), ("notifications", statistics.queued),
            ("bytes of notifications", statistics.queuedBytes), ("posts", statistics.queuedPosts),
            ("bytes of posts", statistics.queuedPostBytes), ("bytes of answers", statistics.answerBytes),
        ]
        for (what, count) in left where count > 0 {
            world.violate("D8", "everybody has left, and \(count) \(what) are still there")
        }
        if streams.openInService > 0 {
            world.violate("D8", "everybody has left, and \(streams.openInService) channels are still there")
        }
        for (what, count) in host.kept where count > 0 {
            world.violate("D8", "everybody has left, and \(count) \(what) are still there")
        }
        let names = Set(all.compactMap { $0.witness?.client.rawValue })
        for peer in host.openPeers {
            for rule in peer.rules.keys where names.contains(rule.firstArgument ?? "") {
                world.violate("D8", "everybody has left, and \(rule.firstArgument!) is still watched")
            }
        }
    }
}
