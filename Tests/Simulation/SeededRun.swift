// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop

/// A run that a seed decides, to be made, looked at, and made shorter.
public struct SeededRun: Sendable {
    /// What a run came to.
    public struct Outcome: Sendable {
        public let violation: Violation?
        /// Virtual time, in seconds.
        public let seconds: Double
        public let events: Int
        public let posts: Int
        public let received: Int
        public let announced: UInt64
        /// Processes of the service.
        public let services: Int
    }

    public let seed: UInt64
    public let dials: Dials

    public init(seed: UInt64, dials: Dials = Dials()) {
        self.seed = seed
        self.dials = dials
    }

    /// What has it shown.
    public var command: String { "tools/simulate --seed \(seed)\(dials.options)" }

    /// Whether the plan has a step with this number.
    public func hasStep(_ number: Int) -> Bool { Plan(seed: seed, dials: dials).steps.indices.contains(number) }

    /// - Parameter trace: gets a line for each thing that happens.
    public func make(trace: ((String) -> Void)? = nil) -> Outcome {
        make(Plan(seed: seed, dials: dials), trace: trace)
    }

    private func make(_ plan: Plan, trace: ((String) -> Void)? = nil) -> Outcome {
        PlantedFaults.sow()
        let simulation = Simulation(plan, trace: trace)
        // Most runs need no lines, which are not made then.
        let wantsLines = plan.hasFlips || trace != nil
        let violation = Log.redirected { level, message in
            guard wantsLines else { return }
            let line = "\(level): \(message())"
            trace?("    log: " + line)
            simulation.noteLog(line)
        } while: {
            simulation.run()
        }
        let (world, ledger) = (simulation.world, simulation.ledger)
        return Outcome(
            violation: violation, seconds: Double(world.now) / 1_000_000, events: world.eventCount,
            posts: ledger.posts.count, received: ledger.received, announced: ledger.announced,
            services: ledger.incarnations)
    }

    /// A run with as few steps as could be found that breaks the same rule.
    public struct Shrunk: Sendable {
        public let violation: Violation
        /// Of the seed's plan, by their numbers.
        public let kept: [Int]
        public let steps: [String]
        public let stepsBefore: Int
        public let runs: Int
        /// Whether none of them can be left out alone; otherwise there was no time to find that out.
        public let isShortest: Bool
    }

    /// Leaves out more and more of the steps, as long as the same rule is broken.
    ///
    /// - Parameter mostRuns: that are tried.
    /// - Returns: nil when the run breaks no rule.
    public func shrink(maxRuns: Int = 400) -> Shrunk? {
        let plan = Plan(seed: seed, dials: dials)
        guard var violation = make(plan).violation else { return nil }
        let result = Shrinker(maxTries: maxRuns).shrink(Array(plan.steps.indices)) { candidate in
            guard let found = make(plan.keeping(candidate)).violation, found.rule == violation.rule else {
                return false
            }
            violation = found
            return true
        }
        return Shrunk(
            violation: violation, kept: result.kept, steps: result.kept.map { plan.steps[$0].description },
            stepsBefore: plan.steps.count, runs: result.tries + 1, isShortest: result.isShortest)
    }

    /// A run of some of the steps only.
    public func make(keeping kept: [Int], trace: ((String) -> Void)? = nil) -> Outcome {
        make(Plan(seed: seed, dials: dials).keeping(kept), trace: trace)
    }
}

extension Plan {
    /// - Parameter kept: numbers of steps; what is none is passed over.
    fileprivate func keeping(_ kept: [Int]) -> Plan {
        var plan = self
        plan.steps = kept.filter(steps.indices.contains).map { steps[$0] }
        return plan
    }
}

extension Plan.Step: CustomStringConvertible {
    var description: String {
        let milliseconds = String(time / 1000)
        return "\(milliseconds) ms: \(actor.map { "#\($0) " } ?? "")\(action)"
    }
}
