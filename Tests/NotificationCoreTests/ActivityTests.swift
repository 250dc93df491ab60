// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonTestLimits
import Testing

/// How the activity of applications becomes suspension.
@Suite("Suspension by activity", .limited)
struct ActivityTests {
    let center = Scenario()

    private func expectStatus(_ isSuspended: Bool, _ cause: SuspensionCause, _ client: ClientName = one) {
        #expect(center.status(client)?.isSuspended == isSuspended)
        #expect(center.status(client)?.cause == cause)
    }

    @Test("A1: an application that stays inactive for 250 ms is suspended, and informed of the cause")
    func suspends() throws {
        try center.observe(one)
        center.tell(.active, of: one)
        expectStatus(false, .activity)
        center.clear()
        center.tell(.inactive, of: one)
        #expect(center.happened(one) == [])
        expectStatus(false, .activity)
        #expect(center.inactivityTimers[one]?.map(\.milliseconds) == [250])
        center.endInactivityTimer(one)
        #expect(center.happened(one) == [.suspensionChanged(true, .activity)])
        expectStatus(true, .activity)
    }

    @Test("A1: an application that becomes active is resumed at once, and receives held notifications first")
    func resumes() throws {
        let observer = try center.observe(one, "A", "", .hold)
        center.deactivate(one)
        try center.post("A")
        try center.post("A")
        center.clear()
        center.tell(.active, of: one)
        try center.post("A")
        #expect(
            center.happened(one) == [
                .suspensionChanged(false, .activity), .delivered("A", to: [observer], sequence: 1),
                .delivered("A", to: [observer], sequence: 2), .delivered("A", to: [observer], sequence: 3),
            ])
    }

    @Test(
        "A1, S1: each of the four suspension behaviors applies to a client that activity suspends",
        arguments: [
            (SuspensionBehavior.drop, [] as [String], [] as [String]), (.coalesce, [], ["2"]), (.hold, [], ["1", "2"]),
            (.deliverImmediately, ["1", "2"], []),
        ])
    func behaviors(behavior: SuspensionBehavior, during: [String], after: [String]) throws {
        try center.observe(one, "", "", behavior)
        center.deactivate(one)
        // Of one name and object, so that they coalesce; the tag tells them apart.
        try center.post("A")
        try center.post("A")
        #expect(center.received(one).map { "\($0.tag)" } == during)
        center.clear()
        center.tell(.active, of: one)
        #expect(center.received(one).map { "\($0.tag)" } == after)
    }

    @Test("A1: an inactivity that ends before its timer causes neither a suspension nor a signal")
    func tooShort() throws {
        try center.observe(one, "A", "", .hold)
        center.tell(.active, of: one)
        center.clear()
        center.tell(.inactive, of: one)
        try center.post("A")
        center.tell(.active, of: one)
        center.endInactivityTimer(one)
        try center.post("A")
        expectStatus(false, .activity)
        #expect(center.names(one) == ["A", "A"])
        #expect(center.happened(one).count == 2, "only deliveries")
    }

    @Test(
        "S5: a late inactivity timer does not suspend a client that was active since, or whose newer timer runs"
    )
    func lateTimer() throws {
        try center.observe(one)
        center.tell(.inactive, of: one)
        let first = try #require(center.inactivityTimers[one]?.last?.epoch)
        center.tell(.active, of: one)
        center.tell(.inactive, of: one)
        center.endInactivityTimer(one, epoch: first)
        expectStatus(false, .activity)
        center.endInactivityTimer(one)
        expectStatus(true, .activity)
        center.tell(.active, of: one)
        center.endInactivityTimer(one)
        expectStatus(false, .activity)
    }

    @Test("S5: an inactivity timer of a client that left does not suspend a new client with its bus name")
    func timerOfAnother() throws {
        try center.observe(one)
        center.tell(.inactive, of: one)
        let epoch = try #require(center.inactivityTimers[one]?.last?.epoch)
        center.disappear(one)
        try center.observe(one)
        center.tell(.inactive, of: one)
        center.endInactivityTimer(one, epoch: epoch)
        expectStatus(false, .none)
    }

    @Test("A1: a repeated activity report starts no second timer and sends no second signal")
    func repeated() throws {
        try center.observe(one)
        center.deactivate(one)
        center.tell(.inactive, of: one)
        #expect(center.inactivityTimers[one]?.count == 1)
        #expect(center.happened(one) == [.suspensionChanged(true, .activity)])
    }

    @Test("A2: an unknown activity resumes a client as if it were active", arguments: [Activity.active, .inactive])
    func unknown(before: Activity) throws {
        let observer = try center.observe(one, "A", "", .hold)
        center.tell(before, of: one)
        center.endInactivityTimer(one)
        try center.post("A")
        center.tell(.unknown, of: one)
        expectStatus(false, .none)
        #expect(center.received(one).map(\.observers) == [[observer]])
    }

    @Test("A2: an explicit suspension or resumption overrides activity, and later activity does not undo it")
    func explicitWord() throws {
        try center.observe(one)
        center.deactivate(one)
        try center.resume(one)
        expectStatus(false, .explicit)
        center.tell(.active, of: one)
        center.deactivate(one)
        expectStatus(false, .explicit)
        try center.suspend(one)
        center.tell(.active, of: one)
        expectStatus(true, .explicit)
    }

    @Test("A2: after FollowActivity the known activity decides the suspension at once")
    func handedBack() throws {
        try center.observe(one, "A", "", .hold)
        try center.resume(one)
        center.deactivate(one)
        center.clear()
        try center.followActivity(one)
        #expect(center.happened(one) == [.suspensionChanged(true, .activity)])
        try center.suspend(one)
        try center.post("A")
        center.tell(.active, of: one)
        center.clear()
        try center.followActivity(one)
        expectStatus(false, .activity)
        #expect(center.names(one) == ["A"])
    }

    @Test("A2: an observer with automatic-suspension false prevents the automatic suspension of its client")
    func refusedByAnObserver() throws {
        try center.observe(one, "A", "", .hold)
        let refusing = try center.observe(one, "B", automatic: false)
        try center.observe(two, "A", "", .hold)
        center.deactivate(one)
        center.deactivate(two)
        expectStatus(false, .none)
        expectStatus(true, .activity, two)
        try center.post("A")
        #expect(center.names(one) == ["A"])
        // What is known stays known: without that observer it counts.
        try center.remove(refusing, of: one)
        expectStatus(true, .activity)
        try center.post("A")
        #expect(center.names(one) == ["A"])
        try center.observe(one, "B", automatic: false)
        expectStatus(false, .none)
        #expect(center.names(one) == ["A", "A"])
        #expect(center.removeAll(of: one, name: "B") == 1)
        expectStatus(true, .activity)
    }

    @Test("A2: a client with two observers that refuse suspension is suspended only after both are removed")
    func refusedTwice() throws {
        let first = try center.observe(one, automatic: false)
        let second = try center.observe(one, automatic: false)
        center.deactivate(one)
        try center.remove(first, of: one)
        expectStatus(false, .none)
        try center.remove(second, of: one)
        expectStatus(true, .activity)
    }

    @Test("A2: an observer that refuses automatic suspension does not prevent an explicit one")
    func refusalAndWord() throws {
        try center.observe(one, automatic: false)
        try center.suspend(one)
        expectStatus(true, .explicit)
    }

    @Test("A2: the configuration disables and enables automatic suspension for all clients at once")
    func configured() throws {
        try center.observe(one, "A", "", .hold)
        try center.observe(two)
        try center.suspend(two)
        center.deactivate(one)
        try center.post("A")
        center.setAutomaticSuspension(false)
        expectStatus(false, .none)
        expectStatus(true, .explicit, two)
        #expect(center.names(one) == ["A"])
        try center.observe(three)
        center.deactivate(three)
        expectStatus(false, .none, three)
        center.setAutomaticSuspension(true)
        expectStatus(true, .activity)
        expectStatus(true, .activity, three)
    }

    @Test("A1: activity of an unknown client has no effect")
    func stranger() {
        center.tell(.inactive, of: one)
        center.endInactivityTimer(one, epoch: 1)
        #expect(center.status(one) == nil)
    }

    // MARK: Restarts

    private func restarted(_ old: DistributedCenter) -> (DistributedCenter, [Effect]) {
        let new = DistributedCenter()
        new.remembersChanges = true
        old.forEachRememberedChange { change in #expect(new.restore(change)) }
        var effects: [Effect] = []
        new.finishRestoring(effects: &effects)
        return (new, effects)
    }

    @Test("E3, A2: a new service resumes clients suspended by activity, informs them, and sends held notifications")
    func restart() throws {
        try center.observe(one, "A", "", .hold)
        center.deactivate(one)
        try center.post("A")
        let (new, effects) = restarted(center.center)
        #expect(new.clientStatuses.map(\.isSuspended) == [false])
        #expect(new.clientStatuses.map(\.cause) == [.none])
        #expect(new.statistics.queued == 0)
        let seen = effects.compactMap { effect -> String? in
            switch effect {
            case .suspensionChanged(_, let isSuspended, let cause): "\(isSuspended) \(cause)"
            case .deliver(let delivery): delivery.notification.name
            default: nil
            }
        }
        #expect(seen == ["false none", "A"])
    }

    /// The words to a client about its suspension.
    private func told(_ effects: [Effect], _ client: ClientName = one) -> [String] {
        effects.compactMap { effect in
            if case .suspensionChanged(client, let isSuspended, let cause) = effect {
                "\(isSuspended) \(cause)"
            } else {
                nil
            }
        }
    }

    /// A client that activity has suspended, and that has confirmed that it was told.
    private func suspendConfirmed() throws {
        try center.observe(one, "A")
        center.deactivate(one)
        // With these its window is full, and its answers confirm all before.
        for _ in 0..<64 { _ = center.answer(to: one) }
    }

    @Test(
        "E3, A2: a client that acknowledged its suspension by activity is informed of its end, also after two restarts")
    func restartOfWhoKnows() throws {
        try suspendConfirmed()
        #expect(told(restarted(center.center).1) == ["false none"])
        // One that ended before it had decided anything.
        let undecided = DistributedCenter()
        center.center.forEachRememberedChange { #expect(undecided.restore($0)) }
        #expect(told(restarted(undecided).1) == ["false none"])
    }

    @Test("E3, A2: a client that acknowledged the resume by a new service is not informed again by the next one")
    func restartOfWhoWasResumed() throws {
        try suspendConfirmed()
        let (new, _) = restarted(center.center)
        var effects: [Effect] = []
        for _ in 0..<64 { _ = new.mayAnswer(one, byteCount: 100, effects: &effects) }
        for _ in 0..<2 { new.clientAnswered(one, effects: &effects) }
        new.forEachRememberedChange { change in
            if case .suspendedByActivity = change { Issue.record("\(change)") }
        }
        #expect(told(restarted(new).1) == [])
    }

    @Test("E3, A2: an explicit suspension and its held notifications survive a restart, independent of activity")
    func restartWithWord() throws {
        try center.observe(one, "A", "", .hold)
        center.deactivate(one)
        try center.suspend(one)
        try center.post("A")
        let (new, effects) = restarted(center.center)
        #expect(new.clientStatuses.map(\.cause) == [.explicit])
        #expect(new.statistics.queued == 1)
        let told = effects.compactMap { effect in
            if case .suspensionChanged(one, let isSuspended, let cause) = effect {
                "\(isSuspended) \(cause)"
            } else {
                nil
            }
        }
        #expect(told == ["true explicit"], "it has not confirmed that")
    }

    @Test("E3, A2: the refusal of automatic suspension by an observer survives a restart")
    func restartOfARefusal() throws {
        try center.observe(one, automatic: false)
        let (new, _) = restarted(center.center)
        var effects: [Effect] = []
        new.setActivity(.inactive, of: one, effects: &effects)
        new.inactivityTimerEnded(one, epoch: 1, effects: &effects)
        #expect(new.clientStatuses.map(\.isSuspended) == [false])
    }
}
