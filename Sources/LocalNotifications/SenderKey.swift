/// What senders are compared by (N2): objects by identity, values by equality.
///
/// A key of an object means something only while the object lives; who keeps one holds the object weakly beside it
/// (C12).
enum SenderKey: Hashable {
    case object(ObjectIdentifier)
    case text(String)
    case value(AnyHashable)

    /// Nil for a value that is not `Hashable`: it equals nothing.
    init?(_ sender: Any) {
        if let key = SenderKey.andObject(sender).key { self = key } else { return nil }
    }

    /// The key, and the object that it is of if that is one that can end.
    static func andObject(_ sender: Any) -> (key: SenderKey?, object: AnyObject?) {
        // By type first: casts of an `Any` cost more than all the rest of a post.
        if type(of: sender) == String.self { return (.text(sender as! String), nil) }
        if let object = _openExistential(sender, do: asObject) {
            return (.object(ObjectIdentifier(object)), object)
        }
        if let value = sender as? AnyHashable { return (.value(value), nil) }
        if let type = sender as? Any.Type { return (.object(ObjectIdentifier(type)), nil) }
        return (nil, nil)
    }
}

/// The value itself when it is an object. `as AnyObject` would do, but asks first whether the type is bridged.
private func asObject<Value>(_ value: Value) -> AnyObject? {
    Value.self is AnyClass ? unsafeBitCast(value, to: AnyObject.self) : nil
}
