// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import CarillonThreadDelivery
import Synchronization

/// The poster of the waiting notifications of all notification queues on one main context. It has two sources, one for
/// each style that waits.
///
/// All queues share one order for each style. Therefore the cost of a pass depends on the number of posts and not on
/// the number of queues, and queues stay first in, first out across modes.
///
/// The pump lives as long as the context, and holds no queue.
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

    fileprivate struct Waiting {
        var lanes = ModeLanes<QueuedNotification>()
        /// The number of notifications in the lanes that are gone.
        var holes = 0
        /// Whether the source was signaled and has not begun to post since.
        var isAwake = false
    }

    private let state = Locked(State())
    private let modes: ContextModes
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

    /// The reference of the sources to their pump. A weak reference would make each use of the pump slow, and each
    /// waiting notification has such uses.
    ///
    /// The address stays valid: the context holds the pump until the actions at its end have run. The sources of a pump
    /// that the context never held do nothing, because no code has signaled them.
    fileprivate final class Reference: Sendable {
        /// 0 for none.
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

    /// Whether the context is in one of the modes.
    func allows(_ modes: ModeSet) -> Bool {
        self.modes.allow(modes)
    }

    /// Adds a notification to be posted by the loop. It was enqueued on the thread of the context.
    func append(_ item: QueuedNotification) {
        let (shallWake, isLate) = state.withLock { state in
            if modes.isEnded { return (false, true) }
            return (state[item.style].append(item), false)
        }
        if shallWake { source(item.style).signal() }
        if isLate { drop([item]) }
    }

    private func source(_ style: NotificationQueue.PostingStyle) -> SignalledSource {
        style == .asap ? asapSource : idleSource
    }

    /// Notes that a notification which waits here is gone.
    func hasHole(_ style: NotificationQueue.PostingStyle) {
        let removed = state.withLock { $0[style].addHole() }
        withExtendedLifetime(removed) {}
    }

    // MARK: Posting

    /// Posts the notifications that waited when the pass began, until the share of the turn is used up.
    private func postAll() {
        let limit = state.withLock { state in
            state.asap.isAwake = false
            return state.asap.lanes.nextNumber
        }
        repeat {
            let (item, shallWake) = state.withLock { $0.asap.next(in: modes, before: limit) }
            guard let item else { break }
            // The wake-up is for a loop that is nested in an observer.
            if shallWake { asapSource.signal() }
            item.store.post(item)
        } while asapSource.hasTimeLeft
        let (isLeft, isNew) = state.withLock { state in
            state.asap.isAwake = !state.asap.lanes.isEmpty
            guard state.asap.isAwake else { return (false, false) }
            let isDone = !state.asap.lanes.hasAllowed(in: modes, before: limit)
            return (true, isDone && state.asap.lanes.hasAllowed(in: modes))
        }
        guard isLeft else { return }
        // Notifications that observers enqueued meanwhile belong to the next pass, after all other work of the loop
        // (Q5).
        if isNew { asapSource.signalAfterOthers() } else { asapSource.signal() }
    }

    /// Posts one notification; the loop itself then decides whether it is idle.
    private func postOne() {
        let (item, shallWake) = state.withLock { state in
            state.whenIdle.isAwake = false
            return state.whenIdle.next(in: modes, before: .max)
        }
        if shallWake { idleSource.signal() }
        if let item { item.store.post(item) }
        let isLeft = state.withLock { state in
            state.whenIdle.isAwake = !state.whenIdle.lanes.isEmpty
            return state.whenIdle.isAwake
        }
        if isLeft { idleSource.signal() }
    }

    // MARK: End of the context

    private func contextEnded() {
        let items = state.withLock { $0.asap.lanes.removeAll() + $0.whenIdle.lanes.removeAll() }
        drop(items)
    }

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
    /// - Returns: whether the source has to be signaled.
    fileprivate mutating func append(_ item: QueuedNotification) -> Bool {
        let isUnannounced = lanes.isUnannounced(item.modes)
        lanes.append(item, in: item.modes)
        return mustWake() || isUnannounced
    }

    fileprivate mutating func mustWake() -> Bool {
        guard !isAwake, !lanes.isEmpty else { return false }
        isAwake = true
        return true
    }

    /// Returns the next waiting notification, and whether the source has to be signaled for others.
    fileprivate mutating func next(
        in modes: ContextModes, before limit: ModeLanes<QueuedNotification>.Number
    ) -> (QueuedNotification?, Bool) {
        while let item = lanes.popFirst(in: modes, before: limit) {
            if item.isGone { holes = max(0, holes - 1) } else { return (item, mustWake()) }
        }
        return (nil, false)
    }

    /// - Returns: the notifications that the caller must release.
    fileprivate mutating func addHole() -> [QueuedNotification] {
        holes += 1
        guard holes > 64, holes > lanes.count / 2 else { return [] }
        var removed: [QueuedNotification] = []
        lanes.removeAll { item in
            if item.isGone { removed.append(item) }
            return item.isGone
        }
        holes = 0
        if lanes.isEmpty { isAwake = false }
        return removed
    }
}
