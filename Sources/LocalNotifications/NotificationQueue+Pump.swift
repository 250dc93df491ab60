// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import CarillonThreadDelivery
import Synchronization

/// The scheduler that posts the waiting notifications of all notification queues on one main context. It has two event
/// sources on the context's loop: one for the style `asap`, one for `whenIdle`.
///
/// All queues share one list for each style. Therefore the cost of a pass depends on the number of posts and not on the
/// number of queues, and each queue is first in, first out within the modes that the loop allows.
///
/// The pump lives as long as the context, and does not retain queues (``NotificationQueue``). Threads: any; posts run
/// on the thread of the context.
final class QueuePump: Sendable {
    /// The pump of the calling thread's context.
    static var current: QueuePump {
        MainContext.currentAttachment(QueuePump.self) { context in
            if context == .default { MainQueueSource.install() }
            return QueuePump(context)
        }
    }

    fileprivate struct State {
        var asap = Waiting()
        var whenIdle = Waiting()
    }

    /// The waiting notifications of one style.
    fileprivate struct Waiting {
        /// The notifications in their order, with a lane for each set of modes.
        var lanes = ModeLanes<QueuedNotification>()
        /// The number of entries in the lanes whose notification has been taken by its queue. They are skipped, and
        /// removed when they outnumber the others.
        var tombstones = 0
        /// Whether the source was signaled and has not begun to post since. A second signal is then unnecessary.
        var isSignaled = false
    }

    private let state = Locked(State())
    /// The current mode of the context.
    private let modes: ContextModes
    /// The reference of the two sources to this pump.
    private let reference = Reference()
    private let asapSource: SignalledSource
    private let idleSource: SignalledSource

    private init(_ context: MainContext) {
        modes = ContextModes(of: context)
        let pump = reference
        asapSource = SignalledSource(on: context, for: .asap, gate: Gate(.asap, pump)) { pump.target?.postAll() }
        idleSource = SignalledSource(on: context, for: .whenIdle, gate: Gate(.whenIdle, pump)) {
            pump.target?.postOne()
        }
        pump.point(to: self)
        context.atEnd { pump.target?.contextEnded() }
    }

    deinit { reference.point(to: nil) }

    /// An unretained reference of the sources to their pump, which owns them. A weak reference would cost more, in
    /// every use of the pump.
    ///
    /// The address is valid while a source uses it: the context retains the pump until the actions at its end have run.
    /// The sources of a pump that lost the race to be attached to the context never run, because no code has signaled
    /// them.
    fileprivate final class Reference: Sendable {
        /// The address of the pump; 0 for none.
        private let address = Atomic<UInt>(0)

        func point(to pump: QueuePump?) {
            let pointer = pump.map { Unmanaged.passUnretained($0).toOpaque() }
            address.store(UInt(bitPattern: pointer), ordering: .releasing)
        }

        var target: QueuePump? {
            UnsafeRawPointer(bitPattern: address.load(ordering: .acquiring))
                .map { Unmanaged<QueuePump>.fromOpaque($0).takeUnretainedValue() }
        }
    }

    /// The condition for running a source: a notification of its style may be posted in the current mode.
    private final class Gate: ContentGate {
        private let style: NotificationQueue.PostingStyle
        private let pump: Reference

        init(_ style: NotificationQueue.PostingStyle, _ pump: Reference) {
            self.style = style
            self.pump = pump
        }

        func allows(in modes: ContextModes) -> Bool {
            guard let pump = pump.target else { return false }
            return pump.state.withLock { $0[style].lanes.hasAllowed(in: modes) }
        }
    }

    /// Whether the context is in one of these modes, so that such a notification may be posted now.
    func allows(_ modes: ModeSet) -> Bool {
        self.modes.allow(modes)
    }

    /// Adds a notification that the loop is to post. Called on the thread of the context. If the context has ended, the
    /// notification is dropped.
    func append(_ item: QueuedNotification) {
        let (needsSignal, isLate) = state.withLock { state in
            if modes.isEnded { return (false, true) }
            return (state[item.style].append(item), false)
        }
        if needsSignal { source(item.style).signal() }
        if isLate { drop([item]) }
    }

    /// Returns the event source of a style.
    private func source(_ style: NotificationQueue.PostingStyle) -> SignalledSource {
        style == .asap ? asapSource : idleSource
    }

    /// Records that a queue has taken one of the notifications that wait here.
    func noteTombstone(_ style: NotificationQueue.PostingStyle) {
        let removed = state.withLock { $0[style].addTombstone() }
        withExtendedLifetime(removed) {}
    }

    // MARK: Posting

    /// Posts the notifications of the style `asap` that wait at the beginning of the pass. It stops when the source has
    /// used up its share of this cycle of the loop.
    private func postAll() {
        let limit = state.withLock { state in
            state.asap.isSignaled = false
            return state.asap.lanes.nextNumber
        }
        repeat {
            let (item, needsSignal) = state.withLock { $0.asap.next(in: modes, before: limit) }
            guard let item else { break }
            // An observer may run a nested loop. The signal lets that loop post the remaining notifications.
            if needsSignal { asapSource.signal() }
            item.store.post(item)
        } while asapSource.hasTimeLeft
        // `isLeft`: notifications remain. `isNew`: only notifications that were enqueued during the pass may be posted.
        let (isLeft, isNew) = state.withLock { state in
            state.asap.isSignaled = !state.asap.lanes.isEmpty
            guard state.asap.isSignaled else { return (false, false) }
            let isDone = !state.asap.lanes.hasAllowed(in: modes, before: limit)
            return (true, isDone && state.asap.lanes.hasAllowed(in: modes))
        }
        guard isLeft else { return }
        // Notifications that observers enqueued meanwhile belong to the next pass, behind all other work of the loop
        // (Q5). Otherwise an observer that enqueues in every call would starve the loop.
        if isNew { asapSource.signalAfterOthers() } else { asapSource.signal() }
    }

    /// Posts one notification of the style `whenIdle`. The source is then signaled for the next one, and runs only if
    /// the loop is still idle.
    private func postOne() {
        let (item, needsSignal) = state.withLock { state in
            state.whenIdle.isSignaled = false
            return state.whenIdle.next(in: modes, before: .max)
        }
        if needsSignal { idleSource.signal() }
        if let item { item.store.post(item) }
        let isLeft = state.withLock { state in
            state.whenIdle.isSignaled = !state.whenIdle.lanes.isEmpty
            return state.whenIdle.isSignaled
        }
        if isLeft { idleSource.signal() }
    }

    // MARK: End of the context

    /// Drops all waiting notifications at the end of the context.
    private func contextEnded() {
        let items = state.withLock { $0.asap.lanes.removeAll() + $0.whenIdle.lanes.removeAll() }
        drop(items)
    }

    /// Drops these notifications and logs their number.
    private func drop(_ items: [QueuedNotification]) {
        let count = items.count { $0.store.drop($0) }
        guard count > 0 else { return }
        Log.warning("\(count) notifications were not posted, because their main context is gone")
    }
}

extension QueuePump.State {
    fileprivate subscript(style: NotificationQueue.PostingStyle) -> QueuePump.Waiting {
        get { style == .asap ? asap : whenIdle }
        _modify {
            if style == .asap { yield &asap } else { yield &whenIdle }
        }
    }
}

extension QueuePump.Waiting {
    /// Adds a notification.
    ///
    /// - Returns: whether the source has to be signaled: for the first notification, and for the first in new modes, of
    ///   which a sleeping loop knows nothing.
    fileprivate mutating func append(_ item: QueuedNotification) -> Bool {
        let needsWakeUp = lanes.needsWakeUp(item.modes)
        lanes.append(item, in: item.modes)
        return claimSignal() || needsWakeUp
    }

    /// Whether the source has to be signaled, which is then recorded.
    fileprivate mutating func claimSignal() -> Bool {
        guard !isSignaled, !lanes.isEmpty else { return false }
        isSignaled = true
        return true
    }

    /// Removes the next waiting notification that the mode allows.
    ///
    /// - Returns: the notification, and whether the source has to be signaled for the remaining ones.
    fileprivate mutating func next(
        in modes: ContextModes, before limit: ModeLanes<QueuedNotification>.Number
    ) -> (QueuedNotification?, Bool) {
        while let item = lanes.popFirst(in: modes, before: limit) {
            if item.isGone { tombstones = max(0, tombstones - 1) } else { return (item, claimSignal()) }
        }
        return (nil, false)
    }

    /// Counts a notification that its queue has taken. When more than 64 and more than half of the entries are such,
    /// they are all removed; the cost is constant for each entry, amortized.
    ///
    /// - Returns: the removed entries, which the caller releases outside of the lock.
    fileprivate mutating func addTombstone() -> [QueuedNotification] {
        tombstones += 1
        guard tombstones > 64, tombstones > lanes.count / 2 else { return [] }
        var removed: [QueuedNotification] = []
        lanes.removeAll { item in
            if item.isGone { removed.append(item) }
            return item.isGone
        }
        tombstones = 0
        if lanes.isEmpty { isSignaled = false }
        return removed
    }
}
