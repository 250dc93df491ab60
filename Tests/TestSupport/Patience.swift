// SPDX-License-Identifier: Apache-2.0
import Glibc

/// How long something that has to happen may take. Each kind of thing that is waited for has a bound of its own, and only a
/// test that fails waits for so long.
///
/// What must *not* happen is never waited for; for that, wait for something that comes after it.
public struct Patience: Sendable, CustomStringConvertible {
    /// Time in which the waiting thread or task was able to look: see ``Wait``.
    let time: Duration
    /// Processor time that the waiting thread may use meanwhile. A loop that turns without an end is found by it.
    let processorTime: Duration
    private let reason: String?

    /// - Parameter processorTime: a thread that waits uses next to none, also where work takes minutes.
    private init(_ time: Duration, _ reason: String? = nil, processorTime: Duration = .seconds(20)) {
        self.time = time
        self.processorTime = processorTime
        self.reason = reason
    }

    /// A condition or an event, in this process or in one that runs.
    public static let event = Patience(.seconds(60))
    /// A program that was started, until it is ready.
    public static let start = Patience(.seconds(120))
    /// A desktop without a screen, or a program with windows: its first start loads fonts, modules and caches.
    public static let desktop = Patience(.seconds(240))

    /// Work of which a test knows that it takes long.
    ///
    /// - Parameters:
    ///   - reason: why it does; a failure says so.
    ///   - processorTime: where the thread that waits does the work as well.
    public static func work(
        _ time: Duration, because reason: String, processorTime: Duration = .seconds(20)
    ) -> Patience {
        Patience(time, reason, processorTime: processorTime)
    }

    public var description: String {
        "\(time)\(reason.map { " (\($0))" } ?? "")"
    }
}

/// One wait: it says when a patience is at its end.
///
/// Time counts while the waiter looks. Between two looks at most ``longestLook`` counts, whatever the clock says: a task
/// that other tests keep from running, as they hold all threads of the pool, loses nothing by it, and neither does one on
/// a machine that slept.
public struct Wait: Sendable {
    /// Where something blocks until an event comes, it must look as often as this.
    public static let longestLook = Duration.seconds(1)
    /// The same for a task, which goes through the pool before each look.
    private static let longestLookOfTask = Duration.milliseconds(200)

    private let patience: Patience
    private let isInTask: Bool
    private var lastLook = ContinuousClock.now
    private var looked = Duration.zero
    private var lookedInAll = Duration.zero
    private var thread = pthread_self()
    private var processorTime = Wait.processorTimeOfThread

    /// A wait of a thread.
    public init(_ patience: Patience) {
        self.patience = patience
        isInTask = false
    }

    /// A wait of a task. The processor time of its thread says nothing: others use it as well.
    init(inTask patience: Patience) {
        self.patience = patience
        isInTask = true
    }

    /// Begins anew, as something of what is waited for has come; ten times as long in all, as what comes may have no end.
    public mutating func goOn() {
        // Otherwise the time until it came would count for what comes next.
        count()
        looked = .zero
        processorTime = Self.processorTimeOfThread
    }

    /// Why the wait is over; nil when it is not. Each call is a look.
    public mutating func end() -> String? {
        count()
        if looked >= patience.time { return "not within \(patience)" }
        if lookedInAll >= patience.time * 10 { return "not within ten times \(patience), though something came" }
        guard !isInTask else { return nil }
        let used = Self.processorTimeOfThread
        if pthread_equal(thread, pthread_self()) == 0 {
            // The waiter went on on another thread.
            (thread, processorTime) = (pthread_self(), used)
        }
        if used - processorTime >= patience.processorTime {
            return "not within \(patience.processorTime) of the waiting thread's processor time: it turns in a circle"
        }
        return nil
    }

    private mutating func count() {
        let now = ContinuousClock.now
        let time = min(now - lastLook, isInTask ? Self.longestLookOfTask : Self.longestLook)
        (looked, lookedInAll, lastLook) = (looked + time, lookedInAll + time, now)
    }

    /// A look.
    ///
    /// - Parameter what: names what is waited for.
    /// - Throws: ``NotInTime`` when the wait is over.
    public mutating func look(for what: @autoclosure () -> String) throws {
        if let end = end() { throw NotInTime("\(end): \(what())") }
    }

    /// How long the next look may be away.
    var pause: Duration { min(Self.longestLook, patience.time - looked) }

    private static var processorTimeOfThread: Duration {
        var time = timespec()
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time)
        return .seconds(time.tv_sec) + .nanoseconds(time.tv_nsec)
    }
}
