// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCore
import CarillonWire

/// What is wanted in the session (G4), as far as it is certain: what observers ask for takes its time, and so does their
/// leaving.
extension Ledger {
    /// Holds what a client was told against what others surely observed all the time since it asked, and what they may have
    /// observed.
    func judgeInterest(_ pieces: [FollowedList<FollowInterest>.Piece], of client: UniqueName) {
        let names = pieces.flatMap(\.reply.names)
        guard zip(names, names.dropFirst()).allSatisfy({ $0.utf8.lexicographicallyPrecedes($1.utf8) }) else {
            return world.violate("G4", "\(client) is told names in no order: \(names.joined(separator: ", "))")
        }
        let told = Follower.wanted(in: pieces)
        let asked = pieces[0].asked
        var possible: Set<String?> = []
        for witness in witnesses() where witness.client != client {
            for name in witness.wanted(since: asked) where !told.contains(name) {
                world.violate("G4", "\(client) is not told of \(name ?? "any"), which \(witness.client) observes")
            }
            possible.formUnion(witness.possiblyWanted(since: asked))
        }
        for name in told where !possible.contains(name) {
            world.violate("G4", "\(client) is told of \(name ?? "any"), which nobody else observes")
        }
    }
}

extension Follower {
    /// Holds what it was told against what the service has, when nothing happens any more.
    func judge(by center: DistributedCenter) {
        let ledger = client.ledger
        guard let name = client.witness?.client, let wanted, let listed else {
            let name = client.witness?.client.rawValue ?? "?"
            return ledger.world.violate("convergence", "\(name) follows, and is not answered")
        }
        let others = center.clientStatuses.map(\.name).filter { $0 != name }
        let observed: Set<String?> = Set(others.flatMap { center.registrations(of: $0) ?? [] }.map(\.name))
        if wanted != observed {
            ledger.world.violate(
                "G4", "\(name) was told of \(Self.text(wanted)), and others observe \(Self.text(observed))")
        }
        var kept: Set<NotificationKey> = []
        center.forEachRememberedChange { if case .retained(let value, _) = $0 { kept.insert(value.key) } }
        // Nobody is told that its own have gone.
        let own = Set(ledger.posts.lazy.filter { $0.poster == name }.map(\.plan.kind))
        for value in listed where !own.contains(ValueKind(value)) {
            let origin = OutsideOrigin.from(host: value.host, user: value.user)
            guard !kept.contains(NotificationKey(name: value.name, object: value.object, origin: origin)) else {
                continue
            }
            ledger.world.violate("G5", "\(name) was not told that a value has gone: \(ValueKind(value))")
        }
    }

    private static func text(_ names: Set<String?>) -> String {
        names.map { $0 ?? "any" }.sorted().joined(separator: ", ")
    }
}
