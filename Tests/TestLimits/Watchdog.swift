// SPDX-License-Identifier: Apache-2.0
import Glibc
import Synchronization

/// Makes a loop that does not end a failure with a message: nothing can interrupt one that waits for nothing, so
/// without this it would hang the tests. It ends the process, as the thread can't be ended.
///
/// Its clock is the processor time of the thread, which a machine with much else to do does not use up. So it is for
/// what runs on one thread from beginning to end.
public final class Watchdog: Sendable {
    /// Processor time that a test, or a part of one that is watched by itself, may take, in seconds. No test of the
    /// suites that are watched takes a tenth of it. `CARILLON_WATCHDOG` is another number of seconds.
    public static let seconds = getenv("CARILLON_WATCHDOG").flatMap { Double(String(cString: $0)) } ?? 30

    /// That of the test that runs.
    @TaskLocal private static var ofTest: Watchdog?

    private static let watched = Mutex<[Int: Watchdog]>([:])
    private static let last = Atomic(0)
    private static let isRunning: Void = {
        var thread = pthread_t()
        pthread_create(&thread, nil, { _ in Watchdog.watchAll() }, nil)
        pthread_detach(thread)
    }()

    private let what: String
    private let seconds: Double
    private let thread = pthread_self()
    private let clock: clockid_t
    /// When the time is over, in nanoseconds of the clock.
    private let end = Atomic(0)
    private let place = Atomic(-1)

    private init(_ what: String, seconds: Double) {
        self.what = what
        self.seconds = seconds
        var clock = clockid_t()
        pthread_getcpuclockid(thread, &clock)
        self.clock = clock
        restart()
    }

    /// Runs a part of a test, and ends the process if that takes longer than it may. The time of the test begins anew
    /// behind it: a test may have as many parts as it likes.
    ///
    /// - Parameters:
    ///   - what: names it in the message.
    ///   - seconds: of processor time.
    ///   - body: is given something to tell which step of it has begun.
    public static func watch<Result, Failure: Error>(
        _ what: String, seconds: Double = Watchdog.seconds, _ body: (_ begin: (Int) -> Void) throws(Failure) -> Result
    ) throws(Failure) -> Result {
        let (dog, number) = begin(what, seconds)
        defer {
            watched.withLock { $0[number] = nil }
            ofTest?.restart()
        }
        return try body { dog.place.store($0, ordering: .relaxed) }
    }

    /// Runs a test, and ends the process if that takes longer than it may.
    ///
    /// - Parameter body: stays on the thread on which this is called.
    public static func watchTest(
        _ what: String, seconds: Double = Watchdog.seconds, _ body: () async throws -> Void
    ) async rethrows {
        let (dog, number) = begin(what, seconds)
        defer { watched.withLock { $0[number] = nil } }
        try await $ofTest.withValue(dog) { try await body() }
    }

    /// Whether the test that runs is watched, on the thread that it runs on.
    public static var watchesThisThread: Bool {
        ofTest.map { pthread_equal($0.thread, pthread_self()) != 0 } ?? false
    }

    private static func begin(_ what: String, _ seconds: Double) -> (dog: Watchdog, number: Int) {
        _ = isRunning
        let dog = Watchdog(what, seconds: seconds)
        let number = last.add(1, ordering: .relaxed).newValue
        watched.withLock { $0[number] = dog }
        return (dog, number)
    }

    private func restart() {
        end.store(time + Int(seconds * 1e9), ordering: .relaxed)
    }

    private var time: Int {
        var time = timespec()
        clock_gettime(clock, &time)
        return time.tv_sec * 1_000_000_000 + time.tv_nsec
    }

    private static func watchAll() -> UnsafeMutableRawPointer? {
        while true {
            usleep(100_000)
            watched.withLock { watched in
                for dog in watched.values where dog.time > dog.end.load(ordering: .relaxed) { dog.bark() }
            }
        }
    }

    private func bark() {
        let place = place.load(ordering: .relaxed)
        let message = "Watchdog: \(what)\(place < 0 ? "" : ", step \(place),") does not end: a loop without an end.\n"
        _ = write(STDERR_FILENO, message, message.utf8.count)
        // There, so that the backtrace shows the loop. A thread of libdispatch takes no other signal.
        pthread_kill(thread, SIGTRAP)
        sleep(60)
        abort()
    }
}
