// SPDX-License-Identifier: Apache-2.0
import CarillonTestLimits
import Testing

@testable import CarillonSimulation

/// The way from a failure with hundreds of steps to one that a person can read, with judges whose answers are known.
@Suite("Reduction of failing runs", .limited)
struct ShrinkerTests {
    private let steps = Array(0..<400)

    @Test(
        "The necessary steps of a failure are kept, in their order",
        arguments: [[7], [3, 150, 399], [0, 1]])
    func needed(wanted: [Int]) {
        let result = Shrinker().shrink(steps) { candidate in wanted.allSatisfy(candidate.contains) }
        #expect(result.kept == wanted)
        #expect(result.isShortest)
        #expect(result.tries < 120, "by halves, and not one by one: \(result.tries)")
    }

    @Test("The shrinker keeps one of several steps that each suffice")
    func alternatives() {
        let result = Shrinker().shrink(steps) { $0.contains { $0.isMultiple(of: 50) } }
        #expect(result.kept.count == 1)
        #expect(result.isShortest)
    }

    @Test("Steps that fail only together are all kept")
    func whole() {
        let few = Array(0..<12)
        let result = Shrinker().shrink(few) { $0 == few }
        #expect(result.kept == few)
        #expect(result.isShortest)
    }

    @Test("The reduction ends after its maximum of tries and reports that more steps could go")
    func bounded() {
        var tries = 0
        let result = Shrinker(maxTries: 10).shrink(steps) { candidate in
            tries += 1
            return [3, 150, 399].allSatisfy(candidate.contains)
        }
        #expect(tries == 10 && result.tries == 10)
        #expect(!result.isShortest)
        #expect([3, 150, 399].allSatisfy(result.kept.contains))
        #expect(result.kept.count < steps.count)
    }

    @Test("A failure that needs no step is reduced to none")
    func nothingNeeded() {
        let result = Shrinker().shrink(steps) { _ in true }
        #expect(result.kept.isEmpty)
        #expect(result.isShortest)
    }
}
