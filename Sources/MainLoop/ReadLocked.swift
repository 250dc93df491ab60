// SPDX-License-Identifier: Apache-2.0
import CCarillonGLib
import Synchronization

/// A value behind a lock that several threads may hold at once, as long as they only look at it.
///
/// There is one lock until two threads meet at it. From then on there are a few, each in memory of its own: who looks
/// takes that of its thread, and who changes takes all of them. So those that look wait neither for each other nor for
/// each other's memory, and where nobody meets nobody pays for more than one lock.
///
/// Inlinable, so that each module that uses it has it for its own types.
@usableFromInline package final class ReadLocked<Value: ~Copyable & Sendable>: @unchecked Sendable {
    // Sendable: the value is touched only under the locks; the pointers never change.

    /// As far from the next as processors share memory.
    @usableFromInline struct Lane: ~Copyable {
        @usableFromInline let lock = Locked(())
        private let distance: (Int, Int, Int, Int, Int, Int, Int, Int, Int, Int, Int, Int, Int, Int, Int)

        init() {
            distance = (0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
        }
    }

    /// A power of two.
    @inlinable static var laneCount: Int { 4 }

    // No references, as readers would meet at their counts.
    @usableFromInline let lanes: UnsafeMutablePointer<Lane>
    @usableFromInline let value: UnsafeMutablePointer<Value>
    /// How many of the lanes are in use. It changes under the lock of the first, which whoever changes the value takes
    /// before; a reader that takes it for less than it is has one of those all the same.
    @usableFromInline let used = Atomic(1)

    package init(_ initial: consuming Value) {
        lanes = .allocate(capacity: Self.laneCount)
        for lane in 0..<Self.laneCount { (lanes + lane).initialize(to: Lane()) }
        value = .allocate(capacity: 1)
        value.initialize(to: initial)
    }

    deinit {
        value.deinitialize(count: 1)
        value.deallocate()
        lanes.deinitialize(count: Self.laneCount)
        lanes.deallocate()
    }

    /// Looks at the value, beside others. A type that can't be copied makes sure that nothing of it is retained for that.
    @inlinable package func read<Result: Sendable>(_ body: (borrowing Value) -> Result) -> Result {
        if used.load(ordering: .acquiring) == 1 {
            if let result = lanes[0].lock.withLockIfAvailable({ _ in body(value.pointee) }) { return result }
            lanes[0].lock.withLock { _ in used.store(Self.laneCount, ordering: .releasing) }
        }
        return lanes[Self.laneOfThread].lock.withLock { _ in body(value.pointee) }
    }

    @usableFromInline static var laneOfThread: Int {
        Int(carillon_thread_number()) & (laneCount - 1)
    }

    /// Changes the value, alone.
    @inlinable package func withLock<Result: Sendable>(_ body: (inout Value) -> Result) -> Result {
        lanes[0].lock.withLock { _ in
            used.load(ordering: .relaxed) == 1 ? body(&value.pointee) : withLanes(from: 1, body)
        }
    }

    @inlinable func withLanes<Result: Sendable>(from lane: Int, _ body: (inout Value) -> Result) -> Result {
        guard lane < Self.laneCount else { return body(&value.pointee) }
        return lanes[lane].lock.withLock { _ in withLanes(from: lane + 1, body) }
    }
}
