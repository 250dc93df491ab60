// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonTestLimits
import Glibc
import Testing

/// The center against a model of its rules, over long random sequences of events.
///
/// A sequence is made from its seed, so a failure can be repeated. The environment says what ``randomSeeds()`` runs:
/// `CARILLON_SEED` is the first seed, by default one that no run had before; `CARILLON_SEEDS` is how many follow each
/// other, 100 by default. Every fourth of them has restarts of the service in it. So
///
///     CARILLON_SEEDS=10000 swift test --filter ModelTests.randomSeeds
///
/// runs ten thousand new ones, and `CARILLON_SEED=` a seed that was printed, with `CARILLON_SEEDS=1`, that one again.
///
/// With `CARILLON_QUICK` each test runs a few of its sequences, and the tests of the test itself are left out.
@Suite("Comparison of the center with a model of its rules", .limited)
struct ModelTests {
    /// Steps in a sequence.
    static let length = 200
    /// Sequences of one call of a test.
    static let sequences: UInt64 = isQuick ? 3 : 100

    @Test(
        "D2-D8, S1-S5, A4, E1: the center behaves like a simple model of the rules, for fixed seeds", arguments: 0..<20)
    func fixedSeeds(_ group: UInt64) {
        check(seeds: group * 100..<group * 100 + Self.sequences) { _ in false }
    }

    @Test("E3: the center behaves like the model in sequences with restarts of the service", arguments: 0..<2)
    func restarts(_ group: UInt64) {
        check(seeds: group * 100..<group * 100 + Self.sequences) { _ in true }
    }

    @Test("D2-D8, S1-S5, A4, E1, E3: the center behaves like the model for new random seeds")
    func randomSeeds() {
        let first = number("CARILLON_SEED") ?? UInt64.random(in: 0..<UInt64.max / 2)
        let count = number("CARILLON_SEEDS") ?? Self.sequences
        print("Model: \(count) random seeds from \(first)")
        check(seeds: first..<first + count) { $0 % 4 == 0 }
    }

    private func number(_ variable: String) -> UInt64? {
        getenv(variable).flatMap { UInt64(String(cString: $0)) }
    }

    /// Runs the sequences of the seeds until one fails, and reports that as short as it can be.
    private func check(
        seeds: Range<UInt64>, sourceLocation: SourceLocation = #_sourceLocation, restarts: (UInt64) -> Bool
    ) {
        for seed in seeds {
            let steps = Step.sequence(seed: seed, count: Self.length, restarts: restarts(seed))
            let name = "seed \(seed), restarts \(restarts(seed))"
            guard var difference = Difference.first(in: steps, name: name) else { continue }
            let fewest = shrink(steps) { shorter in
                guard let found = Difference.first(in: shorter, name: "what is left of \(name)") else { return false }
                difference = found
                return true
            }
            let text = fewest.enumerated().map { "\($0.offset == difference.step ? "→" : " ") \($0.element)" }
            Issue.record(
                """
                \(name), \(fewest.count) steps:
                \(text.joined(separator: "\n"))
                \(difference)
                """, sourceLocation: sourceLocation)
            return
        }
    }

    // MARK: The test itself

    @Test(
        "The random sequences produce every kind of outcome often enough", .disabled(if: isQuick, "it tests the test"))
    func coverage() {
        var counts: [String: Int] = [:]
        for seed in 0..<150 {
            let subject = Subject(remembersChanges: false)
            var model = ModelCenter(remembersChanges: false)
            for step in Step.sequence(seed: UInt64(seed), count: Self.length, restarts: false) {
                let (answer, outcomes) = subject.run(step, beside: model)
                _ = model.run(step)
                if case .refused(let error) = answer { counts["\(error)".filter { !$0.isNumber }, default: 0] += 1 }
                for seen in outcomes.seen {
                    let serials = seen.compactMap {
                        if case .delivered(let post, _, _) = $0 { post.serial } else { nil }
                    }
                    if serials != serials.sorted() { counts["the urgent first", default: 0] += 1 }
                }
                for outcome in (outcomes.seen + outcomes.noted + outcomes.timed).joined() {
                    switch outcome {
                    case .dropped(_, _, let reason, _): counts["dropped, \(reason)", default: 0] += 1
                    case .suspensionChanged(let isSuspended, let cause):
                        counts["suspended \(isSuspended), \(cause)", default: 0] += 1
                    case .delivered(_, let observers, _):
                        counts["delivered to \(min(observers.count, 3))", default: 0] += 1
                    case .together(let count): counts["together, \(min(count, 2))", default: 0] += 1
                    default: counts["\(outcome)", default: 0] += 1
                    }
                }
            }
            if model.currentView.coalesced > 0 { counts["coalesced", default: 0] += 1 }
        }
        for what in [
            "dropped, queueFull", "dropped, totalQueueFull", "suspended true, explicit", "suspended false, explicit",
            "suspended false, none", "suspended true, activity", "suspended false, activity", "delivered to 1",
            "delivered to 2", "delivered to 3", "backlogProbed", "probed",
            "overflowed(CarillonCore.DropReason.queueFull)",
            "overflowed(CarillonCore.DropReason.totalQueueFull)", "forgotten", "watched", "coalesced",
            "over the limit queued-posts-per-client = ", "the urgent first", "together, 1", "together, 2",
        ] {
            #expect(counts[what, default: 0] >= 20, "\(what), in \(counts)")
        }
        for isShare in [false, true] {
            let refusals = counts.filter {
                $0.key.hasPrefix("over the limit queued-post-bytes = ")
                    && $0.key.contains("of all processes") == isShare
            }
            #expect(refusals.values.reduce(0, +) >= 5, "share: \(isShare), in \(counts)")
        }
    }

    @Test("A failing sequence shrinks to the steps that matter", .disabled(if: isQuick, "it tests the test"))
    func shrinking() {
        // Fails when a client is suspended before it observes.
        func fails(_ steps: [Step]) -> Bool {
            guard
                let suspended = steps.firstIndex(where: { if case .setSuspended(2, true) = $0 { true } else { false } })
            else { return false }
            return steps[suspended...].contains { if case .observe(client: 2, _, _, _, _) = $0 { true } else { false } }
        }
        let steps = (0..<20).map { Step.sequence(seed: $0, count: 300, restarts: false) }.first(where: fails)!
        let fewest = shrink(steps, fails: fails)
        #expect(fewest.count == 2, "\(fewest)")
    }
}
