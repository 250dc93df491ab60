// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonTestLimits
import Testing

/// Who is suspended, why, and how it learns that.
@Suite("Changes of suspension", .limited)
struct SuspensionChangeTests {
    let center = Scenario()

    private func expectStatus(_ isSuspended: Bool, _ cause: SuspensionCause) {
        #expect(center.status(one)?.isSuspended == isSuspended)
        #expect(center.status(one)?.cause == cause)
    }

    @Test("S1: a client starts active, with no cause")
    func start() throws {
        try center.observe(one)
        expectStatus(false, .none)
        #expect(center.happened(one) == [])
    }

    @Test("S1: a client is informed of each change of its suspension with the cause, and only of changes")
    func changes() throws {
        try center.observe(one)
        try center.observe(two)
        try center.suspend(one)
        expectStatus(true, .explicit)
        try center.suspend(one)
        try center.resume(one)
        expectStatus(false, .explicit)
        try center.resume(one)
        #expect(center.happened(one) == [.suspensionChanged(true, .explicit), .suspensionChanged(false, .explicit)])
        #expect(center.happened(two) == [])
    }

    @Test("S1, E5: SuspensionChanged is repeated if the bus may have refused it and the client has not acknowledged it")
    func refused() throws {
        try center.observe(one)
        try center.suspend(one)
        try center.resume(one)
        center.clear()
        center.refuseProbe(of: one)
        #expect(center.happened(one) == [.suspensionChanged(false, .explicit)])
        for _ in 0..<100 { try center.post("A") }
        center.clear()
        center.refuseProbe(of: one, isCounted: true)
        #expect(center.happened(one) == [], "it has confirmed that")
    }

    @Test("S1, E5: a client that reads again is informed only of its current suspension")
    func refusedAndTakenBack() throws {
        try center.observe(one)
        center.stop(one)
        try center.suspend(one)
        center.refuseProbe(of: one)
        try center.resume(one)
        center.clear()
        center.goOn(one)
        #expect(center.happened(one) == [.suspensionChanged(false, .explicit)])
    }

    @Test("S2: a resumed client gets SuspensionChanged before its held notifications")
    func resumeIsToldFirst() throws {
        let observer = try center.observe(one, "A", "", .hold)
        try center.suspend(one)
        try center.post("A")
        center.clear()
        try center.resume(one)
        #expect(
            center.happened(one) == [
                .suspensionChanged(false, .explicit), .delivered("A", to: [observer], sequence: 1),
            ])
    }

    @Test("A2: FollowActivity ends an explicit suspension, and a client with unknown activity is active")
    func followActivity() throws {
        let observer = try center.observe(one, "A", "", .hold)
        try center.suspend(one)
        try center.post("A")
        center.clear()
        try center.followActivity(one)
        expectStatus(false, .none)
        #expect(
            center.happened(one) == [.suspensionChanged(false, .none), .delivered("A", to: [observer], sequence: 1)])
    }

    @Test("A2: FollowActivity informs a client that remains active of its changed cause")
    func followActivityOfAnActiveClient() throws {
        try center.observe(one)
        try center.followActivity(one)
        #expect(center.happened(one) == [])
        try center.resume(one)
        expectStatus(false, .explicit)
        try center.followActivity(one)
        expectStatus(false, .none)
        #expect(center.happened(one) == [.suspensionChanged(false, .explicit), .suspensionChanged(false, .none)])
    }

    @Test("S1: a client can be suspended before it observes")
    func beforeObserving() throws {
        try center.suspend(one)
        expectStatus(true, .explicit)
        #expect(center.watched == [one])
        try center.observe(one, "A", "", .hold)
        try center.post("A")
        #expect(center.received(one) == [])
        #expect(center.watched == [one], "watched once")
    }

    @Test("D8: a client that left is forgotten with its held notifications, and is active when it registers again")
    func disappearing() throws {
        try center.observe(one, "A", "", .hold)
        try center.suspend(one)
        try center.post("A", bytes: 1000)
        center.disappear(one)
        #expect(center.forgotten == [one])
        #expect(center.status(one) == nil)
        #expect(center.center.registrations(of: one) == nil)
        #expect(center.statistics.queued == 0)
        #expect(center.statistics.queuedBytes == 0)
        #expect(center.statistics.observers == 0)
        #expect(try center.post("A") == 0)

        try center.observe(one, "A", "", .hold)
        expectStatus(false, .none)
        try center.post("A")
        #expect(center.sequences(one) == [1], "its sequence begins anew, and nothing of before is left")
    }

    @Test("D8: the departure of an unknown client has no effect")
    func disappearingStranger() {
        center.disappear(one)
        #expect(center.forgotten == [])
    }

    @Test("E1: suspending a new client beyond the limit of clients is refused and changes nothing")
    func tooManyClients() throws {
        let center = Scenario([.clients: 1])
        try center.observe(one)
        #expect(throws: CenterError.limitExceeded(.clients, value: 1)) { try center.suspend(two) }
        #expect(throws: CenterError.limitExceeded(.clients, value: 1)) { try center.followActivity(two) }
        #expect(center.statistics.clients == 1)
        #expect(center.watched == [one])
        #expect(center.happened(two) == [])
        try center.suspend(one)
        center.disappear(one)
        try center.suspend(two)
    }
}
