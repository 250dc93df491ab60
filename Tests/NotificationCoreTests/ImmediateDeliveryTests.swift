// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonTestLimits
import Testing

/// Notifications that a suspended client gets at once.
@Suite("Immediate delivery", .limited)
struct ImmediateDeliveryTests {
    let center = Scenario()

    @Test("S3: a delivery to a deliver-immediately observer first flushes the queue and leaves the client suspended")
    func registered() throws {
        let holding = try center.observe(one, "A", "", .hold)
        let coalescing = try center.observe(one, "B", "", .coalesce)
        let urgent = try center.observe(one, "C", "", .deliverImmediately)
        try center.suspend(one)
        try center.post("A")
        try center.post("B")
        #expect(center.received(one) == [])
        try center.post("C")
        #expect(center.names(one) == ["A", "B", "C"])
        #expect(center.received(one).map(\.observers) == [[holding], [coalescing], [urgent]])
        #expect(center.status(one)?.isSuspended == true)
        try center.post("A")
        #expect(center.received(one).count == 3, "it is suspended still")
        #expect(center.status(one)?.queued == 1)
    }

    @Test(
        "S3: a post with deliver-immediately flushes the held queue and leaves the client suspended",
        arguments: SuspensionBehavior.allCases)
    func asked(_ behavior: SuspensionBehavior) throws {
        try center.observe(one, "A", "", .hold)
        let observer = try center.observe(one, "B", "", behavior)
        try center.suspend(one)
        try center.post("A")
        #expect(try center.post("B", immediately: true) == 1)
        #expect(center.names(one) == ["A", "B"])
        #expect(center.received(one).last?.observers == [observer])
        try center.post("A")
        #expect(center.received(one).count == 2, "it is suspended still")
        try center.resume(one)
        #expect(center.names(one) == ["A", "B", "A"])
    }

    @Test("S3: a deliver-immediately post treats every matching observer as deliver-immediately, even with drop")
    func askedOfAll() throws {
        let observers = try SuspensionBehavior.allCases.map { try center.observe(one, "A", "", $0) }
        try center.suspend(one)
        try center.post("A", immediately: true)
        #expect(center.received(one).map(\.observers) == [observers])
        try center.resume(one)
        #expect(center.received(one).count == 1)
    }

    @Test("S3, D6: a deliver-immediately observer causes one delivery at once to all observers that do not drop")
    func oneOfSeveral() throws {
        try center.observe(one, "A", "", .drop)
        let holding = try center.observe(one, "A", "", .hold)
        let urgent = try center.observe(one, "", "", .deliverImmediately)
        let coalescing = try center.observe(one, "A", "", .coalesce)
        try center.suspend(one)
        try center.post("A")
        #expect(center.received(one).map(\.observers) == [[holding, urgent, coalescing]])
        try center.resume(one)
        #expect(center.received(one).count == 1)
    }

    @Test("S3: only the clients with a deliver-immediately observer are flushed")
    func othersStayHeld() throws {
        try center.observe(one, "A", "", .hold)
        try center.observe(one, "B", "", .deliverImmediately)
        try center.observe(two, "A", "", .hold)
        try center.observe(two, "B", "", .hold)
        try center.suspend(one)
        try center.suspend(two)
        try center.post("A")
        try center.post("B")
        #expect(center.names(one) == ["A", "B"])
        #expect(center.names(two) == [])
        #expect(center.status(two)?.queued == 2)
    }

    @Test("S3: after a flush coalescing begins anew")
    func coalescingAfterFlush() throws {
        try center.observe(one, "A", "", .coalesce)
        try center.observe(one, "B", "", .deliverImmediately)
        try center.suspend(one)
        try center.post("A")
        try center.post("B")
        try center.post("A")
        try center.post("A")
        #expect(center.status(one)?.queued == 1)
        try center.resume(one)
        #expect(center.received(one).map(\.serial) == [1, 2, 4])
    }

    @Test("S3: a deliver-immediately post to an active client is delivered like any other")
    func activeClients() throws {
        try center.observe(one, "A")
        try center.post("A", "1")
        try center.post("A", "2", immediately: true)
        try center.post("A", "3")
        #expect(center.objects(one) == ["1", "2", "3"])
    }

    @Test(
        "S3, A4: for a client that does not read, immediate delivery keeps the order and due notifications do not coalesce"
    )
    func toAStoppedClient() throws {
        try center.observe(one, "A", "", .coalesce)
        try center.observe(one, "B", "", .deliverImmediately)
        center.stop(one)
        try center.post(128, of: "B")
        try center.suspend(one)
        center.clear()
        try center.post("A", "held")
        try center.post("B", "urgent")
        try center.post("A", "held")
        try center.post("A", "held")
        #expect(center.received(one) == [])
        #expect(center.status(one)?.queued == 3)
        center.goOn(one)
        #expect(center.objects(one) == ["held", "urgent"], "the last is held until it is resumed")
        try center.resume(one)
        #expect(center.received(one).map(\.serial) == [129, 130, 132])
    }
}
