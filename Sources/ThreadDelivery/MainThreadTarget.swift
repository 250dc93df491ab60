// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import Dispatch
import Foundation
import Synchronization

/// The main thread as a target, whichever loop it runs (M4, M5).
///
/// All pending deliveries are in one queue. Three ways lead to a drain, each with at most one pending wake-up (T3). The
/// first drain takes the waiting work:
///
/// - **GLib's loop** dispatches a source of the default context, which has a share of each of its turns.
/// - **`RunLoop.main`** performs a block of its own instead of a block of the main queue: a loop that an observer runs
///   inside the latter could not serve that queue.
/// - **`dispatchMain()`** runs a block of the main queue.
package final class MainThreadTarget: DeliveryTarget {
    package static let shared = MainThreadTarget()

    private let queue = DeliveryQueue(
        wake: { MainThreadTarget.shared.wake() }, wakeAfterOthers: { MainThreadTarget.shared.wakeAfterOthers() })
    private let source = SignalledSource(on: .default, for: .ordinary, gate: Gate()) {
        MainThreadTarget.shared.drainInTurn()
    }

    /// A gate that opens in the common modes, and never on another thread that runs the default context.
    private struct Gate: SourceGate {
        func allows(in modes: ContextModes) -> Bool {
            MainContext.isMainThread && modes.allow(.ofCommon)
        }
    }

    private let modes = ContextModes(of: .default)
    private let loop = Locked(LoopWatch())
    /// Whether the main queue, or the run loop, has a block that has not begun.
    private let isInMainQueue = Atomic(false)
    private let isInRunLoop = Atomic(false)

    private init() {
        MainQueueSource.install()
    }

    package func deliver(byteCount: Int, _ work: @escaping @Sendable () -> Void) -> Int {
        if loop.withLock({ $0.shallWarn() }) {
            Log.warning(
                "observers wait for the main thread, which has not run a loop so far; a program without one sets "
                    + "defaultDelivery = .ownQueue, or gives its observers a queue")
        }
        return queue.append(byteCount: byteCount, work)
    }

    private func wake() {
        source.signal()
        wakeMainQueue()
    }

    private func wakeAfterOthers() {
        source.signalAfterOthers()
        wakeMainQueue()
    }

    private func wakeMainQueue() {
        guard !isInMainQueue.exchange(true, ordering: .sequentiallyConsistent) else { return }
        DispatchQueue.main.async {
            // This precedes the look at the waiting work, so that a later append wakes the queue again.
            self.isInMainQueue.store(false, ordering: .sequentiallyConsistent)
            self.mainQueueRuns()
        }
    }

    private func mainQueueRuns() {
        if RunLoop.main.currentMode != nil {
            guard !isInRunLoop.exchange(true, ordering: .sequentiallyConsistent) else { return }
            RunLoop.main.perform(inModes: [.common]) {
                self.isInRunLoop.store(false, ordering: .sequentiallyConsistent)
                self.drain()
            }
        } else if !MainContext.default.isDispatching {
            // Otherwise the source, which was signaled as well, drains in its turn.
            drain()
        }
    }

    /// Drains until the share of one source of GLib's loop is used up.
    private func drainInTurn() {
        loop.withLock { $0.hasRun = true }
        queue.drain(in: nil, while: { isAllowed }, share: { source.hasTimeLeft })
    }

    /// Drains for a loop without turns. After the share, all other work that waits for the loop comes first.
    private func drain() {
        loop.withLock { $0.hasRun = true }
        // In a mode outside the common modes, the GLib source waits for the end of that mode, and so does this work.
        var meter = ShareMeter()
        if isAllowed { queue.drain(in: nil, while: { isAllowed }, share: { meter.hasTime() }) }
    }

    /// Whether the mode of the default context allows deliveries. Work of the main queue counts as work on the main
    /// thread, also after `dispatchMain()`, when there is no main thread.
    private var isAllowed: Bool {
        modes.allow(.ofCommon)
    }
}

/// A check for a main thread that never runs a loop, the most common reason why observers receive nothing.
private struct LoopWatch {
    var hasRun = false
    private var firstDelivery: ContinuousClock.Instant?
    private var hasWarned = false

    /// Whether to warn; called with every delivery. A program has five seconds to start its loop.
    mutating func shallWarn() -> Bool {
        guard !hasRun, !hasWarned else { return false }
        let first = firstDelivery ?? .now
        firstDelivery = first
        hasWarned = ContinuousClock.now - first > .seconds(5)
        return hasWarned
    }
}
