// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import Dispatch
import Foundation
import Synchronization

/// The main thread as delivery target, for each kind of loop that it may run (M4, M5). It is the default target of
/// observers.
///
/// The library can't know which loop the program runs. Therefore all deliveries wait in one queue, and each wake-up
/// goes to the GLib source and to the main dispatch queue. The first loop that reacts drains the queue. For each kind
/// of loop, at most one wake-up is pending (T3):
///
/// - **GLib's loop** dispatches a source of the default context, which has a limited time in each cycle of the loop.
/// - **`RunLoop.main`** runs the block of the main queue, which only schedules a block on the run loop; that block
///   drains. If the first block drained, a nested loop inside an observer could not run the main queue.
/// - **`dispatchMain()`** runs the block of the main queue, which drains.
package final class MainThreadTarget: DeliveryTarget {
    package static let shared = MainThreadTarget()

    private let queue = DeliveryQueue(
        wake: { MainThreadTarget.shared.wake() }, wakeAfterOthers: { MainThreadTarget.shared.wakeAfterOthers() })
    private let source = SignalledSource(on: .default, for: .ordinary, gate: Gate()) {
        MainThreadTarget.shared.drainForGLib()
    }

    /// A gate that is open in the common modes, if the main thread runs the default context.
    private struct Gate: SourceGate {
        func allows(in modes: ContextModes) -> Bool {
            MainContext.isMainThread && modes.allow(.ofCommon)
        }
    }

    private let modes = ContextModes(of: .default)
    /// The check whether the main thread runs a loop at all.
    private let loop = Locked(MainLoopCheck())
    /// Whether a block of this target waits in the main dispatch queue, or in the run loop.
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
            // The flag is reset before the drain, so that an append during the drain schedules another block.
            self.isInMainQueue.store(false, ordering: .sequentiallyConsistent)
            self.runMainQueueBlock()
        }
    }

    /// Continues in the block of the main queue: chooses the drain for the loop that runs this block.
    private func runMainQueueBlock() {
        if RunLoop.main.currentMode != nil {
            guard !isInRunLoop.exchange(true, ordering: .sequentiallyConsistent) else { return }
            RunLoop.main.perform(inModes: [.common]) {
                self.isInRunLoop.store(false, ordering: .sequentiallyConsistent)
                self.drain()
            }
        } else if !MainContext.default.isDispatching {
            // No GLib loop is running this block. If one is, the source, which was signaled as well, drains.
            drain()
        }
    }

    /// Drains for GLib's loop, until the source's time in this cycle is used up.
    private func drainForGLib() {
        loop.withLock { $0.hasRun = true }
        queue.drain(in: nil, while: { isAllowed }, share: { source.hasTimeLeft })
    }

    /// Drains for the other loops, for at most 2 ms. The queue then schedules another block, so that other work of the
    /// loop runs first.
    private func drain() {
        loop.withLock { $0.hasRun = true }
        // In another mode of the default context, the work waits for the GLib source, which runs after that mode ends.
        var meter = ShareMeter()
        if isAllowed { queue.drain(in: nil, while: { isAllowed }, share: { meter.hasTime() }) }
    }

    /// Whether the mode of the default context allows deliveries. The thread is not checked here: after
    /// `dispatchMain()`, the main queue runs on other threads.
    private var isAllowed: Bool {
        modes.allow(.ofCommon)
    }
}

/// A check for a main thread that never runs a loop, the most common reason why observers receive nothing.
private struct MainLoopCheck {
    /// Whether a loop of the main thread has drained the queue.
    var hasRun = false
    private var firstDelivery: ContinuousClock.Instant?
    private var hasWarned = false

    /// Whether to warn now; called with every delivery. The warning comes once, if no loop ran within five seconds
    /// after the first delivery.
    mutating func shallWarn() -> Bool {
        guard !hasRun, !hasWarned else { return false }
        let first = firstDelivery ?? .now
        firstDelivery = first
        hasWarned = ContinuousClock.now - first > .seconds(5)
        return hasWarned
    }
}
