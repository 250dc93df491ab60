// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonTestLimits
import Testing

@testable import CarillonSimulation

/// What judges the cost of events. All states at their limits are for optimised programs: `tools/simulate --costs`.
@Suite("E8: check of the cost of events", .limited)
struct EventCostTests {
    /// States that a debug build makes in little time.
    private static let cheap: [FullState] = [.observersOfOne, .connectionValues, .clients]

    @Test(
        "Each event remains within its budget beside state that the event does not have to traverse", arguments: cheap)
    func withinBudget(state: FullState) async throws {
        var lines: [String] = []
        #expect(try EventCosts.check(beside: [state]) { lines.append($0) }, "\(lines)")
        #expect(!lines.isEmpty, "a matching post takes more than a tenth of the budget")
    }

    @Test("An event above the budget that is no known exception is reported by name")
    func exceeded() throws {
        var lines: [String] = []
        #expect(try !EventCosts.check(beside: [.observersOfOne], budget: 30_000) { lines.append($0) })
        #expect(lines.contains("observersOfOne: post exceeds the budget of 30000 steps"), "\(lines)")
    }

    @Test("A known exception that is within the budget is reported as well")
    func mended() throws {
        var lines: [String] = []
        #expect(try !EventCosts.check(beside: [.suspendedClients], budget: .max) { lines.append($0) })
        #expect(
            lines.contains("suspendedClients: post is within the budget, and has to leave the list of known ones"),
            "\(lines)")
    }

    @Test("An event above the budget violates rule E8 in a simulation")
    func simulated() {
        var dials = Dials()
        dials.sabotage = .smallBudget
        dials.seconds = 5
        let violation = SeededRun(seed: 7, dials: dials).make().violation
        #expect(violation?.rule == "E8", "\(String(describing: violation))")
    }
}
