// SPDX-License-Identifier: Apache-2.0
import CCarillonGLib
import Synchronization

/// A value behind a lock, like `Synchronization.Mutex`, with support for the thread sanitizer. All modules use it.
///
/// The standard library is not built with the sanitizer, so the sanitizer does not see its mutex. It would report each
/// access to a guarded value as a data race, in every program that uses this package. Therefore this type reports each
/// locking and unlocking to the sanitizer. Without the sanitizer, a report costs one comparison.
@frozen @usableFromInline package struct Locked<Value: ~Copyable>: ~Copyable, Sendable {
    @usableFromInline let mutex: Mutex<Value>

    @inlinable @inline(__always) package init(_ initial: consuming sending Value) {
        mutex = Mutex(initial)
    }

    @inlinable @inline(__always) package borrowing func withLock<Result: ~Copyable, Failure: Error>(
        _ body: (inout sending Value) throws(Failure) -> sending Result
    ) throws(Failure) -> sending Result {
        try mutex.withLock { value throws(Failure) in
            // The lock's address identifies it to the sanitizer: taking the value's address would count as an access.
            withUnsafePointer(to: mutex) { carillon_tsan_acquire($0) }
            defer { withUnsafePointer(to: mutex) { carillon_tsan_release($0) } }
            return try body(&value)
        }
    }

    /// Like ``withLock(_:)``, but returns nil without waiting when another thread has the lock.
    @inlinable @inline(__always) package borrowing func withLockIfAvailable<Result: ~Copyable, Failure: Error>(
        _ body: (inout sending Value) throws(Failure) -> sending Result
    ) throws(Failure) -> sending Result? {
        try mutex.withLockIfAvailable { value throws(Failure) in
            // The lock's address identifies it to the sanitizer: taking the value's address would count as an access.
            withUnsafePointer(to: mutex) { carillon_tsan_acquire($0) }
            defer { withUnsafePointer(to: mutex) { carillon_tsan_release($0) } }
            return try body(&value)
        }
    }
}
