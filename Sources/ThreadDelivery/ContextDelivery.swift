import MainLoop
import Synchronization

/// What goes to a main context, in some modes (T1): one queue and one source for all that is for both.
///
/// It does not keep the context alive. When that is gone, what waits is lost, counted and reported (T2).
package final class ContextDelivery: Sendable {
    /// Those of one context.
    private final class OfContext: Sendable {
        let byModes = Locked<[Set<RunLoopMode>: ContextDelivery]>([:])
    }

    /// The one for a context and modes, which lives as long as the context.
    package static func to(_ context: MainContext, modes: Set<RunLoopMode>) -> ContextDelivery {
        let deliveries = context.attachment(OfContext.self) { OfContext() }
        if let found = deliveries.byModes.withLock({ $0[modes] }) { return found }
        let made = ContextDelivery(context, modes)
        let kept = deliveries.byModes.withLock { byModes in
            if let found = byModes[modes] { return found }
            byModes[modes] = made
            return made
        }
        if kept === made { context.atEnd { kept.close() } }
        return kept
    }

    /// Lost in the whole process.
    package static let lost = Atomic<UInt64>(0)

    private let queue: DeliveryQueue
    private let source: SignalledSource
    /// How many were lost since the target last drained.
    private let lostSince: Counter
    private let closed = Atomic(false)

    private final class Counter: Sendable {
        let value = Atomic(0)
    }

    private init(_ context: MainContext, _ modes: Set<RunLoopMode>) {
        // The queue wakes the source and the source drains the queue; so one of them holds the other weakly.
        let target = Weak<SignalledSource>()
        let queue = DeliveryQueue(
            wake: { target.object?.signal() }, wakeAfterOthers: { target.object?.signalAfterOthers() })
        let lostSince = Counter()
        source = SignalledSource(on: context, for: .ordinary, modes: modes) {
            let lost = lostSince.value.exchange(0, ordering: .relaxed)
            if lost > 0 { Log.warning("\(lost) notifications were lost, as their thread did not run its loop") }
            queue.drain(while: { target.object?.isAllowed ?? false })
        }
        target.object = source
        self.queue = queue
        self.lostSince = lostSince
    }

    /// Has `work` run on the thread of the context, after everything before. Returns at once.
    ///
    /// - Returns: false when the context is gone.
    package func append(byteCount: Int, _ work: @escaping @Sendable () -> Void) -> Bool {
        let lost = queue.append(byteCount: byteCount, work)
        guard lost > 0 else { return true }
        if isClosed {
            Self.lost.add(UInt64(lost), ordering: .relaxed)
            return false
        }
        report(lost)
        return true
    }

    /// Whether the context is gone.
    package var isClosed: Bool {
        closed.load(ordering: .acquiring)
    }

    private func report(_ lost: Int) {
        Self.lost.add(UInt64(lost), ordering: .relaxed)
        // Once when it begins, and with the number when the target reads again.
        if lostSince.value.add(lost, ordering: .relaxed).oldValue == 0 {
            Log.warning("notifications are being lost: their thread does not run its loop")
        }
    }

    private func close() {
        closed.store(true, ordering: .releasing)
        let lost = queue.close()
        guard lost > 0 else { return }
        Self.lost.add(UInt64(lost), ordering: .relaxed)
        Log.warning("\(lost) notifications were lost, as the main context that they were for is gone")
    }
}
