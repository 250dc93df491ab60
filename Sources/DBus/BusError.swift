// SPDX-License-Identifier: Apache-2.0
import CCarillonDBus

/// An error on the bus: a name for programs and a message for people.
public struct BusError: Error, Hashable, CustomStringConvertible {
    public let name: InterfaceName
    public let message: String

    /// The maximum length of a message, in bytes. A longer message is truncated: it may quote long text of a client.
    static let maxMessageBytes = 8192

    /// - Parameter message: The message. It may quote any text, since a NUL character, which no D-Bus string holds, is
    ///   replaced.
    public init(name: InterfaceName, message: String) {
        self.name = name
        self.message = Self.sendable(message)
    }

    /// Returns the message as D-Bus can carry it: truncated, with `?` for each NUL character.
    private static func sendable(_ message: String) -> String {
        let isLong = message.utf8.count > maxMessageBytes
        guard isLong || message.holdsNUL else { return message }
        let bytes = message.utf8.prefix(maxMessageBytes).map { $0 == 0 ? UInt8(ascii: "?") : $0 }
        return String(decoding: bytes, as: UTF8.self) + (isLong ? "…" : "")
    }

    /// Returns the error with its message truncated to `maxBytes` bytes.
    public func shortened(to maxBytes: Int) -> BusError {
        guard message.utf8.count > maxBytes else { return self }
        return BusError(name: name, message: String(decoding: message.utf8.prefix(maxBytes), as: UTF8.self) + "…")
    }

    public var description: String { "\(name): \(message)" }
}

/// The bus's own errors that this package raises or distinguishes.
extension BusError {
    public static let invalidArgsName: InterfaceName = "org.freedesktop.DBus.Error.InvalidArgs"
    public static let serviceUnknownName: InterfaceName = "org.freedesktop.DBus.Error.ServiceUnknown"
    public static let nameHasNoOwnerName: InterfaceName = "org.freedesktop.DBus.Error.NameHasNoOwner"
    public static let noReplyName: InterfaceName = "org.freedesktop.DBus.Error.NoReply"
    public static let disconnectedName: InterfaceName = "org.freedesktop.DBus.Error.Disconnected"
    public static let limitsExceededName: InterfaceName = "org.freedesktop.DBus.Error.LimitsExceeded"
    public static let notSupportedName: InterfaceName = "org.freedesktop.DBus.Error.NotSupported"

    /// Whether no bus listens at an address, or its socket does not exist.
    public var meansNobodyListens: Bool {
        name == "org.freedesktop.DBus.Error.NoServer" || name == "org.freedesktop.DBus.Error.FileNotFound"
    }

    public static func invalidArgs(_ message: String) -> BusError {
        BusError(name: invalidArgsName, message: message)
    }
    public static func unknownMethod(_ message: String) -> BusError {
        BusError(name: "org.freedesktop.DBus.Error.UnknownMethod", message: message)
    }
    public static func unknownInterface(_ message: String) -> BusError {
        BusError(name: "org.freedesktop.DBus.Error.UnknownInterface", message: message)
    }
    public static func unknownObject(_ message: String) -> BusError {
        BusError(name: "org.freedesktop.DBus.Error.UnknownObject", message: message)
    }
    public static func unknownProperty(_ message: String) -> BusError {
        BusError(name: "org.freedesktop.DBus.Error.UnknownProperty", message: message)
    }
    public static func propertyReadOnly(_ message: String) -> BusError {
        BusError(name: "org.freedesktop.DBus.Error.PropertyReadOnly", message: message)
    }
    public static func disconnected(_ message: String) -> BusError {
        BusError(name: disconnectedName, message: message)
    }
    public static func noServer(_ message: String) -> BusError {
        BusError(name: "org.freedesktop.DBus.Error.NoServer", message: message)
    }
    public static func failed(_ message: String) -> BusError {
        BusError(name: "org.freedesktop.DBus.Error.Failed", message: message)
    }
}

/// Runs a libdbus function that reports errors through a `DBusError`, and throws that error.
func throwingBusError<Result>(
    _ body: (UnsafeMutablePointer<DBusError>) -> Result
) throws(BusError) -> Result {
    var error = DBusError()
    dbus_error_init(&error)
    let result = body(&error)
    guard dbus_error_is_set(&error) == 0 else {
        defer { dbus_error_free(&error) }
        throw BusError(
            name: InterfaceName(unchecked: String(cString: error.name)), message: String(cString: error.message))
    }
    return result
}
