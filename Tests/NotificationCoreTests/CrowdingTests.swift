import NotificationCore
import TestLimits
import Testing

/// Posters that are faster than observers who read (`docs/flow-control.md`).
@Suite("E4: crowding", .watched)
struct CrowdingTests {
    @Test("E4: half a queue that is read makes posts be read slowly, until it is three eighths")
    func halfFull() throws {
        let center = Scenario([.queuedPerClient: 800])
        try center.observe(one, "A")
        center.stop(one)
        try center.post(128 + 400, of: "A")  // two windows are on their way
        #expect(!center.center.isCrowded)
        try center.post(1, of: "A")
        #expect(center.center.isCrowded)
        #expect(center.center.checkCrowding() == 0)
        center.answer(one)
        #expect(center.center.checkCrowding() == 64, "as many as it was sent since")
        #expect(center.center.isCrowded)
        center.answer(one)
        #expect(center.center.checkCrowding() == 0)
        #expect(!center.center.isCrowded)
    }

    @Test("E4: who does not read any more slows nobody, until it reads again")
    func stalled() throws {
        let center = Scenario([.queuedPerClient: 800])
        try center.observe(one, "A")
        center.stop(one)
        try center.post(600, of: "A")
        for _ in 0..<20 {
            #expect(center.center.isCrowded)
            _ = center.center.checkCrowding()
        }
        #expect(!center.center.isCrowded)
        try center.post(1000, of: "A")
        #expect(!center.center.isCrowded)
        center.answer(one)
        try center.post(1, of: "A")
        #expect(center.center.isCrowded)
    }

    @Test("E4: what is held for a suspended client slows nobody, and who leaves neither")
    func suspended() throws {
        let center = Scenario([.queuedPerClient: 800])
        try center.observe(one, "A", "", .hold)
        try center.suspend(one)
        try center.post(700, of: "A")
        #expect(!center.center.isCrowded)
        try center.observe(two, "B")
        center.stop(two)
        try center.post(600, of: "B")
        #expect(center.center.isCrowded)
        center.disappear(two)
        _ = center.center.checkCrowding()
        #expect(!center.center.isCrowded)
    }
}
