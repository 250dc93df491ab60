import CDBus

/// Appends values to a message that was not sent yet.
public struct MessageWriter {
    private let message: Message
    private var iterator = DBusMessageIter()

    /// A writer behind what `message` already holds.
    public init(_ message: Message) {
        self.message = message
        dbus_message_iter_init_append(message.pointer, &iterator)
    }

    private init(_ message: Message, iterator: DBusMessageIter) {
        self.message = message
        self.iterator = iterator
    }

    public mutating func append(_ value: some BasicType) {
        value.append(to: &iterator)
    }

    /// An array of a fixed-size type in one block, such as `ay` or `at`.
    public mutating func append<Element: FixedSizeType>(fixedArray elements: [Element]) {
        elements.withUnsafeBytes { bytes in
            appendFixedArray(of: Element.typeCode, bytes.baseAddress, count: elements.count)
        }
    }

    /// - Parameter signature: the type of one element.
    public mutating func array<Failure: Error>(
        of signature: Signature, _ body: (inout MessageWriter) throws(Failure) -> Void
    ) throws(Failure) {
        try container(.array, signature.rawValue, body)
    }

    public mutating func dictEntry<Failure: Error>(
        _ body: (inout MessageWriter) throws(Failure) -> Void
    ) throws(Failure) {
        try container(.dictEntry, nil, body)
    }

    public mutating func structure<Failure: Error>(
        _ body: (inout MessageWriter) throws(Failure) -> Void
    ) throws(Failure) {
        try container(.structure, nil, body)
    }

    /// - Parameter signature: the type of the value inside.
    public mutating func variant<Failure: Error>(
        of signature: Signature, _ body: (inout MessageWriter) throws(Failure) -> Void
    ) throws(Failure) {
        try container(.variant, signature.rawValue, body)
    }

    /// An entry `{sv}` of an `a{sv}`.
    public mutating func entry<Value: BasicType>(_ key: String, _ value: Value) {
        dictEntry { writer in
            writer.append(key)
            writer.variant(of: Signature(unchecked: String(Value.typeCode.letter))) { $0.append(value) }
        }
    }

    /// Copies the next value of `reader`, of any type, as it is, and moves `reader` behind it.
    public mutating func copyValue(from reader: inout MessageReader) {
        switch reader.nextType {
        case .string, .objectPath, .signature:
            let code = reader.nextType
            reader.withNextText { text in
                var text: UnsafePointer<CChar>? = text
                check(dbus_message_iter_append_basic(&iterator, code.rawValue, &text))
            }
        case .array where reader.nextElementType.isFixedSize && reader.nextElementType != .unixFD:
            let code = reader.nextElementType
            reader.withNextFixedArray { pointer, count in appendFixedArray(of: code, pointer, count: count) }
        case .array, .structure, .dictEntry, .variant:
            copyContainer(from: &reader)
        case .unixFD:
            FileDescriptor.read(from: &reader.iterator).append(to: &iterator)
        case let code:
            var value: UInt64 = 0  // as large as the largest basic type of a fixed size
            dbus_message_iter_get_basic(&reader.iterator, &value)
            check(dbus_message_iter_append_basic(&iterator, code.rawValue, &value))
        }
        reader.skip()
    }

    private mutating func copyContainer(from reader: inout MessageReader) {
        let code = reader.nextType
        var contents = reader.nextContents()
        let signature: String? =
            switch code {
            // The element type has to come from the array itself: an empty one holds no element to ask.
            case .array: String(reader.nextSignature.rawValue.dropFirst())
            case .variant: contents.nextSignature.rawValue
            default: nil
            }
        container(code, signature) { writer in
            while !contents.isAtEnd { writer.copyValue(from: &contents) }
        }
    }

    private mutating func appendFixedArray(of code: TypeCode, _ pointer: UnsafeRawPointer?, count: Int) {
        container(.array, String(code.letter)) { writer in
            guard count > 0 else { return }
            var pointer = pointer
            check(dbus_message_iter_append_fixed_array(&writer.iterator, code.rawValue, &pointer, Int32(count)))
        }
    }

    private mutating func container<Failure: Error>(
        _ code: TypeCode, _ signature: String?, _ body: (inout MessageWriter) throws(Failure) -> Void
    ) throws(Failure) {
        var contents = MessageWriter(message, iterator: DBusMessageIter())
        check(dbus_message_iter_open_container(&iterator, code.rawValue, signature, &contents.iterator))
        do {
            try body(&contents)
        } catch {
            dbus_message_iter_abandon_container(&iterator, &contents.iterator)
            throw error
        }
        check(dbus_message_iter_close_container(&iterator, &contents.iterator))
    }
}
