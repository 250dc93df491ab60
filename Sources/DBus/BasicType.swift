import CDBus

/// A type of the D-Bus specification, by its code in signatures.
public struct TypeCode: RawRepresentable, Hashable, Sendable {
    /// The ASCII code of the letter.
    public let rawValue: Int32

    public init(rawValue: Int32) {
        self.rawValue = rawValue
    }

    private init(_ letter: Unicode.Scalar) {
        rawValue = Int32(letter.value)
    }

    /// Behind the last value.
    public static let end = TypeCode(rawValue: 0)
    public static let byte = TypeCode("y")
    public static let boolean = TypeCode("b")
    public static let int16 = TypeCode("n")
    public static let uint16 = TypeCode("q")
    public static let int32 = TypeCode("i")
    public static let uint32 = TypeCode("u")
    public static let int64 = TypeCode("x")
    public static let uint64 = TypeCode("t")
    public static let double = TypeCode("d")
    public static let string = TypeCode("s")
    public static let objectPath = TypeCode("o")
    public static let signature = TypeCode("g")
    public static let unixFD = TypeCode("h")
    public static let array = TypeCode("a")
    public static let variant = TypeCode("v")
    /// Not in signatures, where it is written `(…)`.
    public static let structure = TypeCode("r")
    /// Not in signatures, where it is written `{…}`.
    public static let dictEntry = TypeCode("e")

    /// The letter.
    public var letter: Character { Character(Unicode.Scalar(UInt8(truncatingIfNeeded: rawValue))) }

    /// Whether arrays of it can be read and written in one block.
    public var isFixedSize: Bool { dbus_type_is_valid(rawValue) != 0 && dbus_type_is_fixed(rawValue) != 0 }

    /// Bytes on the wire, which is also the alignment; 0 for types without a fixed size.
    public var fixedSize: Int {
        switch self {
        case .byte: 1
        case .int16, .uint16: 2
        case .boolean, .int32, .uint32, .unixFD: 4
        case .int64, .uint64, .double: 8
        default: 0
        }
    }
}

/// A Swift type that stands for one basic D-Bus type.
public protocol BasicType {
    static var typeCode: TypeCode { get }
    static func read(from iterator: inout DBusMessageIter) -> Self
    func append(to iterator: inout DBusMessageIter)
}

/// A basic type whose Swift layout is its wire layout.
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

    /// - Precondition: the string holds no NUL character, which no D-Bus string can. Callers refuse it before, with
    ///   an error that says where it is.
    public func append(to iterator: inout DBusMessageIter) {
        precondition(!utf8.contains(0), "a D-Bus string can't hold a NUL character")
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

/// An open file descriptor, closed when the last reference goes.
public final class FileDescriptor: BasicType {
    public static let typeCode = TypeCode.unixFD
    public let rawValue: Int32

    /// Takes over `descriptor`.
    public init(adopting descriptor: Int32) {
        rawValue = descriptor
    }

    deinit {
        if rawValue >= 0 { closeDescriptor(rawValue) }
    }

    /// libdbus hands out a duplicate, which is ours to close; -1 when there are no descriptors left.
    public static func read(from iterator: inout DBusMessageIter) -> FileDescriptor {
        var value: Int32 = -1
        dbus_message_iter_get_basic(&iterator, &value)
        return FileDescriptor(adopting: value)
    }

    /// libdbus sends a duplicate; this one stays open.
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
