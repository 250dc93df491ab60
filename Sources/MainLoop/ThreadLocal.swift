// SPDX-License-Identifier: Apache-2.0
#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// A thread-local variable: each thread has its own object, which is released when the thread ends.
///
/// Use it only for static variables, because its `pthread` key is never freed. Threads: any; each thread sees its own
/// object.
package struct ThreadLocal<Value: AnyObject>: Sendable {
    private let key: pthread_key_t

    package init() {
        var key = pthread_key_t()
        let status = pthread_key_create(&key) { object in
            if let object { Unmanaged<AnyObject>.fromOpaque(object).release() }
        }
        precondition(status == 0, "the process has no key for thread-local data left")
        self.key = key
    }

    /// The calling thread's object.
    package var value: Value? {
        get {
            guard let object = pthread_getspecific(key) else { return nil }
            return Unmanaged<Value>.fromOpaque(object).takeUnretainedValue()
        }
        nonmutating set {
            let old = pthread_getspecific(key)
            pthread_setspecific(key, newValue.map { Unmanaged.passRetained($0).toOpaque() })
            if let old { Unmanaged<Value>.fromOpaque(old).release() }
        }
    }
}
