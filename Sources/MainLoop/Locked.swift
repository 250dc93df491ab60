// SPDX-License-Identifier: Apache-2.0
import Synchronization

// The thread sanitizer does not see the standard library's mutex, which is not built with it, and would report all that
// it guards. It does see that of the C library. So `tools/test-threads` builds with the condition below, which puts a
// mutex of the same interface in the other's place; nothing else does.
#if THREAD_SANITIZER
    #if canImport(Glibc)
        import Glibc
    #elseif canImport(Musl)
        import Musl
    #endif

    /// A value behind a lock, as `Synchronization.Mutex`.
    @usableFromInline package struct Locked<Value: ~Copyable>: ~Copyable, @unchecked Sendable {
        // Sendable: the value is touched only under the lock.
        private let mutex: UnsafeMutablePointer<pthread_mutex_t>
        private let value: UnsafeMutablePointer<Value>

        package init(_ initial: consuming sending Value) {
            mutex = .allocate(capacity: 1)
            pthread_mutex_init(mutex, nil)
            value = .allocate(capacity: 1)
            value.initialize(to: initial)
        }

        deinit {
            value.deinitialize(count: 1)
            value.deallocate()
            pthread_mutex_destroy(mutex)
            mutex.deallocate()
        }

        @usableFromInline package borrowing func withLock<Result: ~Copyable, Failure: Error>(
            _ body: (inout sending Value) throws(Failure) -> sending Result
        ) throws(Failure) -> sending Result {
            pthread_mutex_lock(mutex)
            defer { pthread_mutex_unlock(mutex) }
            return try body(&value.pointee)
        }

        /// Nil when another thread has the lock.
        @usableFromInline package borrowing func withLockIfAvailable<Result: ~Copyable, Failure: Error>(
            _ body: (inout sending Value) throws(Failure) -> sending Result
        ) throws(Failure) -> sending Result? {
            guard pthread_mutex_trylock(mutex) == 0 else { return nil }
            defer { pthread_mutex_unlock(mutex) }
            return try body(&value.pointee)
        }
    }

#else
    /// A value behind a lock.
    @usableFromInline package typealias Locked<Value: ~Copyable> = Mutex<Value>
#endif
