// SPDX-License-Identifier: Apache-2.0
/// A weak reference that threads share: from a part to its owner, set once the owner exists.
///
/// Threads: any.
package final class Weak<Object: AnyObject & Sendable>: Sendable {
    private let reference: Locked<WeakReference>

    package init(_ object: Object? = nil) {
        reference = Locked(WeakReference(object: object))
    }

    /// Nil when it was not set, or when the object is gone.
    package var object: Object? {
        get { reference.withLock { $0.object }.map { unsafeDowncast($0, to: Object.self) } }
        set { reference.withLock { $0.object = newValue } }
    }
}

/// A reference without a type parameter, which avoids the lookup of generic metadata for each access.
private struct WeakReference {
    weak var object: (any AnyObject & Sendable)?
}
