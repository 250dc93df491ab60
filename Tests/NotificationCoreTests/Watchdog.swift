import Glibc
import Synchronization

/// Makes a loop in the center, or in the model, that does not end a failure with a message: nothing can interrupt one,
/// so without this it would hang the tests. It ends the process, as the thread can't be ended.
///
/// Its clock is the processor time of the thread, which a machine with much else to do does not use up.
final class Watchdog: Sendable {
    /// Processor time that a call may take. Even a sequence of the model with all its steps takes less than a tenth.
    static let seconds = 30.0

    private static let watched = Mutex<[Int: Watchdog]>([:])
    private static let last = Atomic(0)
    private static let isRunning: Void = {
        var thread = pthread_t()
        pthread_create(&thread, nil, { _ in Watchdog.watchAll() }, nil)
        pthread_detach(thread)
    }()

    private let what: String
    private let thread = pthread_self()
    private let clock: clockid_t
    private let end: Double
    private let place = Atomic(-1)

    private init(_ what: String, seconds: Double) {
        self.what = what
        var clock = clockid_t()
        pthread_getcpuclockid(thread, &clock)
        self.clock = clock
        end = Self.time(of: clock) + seconds
    }

    /// Runs `body`, and ends the process if that takes longer than it may.
    ///
    /// - Parameters:
    ///   - what: names it in the message.
    ///   - body: is given something to tell which step of it has begun.
    static func watch<Result, Failure: Error>(
        _ what: String, seconds: Double = Watchdog.seconds, _ body: (_ begin: (Int) -> Void) throws(Failure) -> Result
    ) throws(Failure) -> Result {
        _ = isRunning
        let dog = Watchdog(what, seconds: seconds)
        let number = last.add(1, ordering: .relaxed).newValue
        watched.withLock { $0[number] = dog }
        defer { watched.withLock { $0[number] = nil } }
        return try body { dog.place.store($0, ordering: .relaxed) }
    }

    private static func time(of clock: clockid_t) -> Double {
        var time = timespec()
        clock_gettime(clock, &time)
        return Double(time.tv_sec) + Double(time.tv_nsec) * 1e-9
    }

    private static func watchAll() -> UnsafeMutableRawPointer? {
        while true {
            usleep(100_000)
            watched.withLock { watched in
                for dog in watched.values where time(of: dog.clock) > dog.end { dog.bark() }
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
