// SPDX-License-Identifier: Apache-2.0
import CCarillonDBus
import CarillonBusNames

/// A reader of the arguments of a message in order, or of the values in a container such as an array.
///
/// It is a cursor over an object of libdbus, for all messages without high volume; ``MarshalledReader`` serves the
/// others. Each read checks the type first, and throws InvalidArgs for another type, so that an untrusted message
/// cannot be misinterpreted. libdbus has validated the encoding: lengths, UTF-8, and at most 64 nested containers.
public struct MessageReader {
    private let message: Message  // keeps the memory of the iterator alive
    private var iterator = DBusMessageIter()

    /// Creates a reader of the arguments of `message`.
    public init(_ message: Message) {
        self.message = message
        dbus_message_iter_init(message.pointer, &iterator)
    }

    /// Creates a reader of the values in the container at an iterator.
    private init(_ message: Message, container: inout DBusMessageIter) {
        self.message = message
        dbus_message_iter_recurse(&container, &iterator)
    }

    /// The type of the next value; ``TypeCode/end`` behind the last.
    public var nextType: TypeCode {
        mutating get { TypeCode(rawValue: dbus_message_iter_get_arg_type(&iterator)) }
    }

    /// The element type of the next value, which must be an array.
    public var nextElementType: TypeCode {
        mutating get { TypeCode(rawValue: dbus_message_iter_get_element_type(&iterator)) }
    }

    public var isAtEnd: Bool {
        mutating get { nextType == .end }
    }

    /// The signature of the next value.
    public var nextSignature: Signature {
        mutating get {
            guard !isAtEnd, let text = dbus_message_iter_get_signature(&iterator) else { return "" }
            defer { dbus_free(text) }
            return Signature(unchecked: String(cString: text))
        }
    }

    /// Skips the next value.
    public mutating func skip() {
        dbus_message_iter_next(&iterator)
    }

    /// Reads the next value, which must have this type.
    public mutating func read<Value: BasicType>(_ type: Value.Type = Value.self) throws(BusError) -> Value {
        try expect(Value.typeCode)
        let value = Value.read(from: &iterator)
        dbus_message_iter_next(&iterator)
        return value
    }

    public mutating func readString() throws(BusError) -> String {
        try read(String.self)
    }

    /// Reads a file descriptor, which has to be the only argument of its message.
    ///
    /// - Throws: InvalidArgs, also if no descriptor was received, or the connection accepts none
    ///   (``Connection/takeDescriptors()``).
    public mutating func readDescriptor() throws(BusError) -> FileDescriptor {
        try expect(.unixFD)
        let descriptor = message.arrivedDescriptor ?? FileDescriptor.read(from: &iterator)
        guard descriptor.rawValue >= 0 else { throw .invalidArgs("the message has no file descriptor") }
        dbus_message_iter_next(&iterator)
        return descriptor
    }

    /// Reads the unique name of a connection.
    ///
    /// - Throws: InvalidArgs, also for a string that is not a unique name.
    public mutating func readUniqueName() throws(BusError) -> UniqueName {
        let text = try readString()
        guard let name = UniqueName(rawValue: text) else {
            throw .invalidArgs("'\(text.prefix(64))' is not a unique name of a connection")
        }
        return name
    }

    /// Calls `body` with the elements of the next value, which must be an array of a fixed-size type. They are valid
    /// only inside `body`. This reader does not move.
    public mutating func withNextFixedArray<Result>(_ body: (UnsafeRawPointer?, _ count: Int) -> Result) -> Result {
        var elements = DBusMessageIter()
        dbus_message_iter_recurse(&iterator, &elements)
        var pointer: UnsafeRawPointer?
        var count: Int32 = 0
        dbus_message_iter_get_fixed_array(&elements, &pointer, &count)
        return body(pointer, Int(count))
    }

    /// Reads an array of a fixed-size type in one block, such as `ay`.
    public mutating func readFixedArray<Element: FixedSizeType>(
        of type: Element.Type = Element.self
    ) throws(BusError) -> [Element] {
        try expect(.array)
        guard nextElementType == Element.typeCode else {
            throw .invalidArgs("expected an array of '\(Element.typeCode.letter)', got '\(nextSignature)'")
        }
        let elements = withNextFixedArray { pointer, count in
            guard let pointer else { return [Element]() }
            return Array(UnsafeBufferPointer(start: pointer.assumingMemoryBound(to: Element.self), count: count))
        }
        dbus_message_iter_next(&iterator)
        return elements
    }

    /// Returns a reader of the next value, a container, and moves this reader behind it.
    public mutating func readContainer(_ type: TypeCode) throws(BusError) -> MessageReader {
        try expect(type)
        let contents = nextContents()
        dbus_message_iter_next(&iterator)
        return contents
    }

    /// Returns a reader of the next value, which must be a container. This reader does not move.
    public mutating func nextContents() -> MessageReader {
        MessageReader(message, container: &iterator)
    }

    private mutating func expect(_ type: TypeCode) throws(BusError) {
        guard nextType == type else {
            throw .invalidArgs("expected type '\(type.letter)', got '\(nextSignature)'")
        }
    }
}

extension Message {
    /// The error of an error message; nil for other kinds.
    public var error: BusError? {
        guard let name = errorName else { return nil }
        var reader = MessageReader(self)
        return BusError(name: name, message: (try? reader.readString()) ?? "")
    }
}
