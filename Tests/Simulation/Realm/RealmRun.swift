// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop

/// A run of a realm that a seed decides, to be made, looked at, and made shorter.
public struct RealmRun: Sendable {
    public struct Outcome: Sendable {
        public let violation: Violation?
        /// Virtual time, in seconds.
        public let seconds: Double
        public let events: Int
        public let posts: Int
        public let received: Int
        public let announced: Int
    }

    public let seed: UInt64

    public init(seed: UInt64) {
        self.seed = seed
    }

    /// The command that shows it.
    public var command: String { "tools/simulate --realm --seed \(seed)" }

    /// - Parameters:
    ///   - kept: numbers of steps of the seed's plan; nil for all.
    ///   - trace: gets a line for each thing that happens.
    public func make(keeping kept: [Int]? = nil, trace: ((String) -> Void)? = nil) -> Outcome {
        PlantedFaults.sow()
        var plan = RealmPlan(seed: seed)
        if let kept { plan.steps = kept.filter(plan.steps.indices.contains).map { plan.steps[$0] } }
        let simulation = RealmSimulation(plan, trace: trace)
        Log.redirected { level, message in
            if let trace { trace("    log: \(level): \(message())") }
        } while: {
            simulation.run()
        }
        let (world, ledger) = (simulation.world, simulation.ledger)
        return Outcome(
            violation: world.violation, seconds: Double(world.now) / 1_000_000, events: world.eventCount,
            posts: ledger.posts.count, received: ledger.received, announced: ledger.announcedCount)
    }

    /// A run with as few steps as could be found that breaks the same rule.
    public struct Shrunk: Sendable {
        public let violation: Violation
        public let kept: [Int]
        public let steps: [String]
    }

    /// - Returns: nil when the run breaks no rule.
    public func shrink(maxRuns: Int = 400) -> Shrunk? {
        let plan = RealmPlan(seed: seed)
        guard var violation = make().violation else { return nil }
        let result = Shrinker(maxTries: maxRuns).shrink(Array(plan.steps.indices)) { candidate in
            guard let found = make(keeping: candidate).violation, found.rule == violation.rule else { return false }
            violation = found
            return true
        }
        return Shrunk(violation: violation, kept: result.kept, steps: result.kept.map { plan.steps[$0].description })
    }
}
