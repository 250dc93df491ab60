// SPDX-License-Identifier: Apache-2.0
import Glibc
import Synchronization

/// A test that runs, and whether it makes progress.
public final class RunningTest: Sendable {
    /// How long a test may take.
    public struct Limits: Sendable {
        /// In which it uses no processor, and none of its tasks goes on. Everything that waits with a bound looks once a second at
        /// least, and so uses the processor.
        public var silence: Duration
        /// Of its thread, without awaiting anything: a loop that has no end. A part has this time anew: ``part(_:_:)``. A machine
        /// with much else to do does not use it up.
        public var processorTime: Duration
        /// In all.
        public var whole: Duration
        /// Until it has ended after it was cancelled.
        public var ending: Duration

        public init(silence: Duration, processorTime: Duration, whole: Duration, ending: Duration) {
            (self.silence, self.processorTime, self.whole, self.ending) = (silence, processorTime, whole, ending)
        }

        #if THREAD_SANITIZER
            static let standard = Limits(
                silence: .seconds(300), processorTime: .seconds(600), whole: .seconds(1800), ending: .seconds(60)
            ).times(factor)
        #else
            static let standard = Limits(
                silence: .seconds(60), processorTime: .seconds(30), whole: .seconds(600), ending: .seconds(10)
            ).times(factor)
        #endif

        /// tools/mutants makes limits shorter, as many mutants loop forever; who looks at a test with a debugger, or searches for
        /// hours, makes them longer.
        private static let factor = getenv("CARILLON_TEST_LIMITS").flatMap { Double(String(cString: $0)) } ?? 1

        private func times(_ factor: Double) -> Limits {
            Limits(
                silence: silence * factor, processorTime: processorTime * factor, whole: whole * factor,
                ending: ending * factor)
        }
    }

    /// The test that a task belongs to.
    @TaskLocal static var current: RunningTest?

    /// Its name and its place.
    public let name: String
    private let limits: Limits
    private let state: Guarded<State>
    private let step = Atomic(-1)
    private let hasEndedState = Atomic(false)

    private struct Job {
        let thread: pthread_t
        let clock: clockid_t
        /// What the clock said when the job, or the last part of the test, began.
        var start: Int
    }

    private struct State {
        var jobs: [Int: Job] = [:]
        var jobsBegun = 0
        var part: String?
        var lastLook = ContinuousClock.now
        var whole = Duration.zero
        var silence = Duration.zero
        /// What was known at the last look: jobs, and the processor time of those that run.
        var traces = [0]
    }

    /// Between two looks no more than this counts, whatever the clock says: a machine may have slept.
    private static let longestLook = Duration.milliseconds(500)

    init(_ name: String, limits: Limits) {
        self.name = name
        self.limits = limits
        state = Guarded(State())
    }

    // MARK: What it does

    func jobBegan() -> Int {
        let thread = pthread_self()
        var clock = clockid_t()
        pthread_getcpuclockid(thread, &clock)
        return state.withLock { state in
            state.jobsBegun += 1
            state.jobs[state.jobsBegun] = Job(thread: thread, clock: clock, start: time(clock))
            return state.jobsBegun
        }
    }

    func jobEnded(_ number: Int) {
        state.withLock { $0.jobs[number] = nil }
    }

    /// Runs a part of the test that runs, on one thread. Its limit of processor time begins anew with it, and again behind it:
    /// a test may have as many parts as it likes.
    ///
    /// - Parameters:
    ///   - what: names it in the message.
    ///   - body: is given something to tell which step of it has begun.
    public static func part<Result, Failure: Error>(
        _ what: String, _ body: (_ begin: (Int) -> Void) throws(Failure) -> Result
    ) throws(Failure) -> Result {
        guard let test = current else { return try body { _ in } }
        test.begin(part: what)
        defer { test.begin(part: nil) }
        return try body { test.step.store($0, ordering: .relaxed) }
    }

    private func begin(part: String?) {
        step.store(-1, ordering: .relaxed)
        state.withLock { state in
            state.part = part
            for (number, job) in state.jobs where pthread_equal(job.thread, pthread_self()) != 0 {
                state.jobs[number]?.start = time(job.clock)
            }
        }
    }

    // MARK: Its end

    /// It has a place, for which it may have waited.
    func begins() {
        state.withLock { $0.lastLook = .now }
    }

    var hasEnded: Bool { hasEndedState.load(ordering: .acquiring) }
    func ended() { hasEndedState.store(true, ordering: .releasing) }

    /// Looks whether it makes progress.
    ///
    /// - Returns: why not; nil as long as something does.
    func look() -> String? {
        state.withLock { state in
            let now = ContinuousClock.now
            let passed = min(now - state.lastLook, Self.longestLook)
            state.lastLook = now
            state.whole += passed
            let traces = [state.jobsBegun, state.jobs.count] + state.jobs.values.map { time($0.clock) }.sorted()
            state.silence = traces == state.traces ? state.silence + passed : .zero
            state.traces = traces
            let used = state.jobs.values.map { time($0.clock) - $0.start }.max() ?? 0
            let why: String
            if used >= nanoseconds(limits.processorTime) {
                why = "hangs: it loops, for \(limits.processorTime) of processor time"
            } else if state.silence >= limits.silence {
                why =
                    "hangs: it \(state.jobs.isEmpty ? "awaits something" : "blocks"), without progress for \(limits.silence)"
            } else if state.whole >= limits.whole {
                why = "hangs: it goes on for \(limits.whole)"
            } else {
                return nil
            }
            return state.part.map { "\(why), in \($0)\(place)" } ?? why
        }
    }

    private var place: String {
        let step = step.load(ordering: .relaxed)
        return step < 0 ? "" : ", step \(step)"
    }

    /// Waits until it has ended, which was cancelled, and blocks the thread.
    ///
    /// - Parameter stay: is called again and again when it takes too long.
    func waitForEnd(_ stay: () -> Void) {
        let start = ContinuousClock.now
        while !hasEnded {
            usleep(20_000)
            if ContinuousClock.now - start > limits.ending { stay() }
        }
    }

    /// Ends the process by a signal to a thread of the test, if it has one, so that the backtrace shows what that does.
    func trap() {
        state.withLock { state in
            let busiest = state.jobs.values.max { time($0.clock) - $0.start < time($1.clock) - $1.start }
            guard let busiest else { return }
            // The signal that a thread takes whatever it blocks. Under the lock, as the thread can't end so.
            pthread_kill(busiest.thread, SIGTRAP)
            // The backtrace takes some seconds.
            sleep(60)
        }
    }
}

private func time(_ clock: clockid_t) -> Int {
    var time = timespec()
    clock_gettime(clock, &time)
    return time.tv_sec * 1_000_000_000 + time.tv_nsec
}

private func nanoseconds(_ duration: Duration) -> Int {
    Int(duration / .nanoseconds(1))
}
