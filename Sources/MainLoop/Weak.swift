// SPDX-License-Identifier: Apache-2.0
/// A weak reference that several threads may use. Typically a part of an object refers to its owner by it, and the
/// owner sets it at the end of its own `init`. A closure can capture it before the owner exists.
///
/// Threads: any.
package final class Weak<Object: AnyObject & Sendable>: Sendable {
    private let reference: Locked<WeakReference>

    package init(_ object: Object? = nil) {
        reference = Locked(WeakReference(object: object))
    }

    /// The object; nil before it is set, and after the object is gone.
    package var object: Object? {
        get { reference.withLock { $0.object }.map { unsafeDowncast($0, to: Object.self) } }
        set { reference.withLock { $0.object = newValue } }
    }
}

/// The reference, in a type without parameters: a generic type would cost a lookup of its metadata at each access.
private struct WeakReference {
    weak var object: (any AnyObject & Sendable)?
}
