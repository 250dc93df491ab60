// SPDX-License-Identifier: Apache-2.0
import CarillonCollections
import CarillonMainLoop

/// The bounded buffer between a source of notifications and one reader of an asynchronous sequence (C7, T2). When it is
/// full, the oldest elements are discarded.
///
/// The sequence's iterator holds the ``Reader``. A source that can end before the reader, such as a registration at the
/// distributed center, holds the ``Finisher``.
///
/// Threads: any.
package final class ReaderBuffer<Element: Sendable>: Sendable {
    /// A suspended call of the reader's `next`.
    private typealias Waiter = UnsafeContinuation<Element?, Never>

    private struct Entry {
        let element: Element
        let byteCount: Int
    }

    private enum Phase {
        case open
        /// No more elements follow.
        case finished
        /// The reader is gone.
        case ended
    }

    private struct State {
        var phase = Phase.open
        var entries = Deque<Entry>()
        var byteCount = 0
        var waiters = Deque<Waiter>()
        var onEnd: (@Sendable () -> Void)?

        mutating func takeFirst() -> Element? {
            guard let entry = entries.popFirst() else { return nil }
            byteCount -= entry.byteCount
            return entry.element
        }

        mutating func takeWaiters() -> [Waiter] {
            var taken: [Waiter] = []
            while let waiter = waiters.popFirst() { taken.append(waiter) }
            return taken
        }
    }

    private let limits: DeliveryQueue.Limits
    private let state = Locked(State())

    /// - Parameter count: the maximum number of elements. The maximum size in bytes is that of
    ///   `DeliveryQueue.Limits.standard`.
    package init(count: Int) {
        limits = .init(count: max(1, count), byteCount: DeliveryQueue.Limits.standard.byteCount)
    }

    /// Sets the action that is called once, with no lock held, when the reader is gone. If it is gone already, the
    /// action runs at once.
    package func onEnd(_ action: @escaping @Sendable () -> Void) {
        let hasEnded = state.withLock { state in
            if state.phase != .ended { state.onEnd = action }
            return state.phase == .ended
        }
        if hasEnded { action() }
    }

    /// Appends an element. After the end of the input or of the reader it is ignored.
    ///
    /// - Parameter byteCount: the approximate memory that the element keeps, in bytes.
    /// - Returns: the number of elements that were discarded to free space; the oldest are discarded first.
    package func append(_ element: Element, byteCount: Int) -> Int {
        var lost: [Element] = []
        let waiter: Waiter? = state.withLock { state in
            guard state.phase == .open else { return nil }
            if let waiter = state.waiters.popFirst() { return waiter }
            state.entries.append(Entry(element: element, byteCount: byteCount))
            state.byteCount += byteCount
            // The newest element always stays, even if it alone exceeds the limit of bytes.
            while state.entries.count > 1,
                state.entries.count > limits.count || state.byteCount > limits.byteCount,
                let oldest = state.takeFirst()
            {
                lost.append(oldest)
            }
            return nil
        }
        waiter?.resume(returning: element)
        // The discarded elements are released here, with no lock held.
        return lost.count
    }

    /// Ends the input: the sequence ends after the waiting elements.
    package func finish() {
        let waiters = state.withLock { state in
            if state.phase == .open { state.phase = .finished }
            return state.takeWaiters()
        }
        for waiter in waiters { waiter.resume(returning: nil) }
    }

    /// Ends the reader: discards the waiting elements, and runs the action of ``onEnd(_:)``.
    fileprivate func end() {
        let (waiters, action, entries) = state.withLock { state in
            defer { (state.phase, state.onEnd, state.byteCount) = (.ended, nil, 0) }
            let entries = state.entries
            state.entries = Deque()
            return (state.takeWaiters(), state.onEnd, entries)
        }
        for waiter in waiters { waiter.resume(returning: nil) }
        action?()
        withExtendedLifetime(entries) {}
    }

    /// The result of an attempt to read.
    private enum Reading {
        case element(Element)
        /// The buffer is empty, but more elements may follow.
        case nothing
        /// The sequence has ended.
        case over
    }

    private func read() -> Reading {
        state.withLock { state in
            if let element = state.takeFirst() { return .element(element) }
            return state.phase == .open ? .nothing : .over
        }
    }

    fileprivate func next(isolation actor: isolated (any Actor)?) async -> Element? {
        guard !Task.isCancelled else {
            end()
            return nil
        }
        switch read() {
        case .element(let element): return element
        case .over: return nil
        case .nothing: break
        }
        return await withTaskCancellationHandler(
            operation: {
                await withUnsafeContinuation(isolation: actor) { continuation in wait(continuation) }
            }, onCancel: { end() }, isolation: actor)
    }

    /// Resumes the waiter at once if an element has arrived meanwhile or the sequence has ended; else it waits.
    private func wait(_ waiter: Waiter) {
        let reading: Reading = state.withLock { state in
            if let element = state.takeFirst() { return .element(element) }
            guard state.phase == .open else { return .over }
            state.waiters.append(waiter)
            return .nothing
        }
        switch reading {
        case .element(let element): waiter.resume(returning: element)
        case .over: waiter.resume(returning: nil)
        case .nothing: break
        }
    }

    /// The reading end, held by the sequence's iterator. Its release ends the reader.
    package final class Reader: Sendable {
        private let buffer: ReaderBuffer

        package init(_ buffer: ReaderBuffer) { self.buffer = buffer }

        deinit { buffer.end() }

        /// Returns the next element; nil when the task is cancelled, or when no more elements follow.
        package func next(isolation actor: isolated (any Actor)?) async -> Element? {
            await buffer.next(isolation: actor)
        }
    }

    /// The writing end, held by the source of the elements. Its release ends the input (``finish()``).
    package final class Finisher: Sendable {
        package let buffer: ReaderBuffer

        package init(_ buffer: ReaderBuffer) { self.buffer = buffer }

        deinit { buffer.finish() }
    }
}
