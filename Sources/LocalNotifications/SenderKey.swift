// SPDX-License-Identifier: Apache-2.0
/// The key by which the center compares senders, which are the objects of notifications (N2). Objects are compared by
/// identity, values by equality.
///
/// The key of an object is its address. A later object could get the same address, so the holder of such a key must
/// prevent the reuse of the address while the key is in use (C12).
enum SenderKey: Hashable {
    /// An object, or a metatype.
    case object(ObjectIdentifier)
    case text(String)
    /// A `Hashable` value other than a `String`. Boxed, so that copies of the other cases stay cheap.
    indirect case value(AnyHashable)
    /// A value that is neither an object nor `Hashable`: it equals nothing, not even itself. Each has its own number.
    case incomparable(UInt64)
}

/// The sender of a post or a registration with its comparison key. Of an Optional, the wrapped value counts; an empty
/// one is no sender (N2).
struct Sender {
    /// Nil when there is no sender.
    let key: SenderKey?
    /// The sender itself if it is an object. The center watches objects, because they can end.
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

/// Returns the sender of a value. The static type is compared before any cast, because casts of an `Any` cost more than
/// the remaining work of a post.
private func makeSender<Value>(of value: Value) -> Sender {
    if Value.self == String.self { return Sender(comparedBy: .text(unsafeBitCast(value, to: String.self))) }
    if Value.self is AnyClass { return Sender(object: unsafeBitCast(value, to: AnyObject.self)) }
    if let optional = value as? any OptionalSender { return Sender(optional.held) }
    if let hashable = value as? AnyHashable {
        // An `AnyHashable` counts as the value that it wraps.
        if Value.self == AnyHashable.self { return Sender(hashable.base as Any?) }
        return Sender(comparedBy: .value(hashable))
    }
    if let type = value as? Any.Type { return Sender(comparedBy: .object(ObjectIdentifier(type))) }
    // Neither an object nor Hashable. For a registration, the center replaces the 0 by a number of its own.
    return Sender(comparedBy: .incomparable(0))
}

/// An Optional of any type, in a value of unknown type.
private protocol OptionalSender {
    var held: Any? { get }
}

extension Optional: OptionalSender {
    fileprivate var held: Any? { map { $0 } }
}
