// SPDX-License-Identifier: Apache-2.0
/// An object whose methods are called: held weakly (C5).
///
/// A weak reference does not say when it becomes empty, and the runtime of Swift has no other hook at the end of an object
/// of somebody else's class. So what is left of the registrations is looked for (`NotificationCenter.State.sweep`): all of
/// them, once for as many insertions. Looking at some with each insertion would not find them sooner.
///
/// Threads: any.
final class Target: @unchecked Sendable {
    // Sendable: the weak reference is guarded by the runtime, and the address never changes.

    /// Nil when it is over, and while it ends.
    private(set) weak var object: AnyObject?
    /// Its address, which may be another's when it is over.
    let id: ObjectIdentifier

    init(_ object: AnyObject) {
        self.object = object
        id = ObjectIdentifier(object)
    }

    var isOver: Bool { object == nil }

    /// Where a registration stands in each of the lists of its target.
    struct Slots {
        var all = 0
        var named = 0
        var sent = 0
        var both = 0
    }
}
