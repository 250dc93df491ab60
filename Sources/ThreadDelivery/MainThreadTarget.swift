// SPDX-License-Identifier: Apache-2.0
import Dispatch
import MainLoop

/// The main thread, whichever loop it runs (M4, M5).
///
/// What waits is in one queue, and both the GLib main context and the main dispatch queue are told to empty it:
/// whichever of them runs comes first. The main dispatch queue is what `RunLoop.main` and `dispatchMain()` run.
package final class MainThreadTarget: DeliveryTarget {
    package static let shared = MainThreadTarget()

    private let queue = DeliveryQueue(
        wake: { MainThreadTarget.shared.wake() }, wakeAfterOthers: { MainThreadTarget.shared.wakeAfterOthers() })
    private let source = SignalledSource(on: .default, for: .ordinary, gate: Gate()) {
        MainThreadTarget.shared.drain()
    }

    /// In the common modes, and never on another thread that happens to run the default context.
    private struct Gate: SourceGate {
        func allows(in modes: ContextModes) -> Bool {
            MainContext.isMainThread && modes.allow(.ofCommon)
        }
    }

    private let modes = ContextModes(of: .default)
    private let loop = Locked(LoopWatch())

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
        // In a mode that is no common one the GLib source waits for its end, and so does what it stands for.
        DispatchQueue.main.async { if self.isAllowed { self.drain() } }
    }

    private func drain() {
        loop.withLock { $0.hasRun = true }
        queue.drain { isAllowed }
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
