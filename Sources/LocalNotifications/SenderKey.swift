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
        if let text = sender as? String, type(of: sender) == String.self {
            self = .text(text)
        } else if type(of: sender) is AnyClass {
            self = .object(ObjectIdentifier(sender as AnyObject))
        } else if let value = sender as? AnyHashable {
            self = .value(value)
        } else if let type = sender as? Any.Type {
            self = .object(ObjectIdentifier(type))
        } else {
            return nil
        }
    }

    /// The object that an identity is one of, if it is one that can end.
    static func mortal(_ sender: Any?) -> AnyObject? {
        guard let sender, type(of: sender) is AnyClass else { return nil }
        return sender as AnyObject
    }
}
