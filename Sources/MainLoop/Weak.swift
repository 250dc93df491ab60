// SPDX-License-Identifier: Apache-2.0
/// A weak reference that threads share: from a part to what owns it, set once the owner is there.
///
/// Threads: any.
package final class Weak<Object: AnyObject & Sendable>: Sendable {
    private let reference: Locked<WeakReference>

    package init(_ object: Object? = nil) {
        reference = Locked(WeakReference(object: object))
    }

    /// Nil when it was not set, or the object is gone.
    package var object: Object? {
        get { reference.withLock { $0.object }.map { unsafeDowncast($0, to: Object.self) } }
        set { reference.withLock { $0.object = newValue } }
    }
}

/// Of no type in particular, so that nobody looks for the metadata of a generic one each time.
private struct WeakReference {
    weak var object: (any AnyObject & Sendable)?
}
