// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import Dispatch
import Foundation

/// Waiting until the service has accepted all posts: at any time, and at the exit of the process. A **barrier** request
/// follows the posts in the outbox; its answer confirms them.
extension DistributedNotificationCenter {
    /// Waits until the service has accepted all posts so far.
    ///
    /// It is meant for programs that end right after posting. A normal end of the process, through `exit` or by
    /// returning from `main`, does the same for ``default``, for as long as ``exitTimeout`` says. `_exit`, a signal and
    /// a crash do not.
    ///
    /// - Parameter timeout: the maximum time, in seconds.
    /// - Returns: whether the service has accepted all posts. It is false after the timeout, and without a service or a
    ///   bus. It is also false if posts since the last call have failed or may be lost, because the service ended in
    ///   between (``Event/postFailed(_:)``, ``Event/postsMayBeLost(count:)``).
    @discardableResult
    public func flush(timeout: TimeInterval) -> Bool {
        let posted = statistics.posted
        guard !link.isUnused else { return noteFlushed(posted, true) }
        let answer = BarrierAnswer()
        submit(.barrier { answer.set($0) })
        return noteFlushed(posted, answer.wait(seconds: timeout), within: timeout)
    }

    /// Waits until the service has accepted all posts so far.
    ///
    /// - Returns: as for ``flush(timeout:)``. It is false as soon as the task is cancelled, when the outcome is still
    ///   unknown.
    @discardableResult
    public func flush(isolation: isolated (any Actor)? = #isolation) async -> Bool {
        await flushed(within: nil, isolation)
    }

    /// Waits until the service has accepted all posts so far, without blocking a thread.
    ///
    /// - Parameter time: the maximum time.
    /// - Returns: as for ``flush(timeout:)``. It is false as soon as the task is cancelled, when the outcome is still
    ///   unknown.
    @discardableResult
    public func flush(within time: Duration, isolation: isolated (any Actor)? = #isolation) async -> Bool {
        await flushed(within: time, isolation)
    }

    /// Submits a barrier and waits for its answer; nil for no maximum time.
    private func flushed(within time: Duration?, _ isolation: isolated (any Actor)?) async -> Bool {
        let posted = statistics.posted
        // Without any request there is no thread that could answer, and no post that could be lost.
        guard !link.isUnused else { return noteFlushed(posted, true) }
        let isTaken = await PendingAnswer<Bool?>.of(isolation: isolation, orCancelled: nil) { answer in
            submit(.barrier { answer.answer($0) })
            guard let time else { return }
            DispatchQueue.global().asyncAfter(deadline: .now() + time / .seconds(1)) { answer.answer(nil) }
        }
        return noteFlushed(posted, isTaken, within: Task.isCancelled ? 0 : (time ?? .zero) / .seconds(1))
    }

    /// Records the result of a flush.
    ///
    /// - Parameters:
    ///   - posted: the number of posts before the flush.
    ///   - isTaken: whether the service has accepted the posts; nil if unknown.
    ///   - time: the maximum waiting time, in seconds.
    /// - Returns: whether nothing was lost since the last call.
    private func noteFlushed(_ posted: UInt64, _ isTaken: Bool?, within time: TimeInterval = 0) -> Bool {
        let progress = link.progress
        return state.withLock { state in
            guard let isTaken else {
                // The exit does not wait again for posts for which a flush has waited as long in vain.
                if time >= state.exitTimeout { state.stalledAt = progress }
                return false
            }
            if isTaken { state.flushed = max(state.flushed, posted) }
            defer { state.hasLostPosts = false }
            return isTaken && !state.hasLostPosts
        }
    }

    // MARK: Exit of the process

    /// The maximum time for which the exit waits for posts of ``default`` while the service accepts none of them, in
    /// seconds. The default is 2; 0 disables the wait.
    ///
    /// The exit continues to wait as long as the service accepts some. A program that ends under load therefore loses
    /// no post that the service has capacity for (E10).
    ///
    /// Posts that could not be sent are counted in ``unsentPosts``, and failed posts in ``lostPosts``. The exit reports
    /// the numbers once on standard error.
    public var exitTimeout: TimeInterval {
        get { state.withLock { $0.exitTimeout } }
        set { state.withLock { $0.exitTimeout = max(0, newValue) } }
    }

    /// The number of posts that the service has not accepted so far. It includes posts that have not left the process,
    /// and posts whose acceptance is not confirmed yet.
    ///
    /// After ``flush(timeout:)`` returned false, these posts may be lost when the program ends. Failed posts are not
    /// included (``lostPosts``).
    public var unsentPosts: Int {
        let (waiting, unconfirmed) = link.unsentPosts
        return waiting + unconfirmed
    }

    /// The number of posts without a requested outcome that failed, or may be lost, since the program started
    /// (``Statistics/failedPosts``, ``Statistics/uncertainPosts``).
    public var lostPosts: Int {
        let statistics = statistics
        return Int(clamping: statistics.failedPosts &+ statistics.uncertainPosts)
    }

    /// Waits for the posts, and reports losses that no flush has reported. Called by `atexit`, for ``default`` only.
    func flushAtExit() {
        if !link.isUnused, state.withLock({ $0.statistics.posted > $0.flushed }) { waitAtExit() }
        let (hasLostPosts, statistics) = state.withLock { ($0.hasLostPosts, $0.statistics) }
        // A flush has reported earlier losses to the program.
        guard hasLostPosts else { return }
        Log.warning(
            "of the posts of this program \(statistics.failedPosts) have failed, and \(statistics.uncertainPosts) may be lost"
        )
    }

    /// Waits until the service has accepted all posts, at most ``exitTimeout`` after it accepted the last one.
    private func waitAtExit() {
        let timeout = exitTimeout
        guard timeout > 0 else { return reportUnsent("the program does not wait for them") }
        guard state.withLock({ $0.stalledAt }) != link.progress else {
            return reportUnsent("the service has accepted none of them since the program waited for it")
        }
        let answer = BarrierAnswer()
        submit(.barrier { answer.set($0) })
        var isTaken: Bool?
        var progress: UInt64?
        while isTaken == nil, progress != link.progress {
            progress = link.progress
            isTaken = answer.wait(seconds: timeout)
        }
        // A barrier that failed needs no report: without a service, each post was reported as failed or possibly lost.
        if isTaken == nil { reportUnsent("the service has accepted none of them for \(timeout) s") }
    }

    /// Logs the number of posts that are lost with the process.
    private func reportUnsent(_ reason: String) {
        let (waiting, unconfirmed) = link.unsentPosts
        guard waiting + unconfirmed > 0 else { return }
        Log.warning(
            waiting > 0
                ? "\(waiting) posts are lost with the end of the program, and \(unconfirmed) may be: \(reason)"
                : "\(unconfirmed) posts may be lost with the end of the program: \(reason)")
    }
}

/// The answer to a barrier, which the bus thread sets and a blocked thread awaits.
private final class BarrierAnswer: Sendable {
    private let value = Locked<Bool?>(nil)
    private let semaphore = DispatchSemaphore(value: 0)

    func set(_ value: Bool) {
        self.value.withLock { $0 = value }
        semaphore.signal()
    }

    /// Waits for the answer, and returns nil after the timeout.
    func wait(seconds: TimeInterval) -> Bool? {
        _ = semaphore.wait(timeout: .now() + seconds)
        return value.withLock { $0 }
    }
}
