// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonTestLimits
import Testing

@testable import CarillonSimulation

/// What judges the cost of events. All states at their limits are for optimised programs: `tools/simulate --costs`.
@Suite("E8: the judge of the cost of events", .limited)
struct EventCostTests {
    /// States that a debug build makes in little time.
    private static let cheap: [FullState] = [.observersOfOne, .connectionValues, .clients]

    @Test("Each event stays within its budget, beside states that it does not have to go through", arguments: cheap)
    func withinBudget(state: FullState) async throws {
        var lines: [String] = []
        #expect(try EventCosts.check(beside: [state]) { lines.append($0) }, "\(lines)")
        #expect(!lines.isEmpty, "a matching post takes more than a tenth of the budget")
    }

    @Test("An event that exceeds the budget, and is not known to, is found with its name")
    func exceeded() throws {
        var lines: [String] = []
        #expect(try !EventCosts.check(beside: [.observersOfOne], budget: 30_000) { lines.append($0) })
        #expect(lines.contains("observersOfOne: post exceeds the budget of 30000 steps"), "\(lines)")
    }

    @Test("An event that is known to exceed the budget, and does not, is found as well")
    func mended() throws {
        var lines: [String] = []
        #expect(try !EventCosts.check(beside: [.suspendedClients], budget: .max) { lines.append($0) })
        #expect(
            lines.contains("suspendedClients: post is within the budget, and has to leave the list of known ones"),
            "\(lines)")
    }

    @Test("In a simulation an event that exceeds the budget breaks the rule")
    func simulated() {
        var dials = Dials()
        dials.sabotage = .smallBudget
        dials.seconds = 5
        let violation = SeededRun(seed: 7, dials: dials).make().violation
        #expect(violation?.rule == "E8", "\(String(describing: violation))")
    }
}
