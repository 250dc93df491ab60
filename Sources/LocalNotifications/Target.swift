// SPDX-License-Identifier: Apache-2.0
/// A weak reference to an object with observing methods, shared by all registrations of that object (C5).
///
/// Swift does not report the end of an object of a foreign class. Therefore the center searches for the registrations
/// of ended objects from time to time (`NotificationCenter.State.sweep`). One search follows after as many insertions
/// as it has registrations to examine.
///
/// Threads: any.
final class Target: @unchecked Sendable {
    // Sendable: the weak reference is guarded by the runtime, and the address never changes.

    /// Nil when the object is gone, and during its `deinit`.
    private(set) weak var object: AnyObject?
    /// The address of the object. Another object may have it after the end of this one.
    let id: ObjectIdentifier

    init(_ object: AnyObject) {
        self.object = object
        id = ObjectIdentifier(object)
    }

    /// Whether the object has ended or its `deinit` has begun.
    var isOver: Bool { object == nil }

    /// The positions of a registration in the lists of its target (``TargetRegistrations``): among all registrations,
    /// and among those with the same name, the same sender, or both.
    struct Slots {
        var all = 0
        var named = 0
        var sent = 0
        var both = 0
    }
}
