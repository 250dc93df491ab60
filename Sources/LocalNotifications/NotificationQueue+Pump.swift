import MainLoop
import Synchronization

/// Drives the notification queues of one main context: one source for each style and set of modes, for all queues.
///
/// A source is signalled while something waits with its modes; the loop holds it back while none of these is current.
/// Whichever source is dispatched, what is posted is the next of all that is allowed, so that queues stay first in,
/// first out across modes.
///
/// It lives as long as the context, and holds queues weakly.
final class QueuePump: Sendable {
    /// Tells contexts apart; never used again.
    typealias ID = UInt64

    static func of(_ context: MainContext) -> QueuePump {
        context.attachment(QueuePump.self) {
            let pump = QueuePump(context)
            context.atEnd { [weak pump] in pump?.contextEnded() }
            return pump
        }
    }

    private struct SourceKey: Hashable {
        let style: NotificationQueue.PostingStyle
        let modes: Set<RunLoopMode>
    }

    private struct State {
        /// Those with something that waits for this context.
        var queues: [ObjectIdentifier: Weak<NotificationQueue>] = [:]
        var sources: [SourceKey: SignalledSource] = [:]
        /// How many passes over the notifications of style asap are under way, one nested in the other.
        var passes = 0
    }

    let id = QueuedNotification.numbers.add(1, ordering: .relaxed).oldValue
    private let modes: ContextModes
    private let state = Locked(State())

    private init(_ context: MainContext) {
        modes = ContextModes(of: context)
    }

    func allows(_ modes: Set<RunLoopMode>) -> Bool {
        self.modes.allow(modes)
    }

    /// Has the loop come to a notification that was enqueued on the calling thread, which is the one of the context.
    func enqueued(_ item: QueuedNotification, in queue: NotificationQueue, on context: MainContext) {
        // Whoever asks now reads what only its own thread still changes: a queue never changes what it took in.
        let key = SourceKey(style: item.style, modes: item.modes)
        let (source, isInPass) = state.withLock { state in
            let id = ObjectIdentifier(queue)
            // Another queue may have had this address.
            if state.queues[id]?.object !== queue { state.queues[id] = Weak(queue) }
            return (state.sources[key], state.passes > 0)
        }
        let target = source ?? makeSource(key, on: context)
        // Enqueued by an observer that a pass called: for the next pass, and before that for everyone else (Q5).
        if isInPass && key.style == .asap { target.signalAfterOthers() } else { target.signal() }
    }

    private func makeSource(_ key: SourceKey, on context: MainContext) -> SignalledSource {
        let work = key.style == .asap ? LoopWork.asap : .whenIdle
        let source = SignalledSource(on: context, for: work, modes: key.modes) { [weak self] in
            guard let self else { return }
            if key.style == .asap { postAll(signalling: key) } else { postOne(signalling: key) }
        }
        return state.withLock { state in
            if let other = state.sources[key] { return other }
            state.sources[key] = source
            return source
        }
    }

    // MARK: Posting

    /// Posts what waited when the pass began.
    private func postAll(signalling key: SourceKey) {
        let limit = QueuedNotification.numbers.load(ordering: .relaxed)
        state.withLock { $0.passes += 1 }
        var isArmed = false
        while let (queue, number) = next(.asap, before: limit) {
            // For a nested loop in an observer.
            if !isArmed { signal(key) }
            isArmed = true
            queue.post(number)
        }
        state.withLock { $0.passes -= 1 }
        signalIfWaiting(key)
    }

    /// Posts one: whether the loop is still idle after that, it says itself.
    private func postOne(signalling key: SourceKey) {
        if let (queue, number) = next(.whenIdle, before: .max) {
            signal(key)
            queue.post(number)
        }
        signalIfWaiting(key)
    }

    private func signal(_ key: SourceKey) {
        state.withLock { $0.sources[key] }?.signal()
    }

    /// What is left may not be posted in a mode that was entered meanwhile: the source is held back until it may.
    private func signalIfWaiting(_ key: SourceKey) {
        let queues = state.withLock { $0.queues }
        if queues.values.contains(where: { $0.object?.hasWork(key.style, for: id, modes: key.modes) == true }) {
            signal(key)
        }
    }

    /// The first of all queues.
    private func next(
        _ style: NotificationQueue.PostingStyle, before limit: UInt64
    ) -> (NotificationQueue, UInt64)? {
        var first: (queue: NotificationQueue, number: UInt64)?
        let queues = state.withLock { $0.queues }
        for (id, entry) in queues {
            guard let queue = entry.object, queue.hasWork(for: self.id) else {
                forget(id)
                continue
            }
            if let number = queue.next(style, home: self, before: first?.number ?? limit) { first = (queue, number) }
        }
        return first
    }

    /// Forgets a queue that is gone or has nothing for this context, unless that changed meanwhile.
    private func forget(_ id: ObjectIdentifier) {
        let queue = state.withLock { state in
            let queue = state.queues[id]?.object
            state.queues[id] = nil
            return queue
        }
        guard let queue, queue.hasWork(for: self.id) else { return }
        state.withLock { $0.queues[id] = Weak(queue) }
    }

    private func contextEnded() {
        let (queues, sources) = state.withLock { state in
            defer {
                state.queues = [:]
                state.sources = [:]
            }
            return (state.queues, state.sources)
        }
        for entry in queues.values { entry.object?.contextEnded(id) }
        withExtendedLifetime(sources) {}
    }
}
