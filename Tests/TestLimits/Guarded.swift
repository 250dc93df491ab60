// SPDX-License-Identifier: Apache-2.0
import Glibc

/// A value behind a lock that the thread sanitizer knows, unlike `Mutex`. `Locked` of MainLoop is such a one; it would bring GLib
/// to the tests that need none.
///
/// Unchecked because the compiler can't see that `value` is touched only while the lock is held.
final class Guarded<Value>: @unchecked Sendable {
    private let lock = UnsafeMutablePointer<pthread_mutex_t>.allocate(capacity: 1)
    private var value: Value

    init(_ value: sending Value) {
        self.value = value
        pthread_mutex_init(lock, nil)
    }

    deinit {
        pthread_mutex_destroy(lock)
        lock.deallocate()
    }

    func withLock<Result>(_ body: (inout Value) throws -> Result) rethrows -> Result {
        pthread_mutex_lock(lock)
        defer { pthread_mutex_unlock(lock) }
        return try body(&value)
    }
}
