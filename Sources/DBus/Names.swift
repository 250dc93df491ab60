// SPDX-License-Identifier: Apache-2.0
import CCarillonDBus
import CarillonBusNames

// Names as D-Bus defines them, each with its syntax check. Names of connections are in `CarillonBusNames`, a module
// that the core uses without a bus.

/// An object path, such as `/org/example/App`.
public struct ObjectPath: BusSyntax {
    public let rawValue: String
    public init(unchecked rawValue: String) { self.rawValue = rawValue }
    public static func isValid(_ text: String) -> Bool { dbus_validate_path(text, nil) != 0 }
}

/// The name of an interface or an error, such as `org.example.App`.
public struct InterfaceName: BusSyntax {
    public let rawValue: String
    public init(unchecked rawValue: String) { self.rawValue = rawValue }
    public static func isValid(_ text: String) -> Bool { dbus_validate_interface(text, nil) != 0 }
}

/// The name of a method or a signal.
public struct MemberName: BusSyntax {
    public let rawValue: String
    public init(unchecked rawValue: String) { self.rawValue = rawValue }
    public static func isValid(_ text: String) -> Bool { dbus_validate_member(text, nil) != 0 }
}

/// A type signature: any number of complete types, or a dictionary entry such as `{sv}`, the element type of an array.
public struct Signature: BusSyntax {
    public let rawValue: String
    public init(unchecked rawValue: String) { self.rawValue = rawValue }
    public static func isValid(_ text: String) -> Bool {
        dbus_signature_validate(text, nil) != 0
            || text.utf8.first == UInt8(ascii: "{") && dbus_signature_validate("a" + text, nil) != 0
    }

    /// Creates the signature of one value of a type with a one-letter code.
    public init(_ type: TypeCode) {
        self.init(unchecked: String(type.letter))
    }

    /// Returns the signature of an array.
    public static func array(of element: Signature) -> Signature {
        Signature(unchecked: "a" + element.rawValue)
    }
}
