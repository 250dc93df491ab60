// SPDX-License-Identifier: Apache-2.0
/// A weak reference to an object with observing methods (C5).
///
/// A weak reference does not report when it becomes empty, and Swift's runtime has no other hook at the end of an
/// object of a foreign class. Therefore the center searches for the registrations of ended objects
/// (`NotificationCenter.State.sweep`). It examines all registrations once for as many insertions; examining some of
/// them with each insertion would not find them sooner.
///
/// Threads: any.
final class Target: @unchecked Sendable {
    // Sendable: the weak reference is guarded by the runtime, and the address never changes.

    /// Nil when the object is gone, and during its `deinit`.
    private(set) weak var object: AnyObject?
    /// The address of the object, which another object may have later.
    let id: ObjectIdentifier

    init(_ object: AnyObject) {
        self.object = object
        id = ObjectIdentifier(object)
    }

    var isOver: Bool { object == nil }

    /// The positions of a registration in the lists of its target.
    struct Slots {
        var all = 0
        var named = 0
        var sent = 0
        var both = 0
    }
}
