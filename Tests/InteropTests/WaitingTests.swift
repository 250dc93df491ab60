// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import CarillonTestLimits
import CarillonTestSupport
import Foundation
import Testing

/// What the helpers of all tests do when something never comes: they end, name it, and show what programs wrote.
@Suite("Waits that time out", .limited)
struct WaitingTests {
    private let short = Patience.work(.milliseconds(100), because: "it is in vain")

    /// A program that says something and goes on.
    private func program() throws -> RunningCommand {
        let program = try RunningCommand("sh", ["-c", "echo said; echo complained >&2; exec sleep 1000"])
        _ = try program.nextLine { $0 == "said" }
        try program.waitForError(containing: "complained")
        return program
    }

    private func expectReport(_ what: String, _ error: NotInTime?, sourceLocation: SourceLocation = #_sourceLocation) {
        let text = error?.description ?? "no error"
        for part in [what, "it is in vain", "said", "complained", "still running"] {
            #expect(text.contains(part), "\(text)", sourceLocation: sourceLocation)
        }
    }

    @Test("A timeout error names the awaited condition, and shows the latest output of the test's programs")
    func named() throws {
        let program = try program()
        expectReport(
            "the moon", #expect(throws: NotInTime.self) { try eventually("the moon", within: short) { false } })
        expectReport("a line", #expect(throws: NotInTime.self) { try program.nextLine(within: short) { _ in false } })
        expectReport("sleep", #expect(throws: NotInTime.self) { try program.waitForExit(within: short) })
        expectReport(
            "a word", #expect(throws: NotInTime.self) { try program.waitForError(containing: "a word", within: short) })
        expectReport("a ring", #expect(throws: NotInTime.self) { try Doorbell().wait("a ring", within: short) })
        expectReport(
            "a loop", #expect(throws: NotInTime.self) { try MainContext().run("a loop", within: short) { false } })
        let group = DispatchGroup()
        group.enter()
        expectReport("a group", #expect(throws: NotInTime.self) { try group.wait(for: "a group", within: short) })
        group.leave()
        let context = MainContext()
        expectReport(
            "a quit",
            #expect(throws: NotInTime.self) {
                try EventLoop(context: context).run(on: context, waitingFor: "a quit", within: short)
            })
    }

    @Test("A timeout error in a task names the awaited condition, task or thread, with the output of programs")
    func inTasks() async throws {
        let program = try program()
        let gate = Gate()
        var error = await #expect(throws: NotInTime.self) {
            try await eventuallyInTask("the sun", within: short) { false }
        }
        expectReport("the sun", error)
        error = await #expect(throws: NotInTime.self) {
            try await awaiting("a gate", within: short) { await gate.pass() }
        }
        expectReport("a gate", error)
        let bell = Doorbell()
        error = await #expect(throws: NotInTime.self) { try await onOwnThread(within: short) { try bell.wait() } }
        expectReport("the end of a thread", error)
        bell.ring()
        withExtendedLifetime(program) {}
    }

    @Test("A timeout error shows no programs of other tests")
    func others() throws {
        let program = try program()
        let others = Locked<RunningCommand?>(nil)
        let report = Locked("")
        let done = Doorbell()
        Thread {
            // A thread that works for no test, and so is told of all.
            let other = try? RunningCommand("sh", ["-c", "exec sleep 2000"])
            others.withLock { $0 = other }
            report.withLock { $0 = NotInTime("x").description }
            done.ring()
        }.start()
        try done.wait()
        let all = report.withLock { $0 }
        #expect(all.contains(program.commandLine) && all.contains("exec sleep 2000"), "\(all)")
        let own = NotInTime("x").description
        #expect(own.contains(program.commandLine) && !own.contains("exec sleep 2000"), "\(own)")
        others.withLock { $0?.kill() }
    }

    @Test("A wait in an endless loop ends when its thread has used its processor time")
    func circle() {
        var wait = Wait(.work(.seconds(600), because: "it has time", processorTime: .milliseconds(50)))
        var end: String?
        while end == nil { end = wait.end() }
        #expect(end?.contains("circle") == true, "\(end ?? "")")
    }

    @Test("A gap between two checks of a wait counts for at most one second")
    func starved() {
        var wait = Wait(.work(.milliseconds(1500), because: "it is longer than a look"))
        letPass(.milliseconds(2000), because: "the thread can't look")
        #expect(wait.end() == nil)
        letPass(.milliseconds(600), because: "it counts")
        #expect(wait.end() != nil)
    }

    @Test("Progress extends a wait, but at most to ten times its limit")
    func progress() throws {
        var count = 0
        let error = #expect(throws: NotInTime.self) {
            try eventually("the end", within: short, progress: { count }) {
                count += 1
                return false
            }
        }
        #expect(
            count > 20 && error?.description.contains("ten times") == true, "\(count): \(String(describing: error))")
    }
}
