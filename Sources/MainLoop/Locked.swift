// SPDX-License-Identifier: Apache-2.0
import CCarillonGLib
import Synchronization

/// A value behind a lock, as `Synchronization.Mutex`, whose order the thread sanitizer knows.
///
/// The sanitizer does not see the standard library's mutex, which is not built with it, and would report all that it guards, in
/// every program that is built with this package. So it is told; without it that costs the look at an address.
@frozen @usableFromInline package struct Locked<Value: ~Copyable>: ~Copyable, Sendable {
    @usableFromInline let mutex: Mutex<Value>

    @inlinable package init(_ initial: consuming sending Value) {
        mutex = Mutex(initial)
    }

    @inlinable package borrowing func withLock<Result: ~Copyable, Failure: Error>(
        _ body: (inout sending Value) throws(Failure) -> sending Result
    ) throws(Failure) -> sending Result {
        try mutex.withLock { value throws(Failure) in
            sanitizer(carillon_tsan_acquire)
            defer { sanitizer(carillon_tsan_release) }
            return try body(&value)
        }
    }

    /// Nil when another thread has the lock.
    @inlinable package borrowing func withLockIfAvailable<Result: ~Copyable, Failure: Error>(
        _ body: (inout sending Value) throws(Failure) -> sending Result
    ) throws(Failure) -> sending Result? {
        try mutex.withLockIfAvailable { value throws(Failure) in
            sanitizer(carillon_tsan_acquire)
            defer { sanitizer(carillon_tsan_release) }
            return try body(&value)
        }
    }

    /// The lock is known to it by its address.
    @inlinable borrowing func sanitizer(_ tell: (UnsafeRawPointer) -> Void) {
        withUnsafePointer(to: mutex) { tell(UnsafeRawPointer($0)) }
    }
}
