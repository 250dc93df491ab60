// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import Dispatch
import Foundation

/// Making sure that posts have left.
extension DistributedNotificationCenter {
    /// Waits until the service has taken everything that was posted so far.
    ///
    /// For programs that end right after posting. A normal end of the process, through `exit` or by returning from
    /// `main`, does the same for ``default``, as ``exitTimeout`` has it; `_exit`, a signal and a crash do not.
    ///
    /// - Parameter timeout: in seconds.
    /// - Returns: false when it did not in time, when there is no service or no bus, and when posts since the last call have
    ///   failed or may be lost, as the service has ended meanwhile (``Event/postFailed(_:)``, ``Event/postsMayBeLost(count:)``).
    @discardableResult
    public func flush(timeout: TimeInterval) -> Bool {
        let posted = statistics.posted
        guard !link.isUnused else { return noteFlushed(posted, true) }
        let answer = Answer()
        submit(.barrier { answer.set($0) })
        return noteFlushed(posted, answer.wait(seconds: timeout), within: timeout)
    }

    /// Waits until the service has taken everything that was posted so far.
    ///
    /// - Returns: as ``flush(timeout:)``; and false as soon as the task is cancelled, before anything is known.
    @discardableResult
    public func flush(isolation: isolated (any Actor)? = #isolation) async -> Bool {
        await flushed(within: nil, isolation)
    }

    /// Waits until the service has taken everything that was posted so far, without a thread that stands still.
    ///
    /// - Parameter time: the maximum.
    /// - Returns: as ``flush(timeout:)``; and false as soon as the task is cancelled, before anything is known.
    @discardableResult
    public func flush(within time: Duration, isolation: isolated (any Actor)? = #isolation) async -> Bool {
        await flushed(within: time, isolation)
    }

    private func flushed(within time: Duration?, _ isolation: isolated (any Actor)?) async -> Bool {
        let posted = statistics.posted
        guard !link.isUnused else { return noteFlushed(posted, true) }
        let isTaken = await PendingAnswer<Bool?>.of(isolation: isolation, orCancelled: nil) { answer in
            submit(.barrier { answer.answer($0) })
            guard let time else { return }
            DispatchQueue.global().asyncAfter(deadline: .now() + time / .seconds(1)) { answer.answer(nil) }
        }
        return noteFlushed(posted, isTaken, within: Task.isCancelled ? 0 : (time ?? .zero) / .seconds(1))
    }

    /// - Parameters:
    ///   - isTaken: nil where nobody knows.
    ///   - time: for which it was waited, in seconds.
    /// - Returns: whether nothing is lost since the last time.
    private func noteFlushed(_ posted: UInt64, _ isTaken: Bool?, within time: TimeInterval = 0) -> Bool {
        let progress = link.progress
        return state.withLock { state in
            guard let isTaken else {
                // The end of the program need not wait for the same again.
                if time >= state.exitTimeout { state.stalledAt = progress }
                return false
            }
            if isTaken { state.flushed = max(state.flushed, posted) }
            defer { state.hasLostPosts = false }
            return isTaken && !state.hasLostPosts
        }
    }

    // MARK: The end of the process

    /// How long the end of the process waits for the posts of ``default`` while the service takes none of them, in seconds; 2
    /// if nothing else is set, and 0 for not at all. As long as it takes some the end waits: a program that ends under load
    /// loses nothing that the service has room for (E10).
    ///
    /// Posts that could not be handed over are counted (``unsentPosts``), and so are those that failed (``lostPosts``); how many
    /// is said once on standard error.
    public var exitTimeout: TimeInterval {
        get { state.withLock { $0.exitTimeout } }
        set { state.withLock { $0.exitTimeout = max(0, newValue) } }
    }

    /// Posts that the service has not taken so far: those that have not left the process, and those of which there is no word
    /// yet. After ``flush(timeout:)`` has returned false they may be lost when the program ends. Posts that have failed are
    /// not among them (``lostPosts``).
    public var unsentPosts: Int {
        let (waiting, unconfirmed) = link.unsentPosts
        return waiting + unconfirmed
    }

    /// Posts without an outcome that were not made, or may be lost, since the program began
    /// (``Statistics/failedPosts``, ``Statistics/uncertainPosts``).
    public var lostPosts: Int {
        let statistics = statistics
        return Int(clamping: statistics.failedPosts &+ statistics.uncertainPosts)
    }

    func flushAtExit() {
        if !link.isUnused, state.withLock({ $0.statistics.posted > $0.flushed }) { waitAtExit() }
        let (hasLostPosts, statistics) = state.withLock { ($0.hasLostPosts, $0.statistics) }
        // A program that was told by a flush need not be told again.
        guard hasLostPosts else { return }
        Log.warning(
            "of the posts of this program \(statistics.failedPosts) have failed, and \(statistics.uncertainPosts) may be lost"
        )
    }

    private func waitAtExit() {
        let timeout = exitTimeout
        guard timeout > 0 else { return tellUnsent("the program does not wait for them") }
        guard state.withLock({ $0.stalledAt }) != link.progress else {
            return tellUnsent("the service has taken none of them since the program has waited for it")
        }
        let answer = Answer()
        submit(.barrier { answer.set($0) })
        var isTaken: Bool?
        var progress: UInt64?
        while isTaken == nil, progress != link.progress {
            progress = link.progress
            isTaken = answer.wait(seconds: timeout)
        }
        // Without a service each has been told as a failed post, or as one that may be lost.
        if isTaken == nil { tellUnsent("the service has taken none of them for \(timeout) s") }
    }

    private func tellUnsent(_ reason: String) {
        let (waiting, unconfirmed) = link.unsentPosts
        guard waiting + unconfirmed > 0 else { return }
        Log.warning(
            waiting > 0
                ? "\(waiting) posts are lost with the end of the program, and \(unconfirmed) may be: \(reason)"
                : "\(unconfirmed) posts may be lost with the end of the program: \(reason)")
    }
}

/// One value from another thread.
private final class Answer: Sendable {
    private let value = Locked<Bool?>(nil)
    private let isThere = DispatchSemaphore(value: 0)

    func set(_ value: Bool) {
        self.value.withLock { $0 = value }
        isThere.signal()
    }

    func wait(seconds: TimeInterval) -> Bool? {
        _ = isThere.wait(timeout: .now() + seconds)
        return value.withLock { $0 }
    }
}
