// SPDX-License-Identifier: Apache-2.0
/// The comparison key of a sender (N2): objects compare by identity, values by equality.
///
/// The key of an object is valid only while the address belongs to that object; the holder of a key ensures that (C12).
enum SenderKey: Hashable {
    case object(ObjectIdentifier)
    case text(String)
    /// Boxed, so that the other cases are copied without examining their content.
    indirect case value(AnyHashable)
    /// A sender that equals nothing, not even itself: each has its own number.
    case incomparable(UInt64)
}

/// A sender in its comparable form. Of an Optional, the wrapped value counts; an empty one is no sender (N2).
struct Sender {
    /// Nil when there is no sender.
    let key: SenderKey?
    /// The sender itself, if it is an object, which can end.
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

    /// Whether the sender can be compared; true also for no sender.
    var isComparable: Bool {
        if case .incomparable = key { false } else { true }
    }
}

// The type is compared first, because casts of an `Any` cost more than the rest of a post.
private func makeSender<Value>(of value: Value) -> Sender {
    if Value.self == String.self { return Sender(comparedBy: .text(unsafeBitCast(value, to: String.self))) }
    if Value.self is AnyClass { return Sender(object: unsafeBitCast(value, to: AnyObject.self)) }
    if let optional = value as? any OptionalSender { return Sender(optional.held) }
    if let hashable = value as? AnyHashable {
        // A value in an `AnyHashable` equals the value itself.
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
