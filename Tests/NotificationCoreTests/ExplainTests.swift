// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonTestLimits
import Testing

/// What is said of a notification that would be posted, held against what becomes of one that is.
@Suite("B3: explanations of delivery", .limited)
struct ExplainTests {
    private let one: ClientName = ":1.1"

    /// Why a client is as it is.
    enum State: CaseIterable {
        case active, said, inactive, overridden, activeByOverride, resumedBySaying
    }

    private func enter(_ state: State, on center: Scenario) throws {
        switch state {
        case .active: break
        case .said: try center.suspend(one)
        case .inactive: center.deactivate(one)
        case .overridden: #expect(center.override(one, true))
        case .activeByOverride:
            try center.suspend(one)
            #expect(center.override(one, false))
        case .resumedBySaying:
            center.deactivate(one)
            try center.resume(one)
        }
    }

    private func resume(_ state: State, on center: Scenario) throws {
        _ = center.override(one, nil)
        try center.resume(one)
    }

    @Test("An explanation predicts the delivery for every behavior, state and interval", arguments: State.allCases)
    func matrix(state: State) throws {
        var seen: Set<String> = []
        for behavior in SuspensionBehavior.allCases {
            for neighbour in isQuick ? [nil] : [nil] + SuspensionBehavior.allCases.map(Optional.some) {
                for interval in [0, 100] as [UInt32] {
                    for (reads, isRunning) in [(true, false), (true, true), (false, false), (false, true)] {
                        let center = Scenario()
                        let id = try center.observe(one, "A", "", behavior, interval: interval)
                        if let neighbour { try center.observe(one, "", "", neighbour) }
                        try center.observe(one, "Fill", "", .deliverImmediately)
                        if isRunning { try center.post("A") }
                        if !reads {
                            center.stop(one)
                            try exhaust("what may be on its way", most: 300) {
                                try center.post("Fill", immediately: true)
                                return center.status(one)?.queued == 0
                            }
                        }
                        try enter(state, on: center)
                        let case_ = "\(state), \(behavior), \(String(describing: neighbour)), \(interval), \(reads)"
                        let explanation = try #require(center.center.explanation(of: one, name: "A", object: ""))
                        let match = try #require(explanation.matches.first { $0.registration.id == id })
                        try center.post("A")
                        let tag = center.lastTag
                        func has() -> Bool {
                            center.received(one).contains { $0.tag == tag && $0.observers.contains(id) }
                        }
                        seen.insert(match.fate.word)
                        switch match.fate {
                        case .sent: #expect(has(), "\(case_)")
                        case .waitsForReading:
                            #expect(!has() && !reads, "\(case_)")
                            center.goOn(one)
                            #expect(has(), "\(case_)")
                        case .waitsForResuming:
                            center.goOn(one)
                            center.wait(1000)
                            #expect(!has() && explanation.status.isSuspended, "\(case_)")
                            try resume(state, on: center)
                            #expect(has(), "\(case_)")
                        case .waitsForInterval(let microseconds):
                            #expect(!has() && microseconds <= Int64(interval) * 1000, "\(case_)")
                            center.goOn(one)
                            center.wait(microseconds / 1000 + 3)
                            #expect(has(), "\(case_)")
                        case .dropped:
                            #expect(explanation.status.isSuspended, "\(case_)")
                            try resume(state, on: center)
                            center.goOn(one)
                            center.wait(1000)
                            #expect(!has(), "\(case_)")
                        }
                        try center.center.checkInvariants()
                    }
                }
            }
        }
        let isSuspended = [State.said, .inactive, .overridden].contains(state)
        #expect(seen.isSuperset(of: isSuspended ? ["sent", "resuming", "dropped"] : ["sent", "reading", "interval"]))
    }

    @Test("R5: a minimum interval of 1 ms is in force, and appears in the explanation")
    func shortestInterval() throws {
        let center = Scenario()
        try center.observe(one, "A", interval: 1)
        try center.post("A")
        let explanation = try #require(center.center.explanation(of: one, name: "A", object: ""))
        guard case .waitsForInterval(1...1000)? = explanation.matches.first?.fate else {
            Issue.record("\(explanation.matches)")
            return
        }
    }

    @Test("B3: an explanation shows a loss on the bus as unreported until the client is informed")
    func lossOnBus() throws {
        let center = Scenario()
        try center.observe(one, "A")
        try center.post(3, of: "A")
        func isTold() throws -> Bool {
            try #require(center.center.explanation(of: one, name: "A", object: "")).isLossReported
        }
        #expect(try isTold())
        center.cutDeliveries(to: one, atMost: 2)
        #expect(try !isTold())
        let next = DistributedCenter()
        next.takeOver(center.center)
        #expect(next.explanation(of: one, name: "A", object: "")?.isLossReported == false)
        var effects: [Effect] = []
        next.finishRestoring(effects: &effects)
        #expect(next.explanation(of: one, name: "A", object: "")?.isLossReported == true)
    }

    @Test("An explanation covers unknown clients, mismatches, and waiting, coalesced and lost notifications")
    func rest() throws {
        let center = Scenario([.queuedPerClient: 20])
        #expect(center.center.explanation(of: one, name: "A", object: "") == nil)
        let id = try center.observe(one, "A", "x", .coalesce)
        func ask(_ name: String = "A", _ object: String = "x") throws -> Explanation {
            try #require(center.center.explanation(of: one, name: name, object: object))
        }
        #expect(try ask().matches.map(\.registration.id) == [id])
        #expect(try ask("A", "").matches.isEmpty && ask("B").matches.isEmpty && ask("a").matches.isEmpty)
        #expect(try ask("", "").matches.count == 1)
        try center.suspend(one)
        #expect(try ask().suspensionTime == 0 && ask().override == nil)
        for _ in 1...3 { try center.post("A", "x") }
        var all = try ask()
        #expect(all.waiting.held == 1 && all.waiting.due == 0 && all.coalesced == 2 && all.lastLoss == nil)
        #expect(try ask("A", "y").waiting.held == 0)
        try center.post("A", "x", style: .whenIdle)
        try center.post("A", "x", style: .atExit, from: ":1.7")
        try center.post("A", "y", style: .whenIdle)
        #expect(try ask().queuedPosts == [.whenIdle: 1, .atExit: 1] && ask("", "").queuedPosts.isEmpty)
        center.stop(one)
        try center.resume(one)
        try center.observe(one, "Fill")
        try center.post(400, of: "Fill")
        all = try ask()
        #expect(all.lastLoss == .queueFull && !all.isLossReported && all.status.flow == .waiting)
        #expect(try ask("", "").waiting.due == 20)
        center.goOn(one)
        #expect(try ask().isLossReported && ask().lastLoss == .queueFull && ask().status.flow == .open)
    }

    @Test("R5: an explanation counts the throttled notifications of the requested name and object")
    func throttled() throws {
        let center = Scenario()
        try center.observe(one, "A", interval: 1000)
        for object in ["x", "x", "y", "y", "z"] { try center.post("A", object) }
        func throttled(_ name: String, _ object: String) throws -> Int {
            try #require(center.center.explanation(of: one, name: name, object: object)).waiting.throttled
        }
        #expect(try throttled("A", "x") == 1 && throttled("A", "z") == 0 && throttled("B", "") == 0)
        #expect(try throttled("", "") == 2)
        center.wait(1000)
        #expect(try throttled("", "") == 0)
    }

    // MARK: Overriding

    @Test("A1, A2, S1: an override has precedence over SetSuspended and activity, which apply again after it")
    func override() throws {
        let center = Scenario()
        #expect(!center.override(one, true), "nobody knows it")
        try center.observe(one, "A", "", .hold)
        #expect(center.override(one, true))
        #expect(center.status(one)?.isSuspended == true && center.status(one)?.cause == .override)
        try center.resume(one)
        center.tell(.active, of: one)
        try center.post("A")
        #expect(center.names(one).isEmpty, "whatever it says")
        #expect(center.override(one, false))
        #expect(center.names(one) == ["A"])
        try center.suspend(one)
        center.deactivate(one)
        #expect(center.status(one)?.isSuspended == false)
        #expect(center.override(one, nil))
        #expect(center.status(one)?.isSuspended == true && center.status(one)?.cause == .explicit)
        try center.followActivity(one)
        #expect(center.status(one)?.isSuspended == true && center.status(one)?.cause == .activity)
        #expect(
            center.happened(one).filter { if case .suspensionChanged = $0 { true } else { false } } == [
                .suspensionChanged(true, .override), .suspensionChanged(false, .override),
                .suspensionChanged(true, .explicit), .suspensionChanged(true, .activity),
            ])
        try center.center.checkInvariants()
    }

    @Test("E3: an override survives a restart, with the client's own suspension behind it", arguments: [true, false])
    func restored(isSuspended: Bool) throws {
        let center = Scenario()
        center.center.remembersChanges = true
        try center.observe(one, "A", "", .hold)
        #expect(center.override(one, isSuspended))
        if isSuspended { try center.resume(one) } else { try center.suspend(one) }
        try center.post("A")
        for isWhole in [true, false] {
            let next = Scenario()
            if isWhole {
                center.center.forEachRememberedChange { _ = next.center.restore($0) }
            } else {
                for change in center.changes { _ = next.center.restore(change) }
            }
            next.finishRestoring()
            #expect(next.status(one)?.isSuspended == isSuspended && next.status(one)?.cause == .override)
            let told = next.happened(one).filter { if case .delivered = $0 { false } else { true } }
            #expect(told == [.suspensionChanged(isSuspended, .override)], "it has not confirmed that")
            #expect(next.override(one, nil))
            #expect(next.status(one)?.isSuspended == !isSuspended && next.status(one)?.cause == .explicit)
            #expect(next.names(one) + center.names(one) == ["A"])
        }
    }
}

extension Explanation.Fate {
    fileprivate var word: String {
        switch self {
        case .sent: "sent"
        case .waitsForReading: "reading"
        case .waitsForResuming: "resuming"
        case .waitsForInterval: "interval"
        case .dropped: "dropped"
        }
    }
}
