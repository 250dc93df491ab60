// SPDX-License-Identifier: Apache-2.0
import CCarillonDBus

/// A Swift type that corresponds to one basic D-Bus type. ``MessageReader`` and ``MessageWriter`` transfer its values
/// through the iterators of libdbus.
public protocol BasicType {
    /// The D-Bus type, which a reader compares with the type in the message before it calls ``read(from:)``.
    static var typeCode: TypeCode { get }
    /// Returns the value at the iterator, which must have this type. The iterator does not move.
    static func read(from iterator: inout DBusMessageIter) -> Self
    /// Appends the value to the message of the iterator.
    func append(to iterator: inout DBusMessageIter)
}

/// A basic type with the same layout in Swift and on the wire, so that arrays of it are copied in one block.
public protocol FixedSizeType: BasicType, BitwiseCopyable {
    init()
}

extension FixedSizeType {
    public static func read(from iterator: inout DBusMessageIter) -> Self {
        var value = Self()
        withUnsafeMutablePointer(to: &value) { dbus_message_iter_get_basic(&iterator, $0) }
        return value
    }

    public func append(to iterator: inout DBusMessageIter) {
        withUnsafePointer(to: self) { value in
            check(dbus_message_iter_append_basic(&iterator, Self.typeCode.rawValue, value))
        }
    }
}

extension UInt8: FixedSizeType { public static let typeCode = TypeCode.byte }
extension Int16: FixedSizeType { public static let typeCode = TypeCode.int16 }
extension UInt16: FixedSizeType { public static let typeCode = TypeCode.uint16 }
extension Int32: FixedSizeType { public static let typeCode = TypeCode.int32 }
extension UInt32: FixedSizeType { public static let typeCode = TypeCode.uint32 }
extension Int64: FixedSizeType { public static let typeCode = TypeCode.int64 }
extension UInt64: FixedSizeType { public static let typeCode = TypeCode.uint64 }
extension Double: FixedSizeType { public static let typeCode = TypeCode.double }

extension Bool: BasicType {
    public static let typeCode = TypeCode.boolean

    public static func read(from iterator: inout DBusMessageIter) -> Bool {
        var value: dbus_bool_t = 0
        dbus_message_iter_get_basic(&iterator, &value)
        return value != 0
    }

    public func append(to iterator: inout DBusMessageIter) {
        var value: dbus_bool_t = self ? 1 : 0
        check(dbus_message_iter_append_basic(&iterator, Self.typeCode.rawValue, &value))
    }
}

extension String: BasicType {
    public static let typeCode = TypeCode.string

    public static func read(from iterator: inout DBusMessageIter) -> String {
        readText(from: &iterator)
    }

    /// - Precondition: The string holds no NUL character, which no D-Bus string can. Callers refuse such a string
    ///   earlier, with an error that gives its path.
    public func append(to iterator: inout DBusMessageIter) {
        precondition(!holdsNUL, "a D-Bus string can't hold a NUL character")
        appendText(self, .string, to: &iterator)
    }
}

extension ObjectPath: BasicType {
    public static let typeCode = TypeCode.objectPath

    public static func read(from iterator: inout DBusMessageIter) -> ObjectPath {
        ObjectPath(unchecked: readText(from: &iterator))
    }

    public func append(to iterator: inout DBusMessageIter) {
        appendText(rawValue, .objectPath, to: &iterator)
    }
}

extension Signature: BasicType {
    public static let typeCode = TypeCode.signature

    public static func read(from iterator: inout DBusMessageIter) -> Signature {
        Signature(unchecked: readText(from: &iterator))
    }

    public func append(to iterator: inout DBusMessageIter) {
        appendText(rawValue, .signature, to: &iterator)
    }
}

/// An open file descriptor that is closed with its last reference.
public final class FileDescriptor: BasicType, Sendable {
    public static let typeCode = TypeCode.unixFD
    public let rawValue: Int32

    /// Takes ownership of `descriptor`.
    public init(adopting descriptor: Int32) {
        rawValue = descriptor
    }

    deinit {
        if rawValue >= 0 { closeDescriptor(rawValue) }
    }

    /// Returns a duplicate of the descriptor in a message that this process created. A received message gives -1: its
    /// descriptors are kept outside of libdbus, and only ``MessageReader/readDescriptor()`` returns them.
    public static func read(from iterator: inout DBusMessageIter) -> FileDescriptor {
        var value: Int32 = -1
        dbus_message_iter_get_basic(&iterator, &value)
        return FileDescriptor(adopting: value)
    }

    /// Appends a duplicate, which libdbus sends; this descriptor stays open.
    public func append(to iterator: inout DBusMessageIter) {
        var value = rawValue
        check(dbus_message_iter_append_basic(&iterator, Self.typeCode.rawValue, &value))
    }
}

private func readText(from iterator: inout DBusMessageIter) -> String {
    var text: UnsafePointer<CChar>?
    dbus_message_iter_get_basic(&iterator, &text)
    return String(cString: text!)
}

private func appendText(_ text: String, _ code: TypeCode, to iterator: inout DBusMessageIter) {
    text.withCString { pointer in
        var pointer: UnsafePointer<CChar>? = pointer
        check(dbus_message_iter_append_basic(&iterator, code.rawValue, &pointer))
    }
}
