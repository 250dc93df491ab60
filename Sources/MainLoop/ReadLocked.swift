// SPDX-License-Identifier: Apache-2.0
import CCarillonGLib
import Synchronization

/// A value behind a lock that several threads may hold at once, as long as they only read.
///
/// There is one lock until two threads meet at it. From then on there are several, each in memory of its own: a reader
/// takes the lock of its thread, and a writer takes all of them. Therefore readers wait neither for each other nor for
/// each other's memory. Without contention there is the cost of only one lock.
///
/// Inlinable, so that each module specializes it for its own types.
@usableFromInline package final class ReadLocked<Value: ~Copyable & Sendable>: @unchecked Sendable {
    // Sendable: the value is accessed only under the locks; the pointers never change.

    /// A lock, as far from the next one as processors share memory.
    @usableFromInline struct Lane: ~Copyable {
        @usableFromInline let lock = Locked(())
        private let distance: (Int, Int, Int, Int, Int, Int, Int, Int, Int, Int, Int, Int, Int, Int, Int)

        init() {
            distance = (0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
        }
    }

    /// The number of locks, a power of two.
    @inlinable static var laneCount: Int { 4 }

    // Pointers instead of references, because readers would contend for reference counts.
    @usableFromInline let lanes: UnsafeMutablePointer<Lane>
    @usableFromInline let value: UnsafeMutablePointer<Value>
    /// The number of lanes in use. It changes under the lock of the first lane, which a writer takes first. A reader
    /// that sees an outdated smaller number uses one of these lanes nevertheless.
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

    /// Reads the value, at the same time as other readers. For this, a noncopyable type ensures that no part of it is
    /// retained.
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

    /// Changes the value, with exclusive access.
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
