import CDBus

/// A name that the D-Bus specification gives a syntax. libdbus treats a malformed one as a programming error, so
/// every name is checked here once and carried as a type of its own from then on.
public protocol BusSyntax: RawRepresentable, Hashable, Sendable, CustomStringConvertible, ExpressibleByStringLiteral
where RawValue == String, StringLiteralType == String {
    /// Takes `rawValue` as it is; callers have checked it.
    init(unchecked rawValue: String)
    /// Whether `text` follows the syntax.
    static func isValid(_ text: String) -> Bool
}

extension BusSyntax {
    /// Nil when `rawValue` does not follow the syntax.
    public init?(rawValue: String) {
        guard !rawValue.utf8.contains(0), Self.isValid(rawValue) else { return nil }
        self.init(unchecked: rawValue)
    }

    /// A literal with the wrong syntax is a programmer's error. Debug builds check; literals are on the hot path.
    public init(stringLiteral value: String) {
        assert(Self.isValid(value), "not a valid \(Self.self): \(value)")
        self.init(unchecked: value)
    }

    public var description: String { rawValue }
}

/// A unique (`:1.42`) or well-known (`org.example.App`) connection name.
public struct BusName: BusSyntax {
    public let rawValue: String
    public init(unchecked rawValue: String) { self.rawValue = rawValue }
    public static func isValid(_ text: String) -> Bool { dbus_validate_bus_name(text, nil) != 0 }
    /// Whether the bus gave this name to exactly one connection.
    public var isUnique: Bool { rawValue.utf8.first == UInt8(ascii: ":") }
}

/// An object path, such as `/org/example/App`.
public struct ObjectPath: BusSyntax {
    public let rawValue: String
    public init(unchecked rawValue: String) { self.rawValue = rawValue }
    public static func isValid(_ text: String) -> Bool { dbus_validate_path(text, nil) != 0 }
}

/// An interface's or an error's name, such as `org.example.App`.
public struct InterfaceName: BusSyntax {
    public let rawValue: String
    public init(unchecked rawValue: String) { self.rawValue = rawValue }
    public static func isValid(_ text: String) -> Bool { dbus_validate_interface(text, nil) != 0 }
}

/// A method's or a signal's name.
public struct MemberName: BusSyntax {
    public let rawValue: String
    public init(unchecked rawValue: String) { self.rawValue = rawValue }
    public static func isValid(_ text: String) -> Bool { dbus_validate_member(text, nil) != 0 }
}

/// A type signature: any number of complete types, or the dict entry that is the element of an array.
public struct Signature: BusSyntax {
    public let rawValue: String
    public init(unchecked rawValue: String) { self.rawValue = rawValue }
    public static func isValid(_ text: String) -> Bool {
        dbus_signature_validate(text, nil) != 0
            || text.utf8.first == UInt8(ascii: "{") && dbus_signature_validate("a" + text, nil) != 0
    }
}
