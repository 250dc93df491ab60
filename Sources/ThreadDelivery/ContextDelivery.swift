// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import Synchronization

/// What goes to a main context (T1): one order for all of it, whatever modes each is for, and one source.
///
/// It is a ``DeliveryQueue`` that is emptied by a source, and ends with the context: it does not keep that alive. It is
/// bounded by `DeliveryQueue.Limits.standard` (T2). When the context is gone, what waits is lost, counted and reported.
///
/// Threads: any.
package final class ContextDelivery: Sendable {
    package typealias Payload = DeliveryQueue.Payload

    /// The one of a context, which lives as long as the context.
    package static func to(_ context: MainContext) -> ContextDelivery {
        if context == .default { MainQueueSource.install() }
        return context.attachment(ContextDelivery.self) { ContextDelivery(context, .standard) }
    }

    /// Lost in the whole process.
    package static let lost = Atomic<UInt64>(0)

    private let queue: DeliveryQueue
    private let modes: ContextModes
    private let source: SignalledSource
    /// Who is told when the context ends; nil when it has.
    private let followers = Locked<[ObjectIdentifier: @Sendable () -> Void]?>([:])
    private let closed = Atomic(false)
    /// How many were lost since the target last drained.
    private let lostSince = Atomic(0)

    package init(_ context: MainContext, _ limits: DeliveryQueue.Limits) {
        // What wakes a queue, and what runs in a loop, must not keep it.
        let reference = Weak<ContextDelivery>()
        let queue = DeliveryQueue(limits: limits, wake: { reference.object?.source.signal() })
        self.queue = queue
        modes = ContextModes(of: context)
        source = SignalledSource(on: context, for: .ordinary, gate: Gate(queue)) { reference.object?.drain() }
        reference.object = self
        context.atEnd { reference.object?.close() }
    }

    /// Something waits that the mode allows.
    private final class Gate: ContentGate {
        private let queue: DeliveryQueue

        init(_ queue: DeliveryQueue) {
            self.queue = queue
        }

        func allows(in modes: ContextModes) -> Bool {
            queue.hasAllowed(in: modes)
        }
    }

    /// Has `work` run on the thread of the context, after everything before that is for one of its modes. Returns at
    /// once.
    ///
    /// - Parameters:
    ///   - byteCount: how much memory it keeps, beside the payload.
    ///   - payload: what it keeps together with others for this context.
    /// - Returns: false when the context is gone.
    package func append(
        byteCount: Int, payload: Payload? = nil, in modes: ModeSet = .ofCommon, _ work: @escaping @Sendable () -> Void
    ) -> Bool {
        let lost = queue.append(byteCount: byteCount, payload: payload, in: modes, work)
        if lost > 0 { report(lost) }
        return !isClosed
    }

    /// The same for who counts and reports by itself what is lost.
    ///
    /// - Returns: how many were.
    package func deliver(byteCount: Int, in modes: ModeSet, _ work: @escaping @Sendable () -> Void) -> Int {
        queue.append(byteCount: byteCount, payload: nil, in: modes, work)
    }

    /// Runs what waits and is for the mode, in its order, until the share of the turn is used up.
    private func drain() {
        let lost = lostSince.exchange(0, ordering: .relaxed)
        if lost > 0 { Log.warning("\(lost) notifications were lost, as their thread did not run its loop") }
        queue.drain(in: modes, while: { true }, share: { source.mayGoOn })
    }

    /// How many wait: for tests.
    package var count: Int { queue.count }

    /// How many bytes wait, and for how many sets of modes: for tests.
    package var extent: (byteCount: Int, laneCount: Int) { queue.extent }

    private func report(_ lost: Int) {
        Self.lost.add(UInt64(lost), ordering: .relaxed)
        // Once when it begins, and with the number when the target reads again.
        if !isClosed, lostSince.add(lost, ordering: .relaxed).oldValue == 0 {
            Log.warning("notifications are being lost: their thread does not run its loop")
        }
    }

    // MARK: The end of the context

    /// Whether the context is gone.
    package var isClosed: Bool {
        closed.load(ordering: .acquiring)
    }

    /// Has `action` run when the context ends; at once when it is gone.
    ///
    /// - Parameter owner: one action for each.
    package func follow(_ owner: AnyObject, _ action: @escaping @Sendable () -> Void) {
        let owner = ObjectIdentifier(owner)
        let isGone = followers.withLock { followers in
            followers?[owner] = action
            return followers == nil
        }
        if isGone { action() }
    }

    /// Lets go of what ``follow(_:_:)`` was given.
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
        Log.warning("\(dropped) notifications were lost, as the main context that they were for is gone")
    }
}
