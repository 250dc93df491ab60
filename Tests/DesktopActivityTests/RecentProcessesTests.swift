// SPDX-License-Identifier: Apache-2.0
import CarillonTestLimits
import Glibc
import Testing

@testable import CarillonActivity

@Suite("Cache of recently read process facts", .limited)
struct RecentProcessesTests {
    /// A table that counts what is read.
    private final class Counting: ProcessTable {
        let table = SimulatedProcesses()
        var reads = 0

        func name(of processID: UInt32) -> String { count { table.name(of: processID) } }
        func confinement(of processID: UInt32) -> Lookup<Confinement> { count { table.confinement(of: processID) } }
        func description(of processID: UInt32, startedBy moment: UInt64) -> ProcessDescription? {
            count { table.description(of: processID, startedBy: moment) }
        }
        func facts(of processID: UInt32) -> Lookup<ProcessFacts?> { count { table.facts(of: processID) } }
        func identity(of processID: UInt32) -> ProcessIdentity? { table.processes[processID]?.identity }
        func environment(of processID: UInt32) -> Lookup<SessionEnvironment?> { table.environment(of: processID) }
        var now: UInt64 { table.now }

        private func count<Value>(_ read: () -> Value) -> Value {
            reads += 1
            return read()
        }
    }

    private final class Scene {
        let counting = Counting()
        var time = SuspendingClock.now
        private(set) lazy var recent = RecentProcesses(of: counting, time: { [unowned self] in time })

        /// Everything that a new connection asks, and how much of it was read anew.
        func ask(_ processID: UInt32) -> Int {
            let (table, before) = (counting.table, counting.reads)
            #expect(recent.name(of: processID) == table.name(of: processID))
            #expect(recent.confinement(of: processID).value == table.confinement(of: processID).value)
            #expect(
                recent.description(of: processID, startedBy: table.now)
                    == table.description(of: processID, startedBy: table.now))
            #expect(recent.facts(of: processID).value == table.facts(of: processID).value)
            return counting.reads - before
        }
    }

    @Test("The facts of a process are read once for many connections, and again after 100 ms")
    func once() {
        let scene = Scene()
        scene.counting.table.start(7, unit: "app-one.scope")
        #expect(scene.ask(7) == 4)
        for _ in 0..<100 { #expect(scene.ask(7) == 0) }
        scene.time += .milliseconds(99)
        #expect(scene.ask(7) == 0)
        scene.time += .milliseconds(1)
        #expect(scene.ask(7) == 4 && scene.ask(7) == 0)
    }

    @Test("P2: cached facts are not used for another process with the id, nor for a process that has ended")
    func reused() {
        let scene = Scene()
        let table = scene.counting.table
        table.start(7, unit: "app-one.scope")
        let before = table.now
        #expect(scene.ask(7) == 4)
        scene.time += .milliseconds(1)
        table.start(7, unit: "app-two.scope", sandbox: .init(application: "org.example.Two", instance: "1"))
        #expect(scene.recent.description(of: 7, startedBy: before) == nil, "who connected before it started is another")
        #expect(scene.recent.confinement(of: 7).value == .sandbox("org.example.Two"))
        #expect(scene.recent.facts(of: 7).value?.unit == "app-two.scope")
        scene.time += .milliseconds(1)
        table.processes[7] = nil
        #expect(scene.recent.description(of: 7, startedBy: table.now) == nil && scene.recent.facts(of: 7).value == nil)
        #expect(scene.recent.name(of: 7) == "" && scene.recent.confinement(of: 7).value == .unknown)
    }

    @Test("Lookups that may block, and lookups of missing processes, are not cached")
    func late() {
        let scene = Scene()
        scene.counting.table.start(7)
        scene.counting.table.answersLate = [7]
        for _ in 0..<2 {
            guard case .mayBlock = scene.recent.facts(of: 7) else {
                Issue.record("it is known at once")
                return
            }
        }
        #expect(scene.counting.reads == 2)
        #expect(scene.ask(8) == 3 && scene.ask(8) == 3)
    }

    @Test("The cache keeps a bounded number of processes")
    func many() {
        let scene = Scene()
        for id in 1...200 { scene.counting.table.start(UInt32(id)) }
        for id in 1...200 { #expect(scene.ask(UInt32(id)) == 4) }
        #expect(scene.ask(200) == 0 && scene.ask(1) == 4)
    }

    @Test("The cache returns the facts that the kernel's process table has")
    func kernel() {
        let (table, recent) = (ProcFileSystem(), RecentProcesses(of: ProcFileSystem()))
        let own = UInt32(getpid())
        for _ in 0..<2 {
            #expect(recent.name(of: own) == table.name(of: own) && !recent.name(of: own).isEmpty)
            #expect(recent.facts(of: own).value == table.facts(of: own).value)
            #expect(recent.identity(of: own) == table.facts(of: own).value?.identity)
            #expect(recent.confinement(of: own).value == table.confinement(of: own).value)
            #expect(recent.description(of: own, startedBy: .max) == table.description(of: own, startedBy: .max))
            #expect(recent.now >= table.now - 1)
        }
    }
}
