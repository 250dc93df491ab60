// SPDX-License-Identifier: Apache-2.0
import CarillonCore

/// The steps of each event of the center beside each state at its limit (E8). Counted, not timed.
package enum EventCosts {
    /// Events that exceed the budget, by the state beside which they do. The list is exact: an event that is mended has
    /// to leave it, and no other may join it.
    private static func known(beside state: FullState) -> Set<String> {
        switch state {
        case .observersOfAll: ["losePosts", "post", "postQueued"]
        case .suspendedClients: ["post"]
        case .held, .coalescing, .due: ["explanation", "removeObserver"]
        case .observersOfOne, .clients, .retained, .connectionValues, .expiring, .replays, .intervals, .interest,
            .queuedPosts, .atExitPosts, .answers, .blockedPeers:
            []
        }
    }

    /// Counts the steps of all events.
    ///
    /// - Parameters:
    ///   - states: beside which the events happen.
    ///   - budget: the most steps of an event.
    ///   - report: is given a line for each event that exceeds a tenth of the budget, and for each that does not agree
    ///     with the list of known ones.
    /// - Returns: whether the events that exceed the budget are those that are known.
    package static func check(
        beside states: [FullState] = FullState.allCases, budget: Int = StepMeter.budget, report: (String) -> Void
    ) throws -> Bool {
        var isGood = true
        for state in states {
            let costs = try costs(beside: state)
            for (event, steps) in costs.sorted(by: { $0.value > $1.value }) where steps > budget / 10 {
                report("\(state.rawValue): \(event): \(steps) steps")
            }
            let excessive = Set(costs.filter { $0.value > budget }.keys)
            let known = known(beside: state)
            for event in excessive.subtracting(known).sorted() {
                report("\(state.rawValue): \(event) exceeds the budget of \(budget) steps")
            }
            for event in known.subtracting(excessive).sorted() {
                report("\(state.rawValue): \(event) is within the budget, and has to leave the list of known ones")
            }
            isGood = isGood && excessive == known
        }
        return isGood
    }

    /// The most steps of each event, by the name of its function.
    private static func costs(beside state: FullState) throws -> [String: Int] {
        var costs: [String: Int] = [:]
        for end in [nil] + ends(of: state).map(Optional.some) {
            let full = try state.build()
            if let end { try end.run(on: full) } else { runAll(on: full) }
            costs.merge(full.costs) { max($0, $1) }
        }
        return costs
    }

    /// Has every event happen that leaves the state as it is, or nearly: from a client that has nothing, and from the one
    /// that the state belongs to. An event that a limit refuses costs what it costs until then.
    private static func runAll(on full: MeteredCenter) {
        let (subject, bystander) = (FullState.subject, FullState.bystander)
        look(at: full)
        for client in [bystander, subject] { registering(client, on: full) }
        posting(on: full)
        for client in [bystander, subject] { flowing(client, on: full) }
        full.perform { _ in _ = full.center.checkBackpressure() }
        full.perform { full.center.setAutomaticSuspension(false, effects: &$0) }
        full.perform { full.center.setAutomaticSuspension(true, effects: &$0) }
        full.now += 61_000_000
        full.perform { full.center.intervalTimerEnded(subject, effects: &$0) }
    }

    private static func look(at full: MeteredCenter) {
        let center = full.center
        full.perform { _ in _ = center.clientStatuses }
        full.perform { _ in _ = center.posterStatuses(most: 100, where: { _ in true }) }
        full.perform { _ in _ = center.registrations(of: FullState.subject) }
        for name in ["", "A"] {
            full.perform { _ in _ = center.explanation(of: FullState.subject, name: name, object: "") }
            full.perform { _ = center.retainedValues(name: name, object: "", effects: &$0) }
        }
    }

    private static func registering(_ client: ClientName, on full: MeteredCenter) {
        let center = full.center
        for name in ["Z\(client)", "A", ""] {
            try? full.observe(client, name)
            guard let id = center.registrations(of: client)?.last?.id else { continue }
            try? full.perform { try center.removeObserver(id, of: client, effects: &$0) }
        }
        var options = ObserverOptions()
        options.wantsRetained = true
        try? full.observe(client, "", "", options)
        options.minimumInterval = 1000
        try? full.observe(client, "A", "", options)
        try? full.perform { try center.setOptions(ClientOptionsChange(batches: true), of: client, effects: &$0) }
        try? full.followInterest(client)
        try? full.observe(FullState.poster, "AA\(client)")
        try? full.followInterest(client, after: "A1")
        try? full.perform { effects in
            _ = try center.followValues(
                of: client, after: 0, most: 1000, room: 1 << 20, byteCount: { $0.byteCount }, effects: &effects)
        }
    }

    private static func posting(on full: MeteredCenter) {
        let (subject, poster) = (FullState.subject, FullState.poster)
        for style in PostingStyle.allCases {
            var options = PostOptions()
            options.postingStyle = style
            options.coalescing = [.name]
            try? full.post("A", from: poster, options)
            try? full.post("A", from: subject, options)
        }
        var retained = PostOptions()
        retained.retention = Retention()
        try? full.post("V1", "o", from: poster, retained)
        var immediate = PostOptions()
        immediate.deliverImmediately = true
        try? full.post("A", from: poster, immediate)
        let reach = full.center.reach(ofPost: "A", object: "", deliverImmediately: false)!
        var lost = [LostPost(100, reaching: reach, from: poster)]
        full.perform { full.center.losePosts(&lost, effects: &$0) }
        for style in PostingStyle.allCases {
            full.perform { full.center.postQueued(style, limit: MeteredCenter.perDispatch, effects: &$0) }
        }
    }

    private static func flowing(_ client: ClientName, on full: MeteredCenter) {
        let center = full.center
        full.perform { center.identify(client, as: .process(7), effects: &$0) }
        full.perform { _ = center.mayAnswer(client, byteCount: 100, effects: &$0) }
        full.perform { center.callIsKept(of: client, byteCount: 100, effects: &$0) }
        full.perform { _ in center.callIsTaken(of: client, byteCount: 100) }
        full.perform { center.setActivity(.inactive, of: client, effects: &$0) }
        full.perform { center.setActivity(.active, of: client, effects: &$0) }
        full.perform { center.deliveryRefused(client, effects: &$0) }
        full.perform { center.probeRefused(client, isCounted: false, effects: &$0) }
        full.perform { center.clientAnswered(client, effects: &$0) }
        full.perform { center.backlogProbed(client, hasRead: true, effects: &$0) }
        full.perform { center.intervalTimerEnded(client, effects: &$0) }
        full.perform { center.inFlightLost(client, atMost: 10, losses: 1, effects: &$0) }
        full.perform { center.controlSignalsLost(client, revoked: [ObserverID(rawValue: 1)], effects: &$0) }
        full.perform { center.channelEnded(of: client, revoked: [ObserverID(rawValue: 1)], effects: &$0) }
        full.perform { center.channelCarried(to: client, effects: &$0) }
        full.perform { center.channelEndedUndelivered(of: client, effects: &$0) }
    }

    /// The events that end a state, or much of it.
    private static func ends(of state: FullState) -> [End] {
        switch state {
        case .observersOfOne, .observersOfAll: [.removeObservers, .revoke, .leave, .endConnection]
        case .clients, .suspendedClients, .interest: [.leave, .endConnection]
        case .held, .coalescing, .replays, .intervals:
            [.resume, .override, .removeObservers, .revoke, .leave, .endConnection]
        case .due: [.read, .removeObservers, .revoke, .leave, .endConnection]
        case .retained, .expiring: [.forgetValues, .endConnection]
        case .connectionValues: [.forgetValues, .leave, .endConnection]
        case .queuedPosts, .atExitPosts: [.withdraw, .leave, .endConnection]
        case .answers, .blockedPeers: [.read, .leave, .endConnection]
        }
    }

    /// An event that ends a state, or much of it.
    private enum End {
        case resume
        case override
        case read
        case removeObservers
        case revoke
        case withdraw
        case forgetValues
        case leave
        case endConnection

        func run(on full: MeteredCenter) throws {
            let center = full.center
            let subject = FullState.subject
            switch self {
            case .resume:
                try full.suspend(subject)
                try full.suspend(subject, false)
            case .override:
                let override = SuspensionOverride(isSuspended: false)
                full.perform { _ = center.overrideSuspension(override, of: subject, effects: &$0) }
            case .read:
                full.silent = []
                for client in center.clientStatuses.map(\.name) {
                    full.perform { center.backlogProbed(client, hasRead: true, effects: &$0) }
                }
            case .removeObservers:
                full.perform { _ = center.removeObservers(of: subject, name: "", object: "", effects: &$0) }
            case .revoke:
                let all = Set((center.registrations(of: subject) ?? []).map(\.id))
                full.perform { center.revoke(all, of: subject, effects: &$0) }
            case .withdraw:
                while full.perform({ center.withdrawPosts(of: subject, name: "", object: "", effects: &$0).isMore }) {}
            case .forgetValues:
                while full.perform({ center.removeRetained(name: "", object: "", effects: &$0).isMore }) {}
            case .leave: full.leave(subject)
            case .endConnection:
                full.perform { center.connectionEnded(effects: &$0) }
                full.perform { _ in _ = center.snapshot() }
            }
        }
    }
}
