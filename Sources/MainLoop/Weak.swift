// SPDX-License-Identifier: Apache-2.0
/// A weak reference that threads share: from a part to what owns it, set once the owner is there.
///
/// Threads: any.
package final class Weak<Object: AnyObject & Sendable>: Sendable {
    private struct Reference {
        weak var object: Object?
    }

    private let reference: Locked<Reference>

    package init(_ object: Object? = nil) {
        reference = Locked(Reference(object: object))
    }

    /// Nil when it was not set, or the object is gone.
    package var object: Object? {
        get { reference.withLock { $0.object } }
        set { reference.withLock { $0.object = newValue } }
    }
}
