// SPDX-License-Identifier: Apache-2.0
import CCarillonGLib
import Synchronization

/// A value behind a lock, like `Synchronization.Mutex`, with an order that the thread sanitizer knows.
///
/// The sanitizer does not see the standard library's mutex, which is not built with it. It would report all guarded
/// values as races, in every program that is built with this package. Therefore each lock is announced to it. Without
/// the sanitizer, this costs the check of an address.
@frozen @usableFromInline package struct Locked<Value: ~Copyable>: ~Copyable, Sendable {
    @usableFromInline let mutex: Mutex<Value>

    @inlinable @inline(__always) package init(_ initial: consuming sending Value) {
        mutex = Mutex(initial)
    }

    @inlinable @inline(__always) package borrowing func withLock<Result: ~Copyable, Failure: Error>(
        _ body: (inout sending Value) throws(Failure) -> sending Result
    ) throws(Failure) -> sending Result {
        try mutex.withLock { value throws(Failure) in
            // The address of the lock is used, because reading the address of the value is already an access.
            withUnsafePointer(to: mutex) { carillon_tsan_acquire($0) }
            defer { withUnsafePointer(to: mutex) { carillon_tsan_release($0) } }
            return try body(&value)
        }
    }

    /// Returns nil when another thread has the lock.
    @inlinable @inline(__always) package borrowing func withLockIfAvailable<Result: ~Copyable, Failure: Error>(
        _ body: (inout sending Value) throws(Failure) -> sending Result
    ) throws(Failure) -> sending Result? {
        try mutex.withLockIfAvailable { value throws(Failure) in
            // The address of the lock is used, because reading the address of the value is already an access.
            withUnsafePointer(to: mutex) { carillon_tsan_acquire($0) }
            defer { withUnsafePointer(to: mutex) { carillon_tsan_release($0) } }
            return try body(&value)
        }
    }
}
