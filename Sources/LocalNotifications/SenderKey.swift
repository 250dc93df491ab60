// SPDX-License-Identifier: Apache-2.0
/// What senders are compared by (N2): objects by identity, values by equality.
///
/// A key of an object means something only while its address is that object's; who keeps one sees to that (C12).
enum SenderKey: Hashable {
    case object(ObjectIdentifier)
    case text(String)
    /// In a box of its own, so that all others are copied without asking what is in it.
    indirect case value(AnyHashable)
    /// Of a sender that equals nothing, not even itself: each has a number of its own.
    case incomparable(UInt64)
}

/// A sender as it is compared. What an Optional holds counts, and an empty one is no sender (N2).
struct Sender {
    /// Nil when there is no sender.
    let key: SenderKey?
    /// The sender itself, if it is an object that can end.
    let object: AnyObject?

    init(_ sender: Any?) {
        guard let sender else {
            key = nil
            object = nil
            return
        }
        self = _openExistential(sender, do: makeSender)
    }

    init(object: AnyObject) {
        key = .object(ObjectIdentifier(object))
        self.object = object
    }

    /// A sender that is no object.
    init(comparedBy key: SenderKey) {
        self.key = key
        object = nil
    }

    /// Whether it can be compared at all, or is none.
    var isComparable: Bool {
        if case .incomparable = key { false } else { true }
    }
}

// By type first: casts of an `Any` cost more than all the rest of a post.
private func makeSender<Value>(of value: Value) -> Sender {
    if Value.self == String.self { return Sender(comparedBy: .text(unsafeBitCast(value, to: String.self))) }
    if Value.self is AnyClass { return Sender(object: unsafeBitCast(value, to: AnyObject.self)) }
    if let optional = value as? any OptionalSender { return Sender(optional.held) }
    if let hashable = value as? AnyHashable {
        // A value in a box of its own equals the value.
        if Value.self == AnyHashable.self { return Sender(hashable.base as Any?) }
        return Sender(comparedBy: .value(hashable))
    }
    if let type = value as? Any.Type { return Sender(comparedBy: .object(ObjectIdentifier(type))) }
    // Neither an object nor Hashable.
    return Sender(comparedBy: .incomparable(0))
}

private protocol OptionalSender {
    var held: Any? { get }
}

extension Optional: OptionalSender {
    fileprivate var held: Any? { map { $0 } }
}
