// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import Dispatch
import Foundation
import Synchronization

/// The main thread, whichever loop it runs (M4, M5).
///
/// All pending deliveries are in one queue. There are three ways to empty it, of which there is at most one pending each (T3), and whichever
/// comes first takes what there is:
///
/// - **GLib's loop** dispatches a source of the default context, which has a share of each of its turns.
/// - **`RunLoop.main`** performs a block of its own, and not one of the main queue: a loop that an observer runs in it could
///   not serve that queue then.
/// - **`dispatchMain()`** runs a block of the main queue.
package final class MainThreadTarget: DeliveryTarget {
    package static let shared = MainThreadTarget()

    private let queue = DeliveryQueue(
        wake: { MainThreadTarget.shared.wake() }, wakeAfterOthers: { MainThreadTarget.shared.wakeAfterOthers() })
    private let source = SignalledSource(on: .default, for: .ordinary, gate: Gate()) {
        MainThreadTarget.shared.drainInTurn()
    }

    /// In the common modes, and never on another thread that happens to run the default context.
    private struct Gate: SourceGate {
        func allows(in modes: ContextModes) -> Bool {
            MainContext.isMainThread && modes.allow(.ofCommon)
        }
    }

    private let modes = ContextModes(of: .default)
    private let loop = Locked(LoopWatch())
    /// Whether a block is in the main queue, or in the run loop, that has not begun.
    private let isInMainQueue = Atomic(false)
    private let isInRunLoop = Atomic(false)

    private init() {
        MainQueueSource.install()
    }

    package func deliver(byteCount: Int, _ work: @escaping @Sendable () -> Void) -> Int {
        if loop.withLock({ $0.shallWarn() }) {
            Log.warning(
                "observers wait for the main thread, which has run no loop so far; a program without one sets "
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
            // Before looking at what waits: who appends from now on wakes it again.
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
            // Else the source, which was signalled as well, comes in its turn.
            drain()
        }
    }

    /// Until the share of one source of GLib's loop is used up.
    private func drainInTurn() {
        loop.withLock { $0.hasRun = true }
        queue.drain(in: nil, while: { isAllowed }, share: { source.mayGoOn })
    }

    /// The same for a loop that knows no turns: then everybody else who waits for it comes first.
    private func drain() {
        loop.withLock { $0.hasRun = true }
        // In a mode that is no common one the GLib source waits for its end, and so does what it stands for.
        var meter = ShareMeter()
        if isAllowed { queue.drain(in: nil, while: { isAllowed }, share: { meter.hasTime() }) }
    }

    /// Whether the mode of the default context allows it. What the main queue runs counts as the main thread, also
    /// after `dispatchMain()`, when there is none.
    private var isAllowed: Bool {
        modes.allow(.ofCommon)
    }
}

/// Notices that the main thread never runs a loop, which is the commonest reason for hearing nothing.
private struct LoopWatch {
    var hasRun = false
    private var firstDelivery: ContinuousClock.Instant?
    private var hasWarned = false

    /// Asked with every delivery. A program that is still starting up has some time.
    mutating func shallWarn() -> Bool {
        guard !hasRun, !hasWarned else { return false }
        let first = firstDelivery ?? .now
        firstDelivery = first
        hasWarned = ContinuousClock.now - first > .seconds(5)
        return hasWarned
    }
}
