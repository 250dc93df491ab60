// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonMainLoop
import CarillonTestLimits
import Testing

@testable import CarillonActivity

/// A source that tells no more, in virtual time.
@Suite("A1: a source that goes silent", .limited)
struct LivenessTests {
    /// Time that goes on when a test says so. Sendable: the context is run by the test's thread only.
    final class Clock: LoopClock, @unchecked Sendable {
        private(set) var microseconds: Int64 = 0
        private(set) var expected: [Int64] = []

        func expect(at microseconds: Int64) { expected.append(microseconds) }

        func advance(to time: Int64) { microseconds = max(microseconds, time) }
    }

    final class Stage {
        let clock = Clock()
        let context: MainContext
        let processes = SimulatedProcesses()
        private(set) var sources: [SimulatedSource] = []
        private(set) var follower: ActivityFollower!

        init(isAlive: Bool = true) {
            context = MainContext(clock: clock)
            let lookups = ProcessLookups(on: context)
            let tracker = ActivityTracker(processes: processes, lookups: lookups) { _, _ in }
            follower = ActivityFollower(
                choice: .automatic, rules: InactivityRules(), session: SessionEnvironment([.display: ":0"]),
                context: context, processes: processes, lookups: lookups, tracker: tracker
            ) { [unowned self] kind, session in
                let source = SimulatedSource(kind, session)
                source.isAlive = isAlive
                sources.append(source)
                return source
            }
            follower.start()
            processes.start(10)
            follower.clientAppeared(.labelled("a"))
            follower.clientIdentified(.labelled("a"), processID: 10)
        }

        /// Has one client suspended.
        func suspend() {
            sources.last!.tell(.focused(ActivityWindow(id: "w", processID: 10)))
            sources.last!.tell(.focused(nil))
        }

        /// Lets this time pass; what is due happens in between.
        func pass(milliseconds: Int64) {
            for _ in 0..<(milliseconds / 10) {
                clock.advance(to: clock.microseconds + 10_000)
                exhaust("the loop") { context.iterate(mayBlock: false) }
            }
        }
    }

    @Test("An idle service neither queries the source nor runs a timer")
    func atRest() {
        let stage = Stage()
        stage.suspend()
        let timers = stage.clock.expected.count
        stage.pass(milliseconds: 60_000)
        #expect(stage.sources[0].questions == 0)
        #expect(stage.clock.expected.count == timers)
        // A use asks once, and then there is nothing again.
        stage.follower.noteUse()
        #expect(stage.sources[0].questions == 1)
        let after = stage.clock.expected.count
        stage.pass(milliseconds: 60_000)
        #expect(stage.sources[0].questions == 1)
        #expect(stage.clock.expected.count == after)
        #expect(stage.follower.state == .following)
    }

    @Test("A busy service queries the source at most every two seconds")
    func busy() {
        let stage = Stage()
        stage.suspend()
        for _ in 0..<1000 {
            stage.follower.noteUse()
            stage.pass(milliseconds: 10)
        }
        #expect((4...6).contains(stage.sources[0].questions), "in ten seconds: \(stage.sources[0].questions)")
        #expect(stage.sources.count == 1 && stage.follower.state == .following)
    }

    @Test("A source that has suspended no client is not queried")
    func nobody() {
        let stage = Stage()
        stage.sources[0].tell(.focused(ActivityWindow(id: "w", processID: 10)))
        stage.pass(milliseconds: 5000)
        stage.follower.noteUse()
        stage.pass(milliseconds: 20_000)
        #expect(stage.sources[0].questions == 0 && stage.follower.state == .following)
    }

    @Test(
        "A silent source is detected within 15 s of the next use, ends all inactivity, and is restarted",
        arguments: [0, 500, 1990, 2010, 9000])
    func silent(after: Int64) {
        let stage = Stage()
        stage.suspend()
        stage.follower.noteUse()
        stage.pass(milliseconds: after)
        stage.follower.noteUse()
        stage.sources[0].isAlive = false
        stage.pass(milliseconds: 10)
        stage.follower.noteUse()
        stage.pass(milliseconds: Int64(LivenessCheck.interval) + Int64(LivenessCheck.limit) + 100)
        #expect(stage.follower.state == .lost)
        #expect(!stage.follower.tracker.isAnyoneInactive)
        #expect(stage.follower.reason.contains("stopped answering"))
        // Started again after a second, and followed as soon as it speaks.
        stage.pass(milliseconds: 2000)
        #expect(stage.sources.count == 2)
        #expect(stage.follower.state == .lost, "it has said nothing")
        stage.suspend()
        #expect(stage.follower.state == .following && stage.follower.reason.isEmpty)
    }

    @Test("A report of the source counts as an answer to a query")
    func signs() {
        let stage = Stage(isAlive: false)
        stage.suspend()
        stage.pass(milliseconds: 3000)
        stage.follower.noteUse()
        #expect(stage.sources[0].questions == 1)
        stage.pass(milliseconds: 7900)
        stage.sources[0].tell(.focused(nil))
        stage.pass(milliseconds: 20_000)
        #expect(stage.follower.state == .following && stage.sources.count == 1)
    }
}
