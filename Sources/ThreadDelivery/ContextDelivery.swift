// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import Synchronization

/// The queue of notifications for one main context (T1). It keeps one order for all its work, regardless of modes; a
/// source on the context runs the work. Observers with a context as their target get their notifications through it.
///
/// `DeliveryQueue.Limits.standard` bounds the queue (T2). The queue ends with the context and does not keep it alive;
/// the work that waits at that time is lost, counted and logged.
///
/// Threads: any.
package final class ContextDelivery: Sendable {
    package typealias Payload = DeliveryQueue.Payload

    /// Returns the queue of a context, which lives as long as the context.
    package static func to(_ context: MainContext) -> ContextDelivery {
        // A loop on the default context also has to serve the main dispatch queue.
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
    /// The number of losses since the context's thread last ran this queue, for the log.
    private let lossesSinceDrain = Atomic(0)

    package init(_ context: MainContext, _ limits: DeliveryQueue.Limits) {
        // Weak: the closures below belong to the queue, the source and the context, and must not keep this object
        // alive.
        let reference = Weak<ContextDelivery>()
        let queue = DeliveryQueue(limits: limits, wake: { reference.object?.source.signal() })
        self.queue = queue
        modes = ContextModes(of: context)
        source = SignalledSource(on: context, for: .ordinary, gate: Gate(queue)) { reference.object?.drain() }
        reference.object = self
        context.atEnd { reference.object?.close() }
    }

    /// A gate that is open while any waiting work is allowed in the context's mode.
    private final class Gate: ContentGate {
        private let queue: DeliveryQueue

        init(_ queue: DeliveryQueue) {
            self.queue = queue
        }

        func allows(in modes: ContextModes) -> Bool {
            queue.hasAllowed(in: modes)
        }
    }

    /// Appends `work`, which runs on the context's thread, after all earlier work that may run in the same mode.
    /// Returns at once. Lost entries are counted and logged.
    ///
    /// - Parameters:
    ///   - byteCount: the memory that `work` keeps, in bytes, without the payload.
    ///   - payload: the memory that `work` shares with other work for this context.
    /// - Returns: false when the context is gone.
    package func append(
        byteCount: Int, payload: Payload? = nil, in modes: ModeSet = .ofCommon, _ work: @escaping @Sendable () -> Void
    ) -> Bool {
        let lost = queue.append(byteCount: byteCount, payload: payload, in: modes, work)
        if lost > 0 { report(lost) }
        return !isClosed
    }

    /// The same for a caller that counts and reports losses itself.
    ///
    /// - Returns: the number of entries that this call discarded.
    package func deliver(byteCount: Int, in modes: ModeSet, _ work: @escaping @Sendable () -> Void) -> Int {
        queue.append(byteCount: byteCount, payload: nil, in: modes, work)
    }

    /// Runs the waiting work that the mode allows, in its order, until the source's time in this cycle of the loop is
    /// used up.
    private func drain() {
        let lost = lossesSinceDrain.exchange(0, ordering: .relaxed)
        if lost > 0 { Log.warning("\(lost) notifications were lost, because their thread did not run its loop") }
        queue.drain(in: modes, while: { true }, share: { source.hasTimeLeft })
    }

    /// The number of waiting entries; for tests.
    package var count: Int { queue.count }

    /// The number of waiting bytes, and of sets of modes with waiting entries; for tests.
    package var extent: (byteCount: Int, laneCount: Int) { queue.extent }

    /// Counts losses and logs their beginning.
    private func report(_ lost: Int) {
        Self.lost.add(UInt64(lost), ordering: .relaxed)
        // One message when losses begin; `drain` logs another one with their number.
        if !isClosed, lossesSinceDrain.add(lost, ordering: .relaxed).oldValue == 0 {
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
