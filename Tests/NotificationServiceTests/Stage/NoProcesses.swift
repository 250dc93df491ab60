// SPDX-License-Identifier: Apache-2.0
import CarillonActivity

/// A machine of whose processes nothing is known, and none of which is in a sandbox.
struct NoProcesses: ProcessTable {
    let now: UInt64 = 0
    func name(of _: UInt32) -> String { "" }
    func confinement(of _: UInt32) -> Lookup<Confinement> { .known(.none) }
    func facts(of _: UInt32) -> Lookup<ProcessFacts?> { .known(nil) }
    func environment(of _: UInt32) -> Lookup<SessionEnvironment?> { .known(nil) }
}
