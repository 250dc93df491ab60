// SPDX-License-Identifier: Apache-2.0
import CCarillonGLib
import Synchronization

/// A value behind a readers-writer lock, for values that are read often and by many threads. The local notification
/// center keeps its observers in one.
///
/// One lock is in use until two threads contend for it. From then on there are four, each in a cache line of its own: a
/// reader takes the lock of its thread, and a writer takes all of them. Therefore readers on different locks neither
/// wait for each other nor share a cache line. Without contention, an access costs one lock.
///
/// Inlinable, so that each module specializes it for its own types.
@usableFromInline package final class ReadLocked<Value: ~Copyable & Sendable>: @unchecked Sendable {
    // Sendable: the value is accessed only under the locks; the pointers never change.

    /// A lock, followed by padding so that no two locks share a cache line.
    @usableFromInline struct Lane: ~Copyable {
        @usableFromInline let lock = Locked(())
        /// Padding of 120 bytes.
        private let padding: (Int, Int, Int, Int, Int, Int, Int, Int, Int, Int, Int, Int, Int, Int, Int)

        init() {
            padding = (0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
        }
    }

    /// The number of locks, a power of two.
    @inlinable static var laneCount: Int { 4 }

    // Pointers instead of references: readers would contend for the reference counts of objects.
    @usableFromInline let lanes: UnsafeMutablePointer<Lane>
    @usableFromInline let value: UnsafeMutablePointer<Value>
    /// The number of lanes in use: 1 at first, then all. It changes under the lock of the first lane. A writer takes
    /// that lock first, so it knows the number. A reader that still sees 1 takes the first lane, which a writer takes
    /// too.
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

    /// Reads the value, possibly at the same time as other readers. `body` gets the value without a copy: a noncopyable
    /// type thus excludes contention for the reference counts of its parts.
    @inlinable package func read<Result: Sendable>(_ body: (borrowing Value) -> Result) -> Result {
        if used.load(ordering: .acquiring) == 1 {
            if let result = lanes[0].lock.withLockIfAvailable({ _ in body(value.pointee) }) { return result }
            // Two threads contend for the first time: all lanes are in use from now on.
            lanes[0].lock.withLock { _ in used.store(Self.laneCount, ordering: .releasing) }
        }
        return lanes[Self.laneOfThread].lock.withLock { _ in body(value.pointee) }
    }

    /// The lane of the calling thread, by the thread's number.
    @usableFromInline static var laneOfThread: Int {
        Int(carillon_thread_number()) & (laneCount - 1)
    }

    /// Changes the value, with exclusive access.
    @inlinable package func withLock<Result: Sendable>(_ body: (inout Value) -> Result) -> Result {
        lanes[0].lock.withLock { _ in
            used.load(ordering: .relaxed) == 1 ? body(&value.pointee) : withLanes(from: 1, body)
        }
    }

    /// Takes the locks of the lanes from `lane` on, one after the other, and changes the value.
    @inlinable func withLanes<Result: Sendable>(from lane: Int, _ body: (inout Value) -> Result) -> Result {
        guard lane < Self.laneCount else { return body(&value.pointee) }
        return lanes[lane].lock.withLock { _ in withLanes(from: lane + 1, body) }
    }
}
