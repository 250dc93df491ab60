// SPDX-License-Identifier: Apache-2.0
#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// A work queue for calls that may block, such as reads from a network file system that does not answer. The work runs
/// on other threads, and the loop's thread receives the results. The service, its activity tracker and the MQTT client
/// use it.
///
/// Each item of work has its own thread, which ends with the item. Items begin in their order, and up to `width` of
/// them run at a time. An item has a timeout, `bound`; after it, the item's completion receives nil. Nothing can end a
/// system call that does not return, so the item's thread remains *stuck*, and the next item begins on a new thread.
/// While ``maxStuck`` threads are stuck, new items fail at once.
///
/// Threads: all members are used on the thread of the loop. Only the work itself runs on another thread.
package final class BlockingWork {
    private final class Item {
        /// Starts the work, and returns false if there is no thread for it. The work's thread calls `whenDone`.
        let begin: (_ whenDone: @escaping @Sendable () -> Void) -> Bool
        /// Whether the work has stored its result.
        let isDone: () -> Bool
        /// Calls the item's completion on the loop's thread: with the result if `isDone`, else with nil.
        let end: (_ isDone: Bool) -> Void
        /// The timeout.
        var timer: EventSource?

        init(
            begin: @escaping (@escaping @Sendable () -> Void) -> Bool, isDone: @escaping () -> Bool,
            end: @escaping (Bool) -> Void
        ) {
            self.begin = begin
            self.isDone = isDone
            self.end = end
        }
    }

    /// The result of one item of work; nil until it is done.
    private final class Outcome<Value: Sendable>: Sendable {
        private let value = Locked<Value?>(nil)

        var isSet: Bool { value.withLock { $0 != nil } }

        func set(_ new: Value) { value.withLock { $0 = new } }

        func take() -> Value? { value.withLock { $0.take() } }
    }

    /// The maximum number of threads that are stuck at a time. Each keeps a stack of 256 KiB.
    package static let maxStuck = 16

    private let context: MainContext
    private let priority: EventSource.Priority
    /// The timeout of an item, in milliseconds.
    private let bound: UInt32
    private let width: Int
    private let usesThreads: Bool
    /// The items that have not begun.
    private var queue: [Item] = []
    /// The items that run, or are done and not reported.
    private var running: [Item] = []
    /// The items after their timeout whose threads still run.
    private var stuck: [Item] = []
    /// The items without a thread, until the loop calls their completions with nil.
    private var refused: [Item] = []
    /// Calls ``dispatch()`` on the loop; attached only while there are items.
    private var source: PolledSource?

    /// - Parameters:
    ///   - priority: the priority of the results on the loop.
    ///   - bound: the timeout of an item, in milliseconds.
    ///   - width: the number of items that may run at a time.
    ///   - usesThreads: false in a test or a simulation whose work never blocks: the work then runs on the loop's
    ///     thread when the item begins.
    package init(
        on context: MainContext, priority: EventSource.Priority, bound: UInt32 = 2000, width: Int = 1,
        usesThreads: Bool = true
    ) {
        self.context = context
        self.priority = priority
        self.bound = bound
        self.width = width
        self.usesThreads = usesThreads
    }

    /// Whether no item waits, runs or has an unreported result. Stuck items do not count.
    package var isIdle: Bool { running.isEmpty && queue.isEmpty && refused.isEmpty }

    /// The number of items that have not begun.
    package var waitingCount: Int { queue.count }

    /// The number of stuck threads.
    package var stuckCount: Int { stuck.count }

    /// Appends `work` to the queue.
    ///
    /// - Parameter completion: called on the loop's thread, after this call has returned, with the result of the work.
    ///   It receives nil after the timeout, or when there is no thread for the work. It is not called after this object
    ///   is released.
    package func run<Value: Sendable>(
        _ work: @escaping @Sendable () -> Value, then completion: @escaping (Value?) -> Void
    ) {
        let outcome = Outcome<Value>()
        let usesThreads = usesThreads
        queue.append(
            Item(
                begin: { whenDone in
                    guard usesThreads else {
                        outcome.set(work())
                        return true
                    }
                    return startThread {
                        outcome.set(work())
                        whenDone()
                    }
                },
                isDone: { outcome.isSet },
                end: { isDone in completion(isDone ? outcome.take() : nil) }))
        if source == nil { source = PolledSource(delegate: self, priority: priority, context: context) }
        beginNext()
    }

    /// Begins waiting items until `width` items run.
    private func beginNext() {
        while running.count < width, !queue.isEmpty {
            let next = queue.removeFirst()
            guard stuck.count < Self.maxStuck, next.begin({ [context] in context.wakeUp() }) else {
                refused.append(next)
                continue
            }
            running.append(next)
            guard usesThreads else { continue }
            next.timer = .once(milliseconds: bound, on: context, priority: priority) { [unowned self, unowned next] in
                timeOut(next)
            }
        }
    }

    /// Ends an item at its timeout: calls its completion with nil, and lets the next item begin.
    private func timeOut(_ item: Item) {
        item.timer = nil
        // The result arrived just before the timeout: `dispatch` reports it.
        guard !item.isDone() else { return }
        running.removeAll { $0 === item }
        stuck.append(item)
        item.end(false)
        beginNext()
    }
}

extension BlockingWork: PolledSourceDelegate {
    package func hasPendingWork() -> Bool {
        !refused.isEmpty || running.contains { $0.isDone() } || stuck.contains { $0.isDone() }
    }

    package func dispatch() {
        // A stuck thread that has ended after all makes space for another one; its late result is ignored.
        stuck.removeAll { $0.isDone() }
        let (over, done) = (refused, running.filter { $0.isDone() })
        refused = []
        running.removeAll { item in done.contains { $0 === item } }
        for item in done { item.timer = nil }
        for item in over { item.end(false) }
        for item in done { item.end(true) }
        beginNext()
        if isIdle, stuck.isEmpty { source = nil }
    }
}

/// The closure that a thread runs, as an object that C code can pass to the thread.
private final class Body {
    let run: @Sendable () -> Void

    init(_ run: @escaping @Sendable () -> Void) {
        self.run = run
    }
}

/// Starts a detached thread with a stack of 256 KiB and all signals blocked.
///
/// - Returns: false when the system can't start another thread.
private func startThread(_ run: @escaping @Sendable () -> Void) -> Bool {
    var thread = pthread_t()
    var attributes = pthread_attr_t()
    pthread_attr_init(&attributes)
    defer { pthread_attr_destroy(&attributes) }
    pthread_attr_setdetachstate(&attributes, Int32(PTHREAD_CREATE_DETACHED))
    pthread_attr_setstacksize(&attributes, 256 << 10)
    let body = Unmanaged.passRetained(Body(run)).toOpaque()
    // Signals belong to the thread of the loop; a new thread inherits the mask of the thread that starts it.
    var (all, before) = (sigset_t(), sigset_t())
    sigfillset(&all)
    pthread_sigmask(SIG_SETMASK, &all, &before)
    defer { pthread_sigmask(SIG_SETMASK, &before, nil) }
    guard pthread_create(&thread, &attributes, runBody, body) == 0 else {
        Unmanaged<Body>.fromOpaque(body).release()
        return false
    }
    return true
}

private func runBody(_ data: UnsafeMutableRawPointer?) -> UnsafeMutableRawPointer? {
    Unmanaged<Body>.fromOpaque(data!).takeRetainedValue().run()
    return nil
}
