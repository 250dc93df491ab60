// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import Synchronization

/// The delivery queue of a main context (T1): one order for all its work, regardless of modes, and one source.
///
/// A source empties this ``DeliveryQueue``. The queue ends with the context and does not keep it alive.
/// `DeliveryQueue.Limits.standard` bounds it (T2). When the context is gone, the waiting work is lost, counted and
/// reported.
///
/// Threads: any.
package final class ContextDelivery: Sendable {
    package typealias Payload = DeliveryQueue.Payload

    /// Returns the queue of a context, which lives as long as the context.
    package static func to(_ context: MainContext) -> ContextDelivery {
        if context == .default { MainQueueSource.install() }
        return context.attachment(ContextDelivery.self) { ContextDelivery(context, .standard) }
    }

    /// The number of lost notifications in the whole process.
    package static let lost = Atomic<UInt64>(0)

    private let queue: DeliveryQueue
    private let modes: ContextModes
    private let source: SignalledSource
    /// The actions to run when the context ends; nil when it has ended.
    private let followers = Locked<[ObjectIdentifier: @Sendable () -> Void]?>([:])
    private let closed = Atomic(false)
    /// The number of losses since the target last drained.
    private let lostSince = Atomic(0)

    package init(_ context: MainContext, _ limits: DeliveryQueue.Limits) {
        // Closures that wake a queue or run in a loop must not keep the queue alive.
        let reference = Weak<ContextDelivery>()
        let queue = DeliveryQueue(limits: limits, wake: { reference.object?.source.signal() })
        self.queue = queue
        modes = ContextModes(of: context)
        source = SignalledSource(on: context, for: .ordinary, gate: Gate(queue)) { reference.object?.drain() }
        reference.object = self
        context.atEnd { reference.object?.close() }
    }

    /// A gate that opens while work waits that the mode allows.
    private final class Gate: ContentGate {
        private let queue: DeliveryQueue

        init(_ queue: DeliveryQueue) {
            self.queue = queue
        }

        func allows(in modes: ContextModes) -> Bool {
            queue.hasAllowed(in: modes)
        }
    }

    /// Appends `work`, which runs on the context's thread, after all earlier work for one of its modes. Returns at
    /// once.
    ///
    /// - Parameters:
    ///   - byteCount: the memory that it keeps, beside the payload.
    ///   - payload: the memory that it shares with other work for this context.
    /// - Returns: false when the context is gone.
    package func append(
        byteCount: Int, payload: Payload? = nil, in modes: ModeSet = .ofCommon, _ work: @escaping @Sendable () -> Void
    ) -> Bool {
        let lost = queue.append(byteCount: byteCount, payload: payload, in: modes, work)
        if lost > 0 { report(lost) }
        return !isClosed
    }

    /// Appends `work` for a caller that counts and reports losses itself.
    ///
    /// - Returns: the number of lost entries.
    package func deliver(byteCount: Int, in modes: ModeSet, _ work: @escaping @Sendable () -> Void) -> Int {
        queue.append(byteCount: byteCount, payload: nil, in: modes, work)
    }

    /// Runs the waiting work that the mode allows, in its order, until the share of the turn is used up.
    private func drain() {
        let lost = lostSince.exchange(0, ordering: .relaxed)
        if lost > 0 { Log.warning("\(lost) notifications were lost, because their thread did not run its loop") }
        queue.drain(in: modes, while: { true }, share: { source.hasTimeLeft })
    }

    /// The number of waiting entries; for tests.
    package var count: Int { queue.count }

    /// The number of waiting bytes, and of sets of modes with entries; for tests.
    package var extent: (byteCount: Int, laneCount: Int) { queue.extent }

    private func report(_ lost: Int) {
        Self.lost.add(UInt64(lost), ordering: .relaxed)
        // One message when losses begin, and one with their number when the target drains again.
        if !isClosed, lostSince.add(lost, ordering: .relaxed).oldValue == 0 {
            Log.warning("notifications are being lost: their thread does not run its loop")
        }
    }

    // MARK: End of the context

    /// Whether the context is gone.
    package var isClosed: Bool {
        closed.load(ordering: .acquiring)
    }

    /// Runs `action` when the context ends, or at once when it is gone.
    ///
    /// - Parameter owner: the owner of the action; each owner has one.
    package func follow(_ owner: AnyObject, _ action: @escaping @Sendable () -> Void) {
        let owner = ObjectIdentifier(owner)
        let isGone = followers.withLock { followers in
            followers?[owner] = action
            return followers == nil
        }
        if isGone { action() }
    }

    /// Removes the action of an owner that ``follow(_:_:)`` added.
    package func unfollow(_ owner: AnyObject) {
        let owner = ObjectIdentifier(owner)
        let action = followers.withLock { $0?.removeValue(forKey: owner) }
        withExtendedLifetime(action) {}
    }

    private func close() {
        closed.store(true, ordering: .releasing)
        let dropped = queue.close()
        let actions = followers.withLock { followers in
            defer { followers = nil }
            return followers ?? [:]
        }
        for action in actions.values { action() }
        guard dropped > 0 else { return }
        Self.lost.add(UInt64(dropped), ordering: .relaxed)
        Log.warning("\(dropped) notifications were lost, because their main context is gone")
    }
}
