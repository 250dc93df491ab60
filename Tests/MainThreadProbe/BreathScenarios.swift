// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import CarillonTestSupport
import CarillonThreadDelivery
import Dispatch
import Foundation

/// T3: while very much waits for the main thread, all others of its loop have their turns.
///
/// Gaps are measured in the time that this process has had of a processor, so that a busy machine changes nothing.
extension MainThreadProbe {
    private static let count = 60_000
    /// The time that an observer takes, in nanoseconds.
    private static let effort: Int64 = 20_000

    private static func processTime() -> Int64 {
        var time = timespec()
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time)
        return Int64(time.tv_sec) * 1_000_000_000 + Int64(time.tv_nsec)
    }

    /// Others of the loop, and the longest time that each of them has waited for a turn. Used on the main queue's thread only.
    private final class Breath: @unchecked Sendable {
        struct Breather {
            var last = MainThreadProbe.processTime()
            var longest: Int64 = 0
            var turns = 0
            /// How often the wait was longer than it is to be.
            var late = 0
        }

        private(set) var breathers: [String: Breather] = [:]
        private(set) var delivered = 0
        var isOver: Bool { delivered == MainThreadProbe.count }

        func deliver() {
            let end = MainThreadProbe.processTime() + MainThreadProbe.effort
            while MainThreadProbe.processTime() < end {}
            delivered += 1
        }

        func breathe(_ name: String) {
            let now = MainThreadProbe.processTime()
            var breather = breathers[name] ?? Breather(last: now)
            breather.longest = max(breather.longest, now - breather.last)
            // A timer of 10 ms waits for itself, too.
            if now - breather.last > (name == "timer" ? 26_000_000 : 16_000_000) { breather.late += 1 }
            breather.last = now
            breather.turns += 1
            breathers[name] = breather
        }

        func begin(_ names: String...) { for name in names { breathers[name] = Breather() } }

        func blocks() {
            breathe("blocks")
            if !isOver { DispatchQueue.main.async { self.blocks() } }
        }

        @MainActor
        func tasks() async {
            while !isOver {
                breathe("tasks")
                await Task.yield()
            }
        }

        func judge() throws {
            for (name, breather) in breathers.sorted(by: { $0.key < $1.key }) {
                let milliseconds = Double(breather.longest) / 1_000_000
                let longest = String(format: "%.1f", milliseconds)
                printLine("\(name): \(breather.turns) turns, the longest wait \(longest) ms")
                try MainThreadProbe.require(breather.turns > 100, "\(name) had \(breather.turns) turns")
                // A virtual machine counts as ours some of what its host does meanwhile.
                try MainThreadProbe.require(
                    breather.late <= breather.turns / 100, "\(name) waited too long \(breather.late) times")
            }
        }
    }

    private static func fill(_ breath: Breath, contextShare: Int = 0) {
        for number in 0..<count {
            if number < contextShare {
                _ = ContextDelivery.to(.default).append(byteCount: 1) { breath.deliver() }
            } else {
                _ = MainThreadTarget.shared.deliver(byteCount: 1) { breath.deliver() }
            }
        }
        breath.begin("timer", "blocks", "tasks")
        DispatchQueue.main.async { breath.blocks() }
        Task { await breath.tasks() }
    }

    private static func glibSources(_ breath: Breath) -> [EventSource] {
        [
            EventSource.timer(milliseconds: 10, on: .default) {
                breath.breathe("timer")
                return .keep
            },
            EventSource.idle(on: .default, priority: EventSource.Priority(rawValue: 120)) {
                breath.breathe("drawing")
                return .keep
            },
        ]
    }

    /// GLib's loop, with deliveries of two kinds.
    static func breathGLib() throws {
        let breath = Breath()
        fill(breath, contextShare: count / 2)
        breath.begin("drawing")
        let sources = glibSources(breath)
        try MainContext.default.run("all deliveries", within: .start) { breath.isOver }
        withExtendedLifetime(sources) {}
        try breath.judge()
    }

    /// A modal dialog that an observer runs: the loop is nested in it.
    static func breathDialog() throws {
        let breath = Breath()
        var result: (any Error)?
        nonisolated(unsafe) var hasRun = false
        _ = MainThreadTarget.shared.deliver(byteCount: 1) {
            fill(breath, contextShare: count / 2)
            breath.begin("drawing")
            let sources = glibSources(breath)
            MainContext.default.run(mode: .modalPanel) { breath.isOver }
            withExtendedLifetime(sources) {}
            hasRun = true
        }
        do { try MainContext.default.run("the dialog", within: .start) { hasRun } } catch { result = error }
        if let result { throw result }
        try breath.judge()
    }

    /// Foundation's loop; and nested in an observer, as a modal dialog would be.
    static func breathRunLoop() throws {
        let breath = Breath()
        fill(breath)
        runFoundationLoop(breath)
        try breath.judge()
        let nested = Breath()
        nonisolated(unsafe) var hasRun = false
        _ = MainThreadTarget.shared.deliver(byteCount: 1) {
            fill(nested)
            runFoundationLoop(nested)
            hasRun = true
        }
        while !hasRun { _ = RunLoop.main.run(mode: .default, before: Date(timeIntervalSinceNow: 1)) }
        try nested.judge()
    }

    private static func runFoundationLoop(_ breath: Breath) {
        let timer = Timer(timeInterval: 0.01, repeats: true) { _ in breath.breathe("timer") }
        RunLoop.main.add(timer, forMode: .common)
        while !breath.isOver { _ = RunLoop.main.run(mode: .default, before: Date(timeIntervalSinceNow: 1)) }
        timer.invalidate()
    }

    /// Dispatch's own loop.
    static func breathDispatchMain() throws {
        let breath = Breath()
        fill(breath)
        let timer = DispatchSource.makeTimerSource(queue: .main)
        timer.schedule(deadline: .now(), repeating: .milliseconds(10))
        timer.setEventHandler {
            breath.breathe("timer")
            guard breath.isOver else { return }
            do { try breath.judge() } catch {
                printLine("failed: \(error)")
                exit(1)
            }
            succeed()
        }
        timer.activate()
        withExtendedLifetime(timer) { dispatchMain() }
    }
}
