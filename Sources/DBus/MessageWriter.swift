// SPDX-License-Identifier: Apache-2.0
import CCarillonDBus

/// A writer that appends arguments, through libdbus, to a message that this process builds and has not sent.
///
/// The caller appends values of the types in the message's signature. Each member for a container calls its `body` with
/// a writer of the contents; an error of `body` abandons the container and the message.
public struct MessageWriter {
    private let message: Message
    private var iterator = DBusMessageIter()

    /// Creates a writer behind the existing values of `message`.
    public init(_ message: Message) {
        self.message = message
        dbus_message_iter_init_append(message.pointer, &iterator)
    }

    private init(_ message: Message, iterator: DBusMessageIter) {
        self.message = message
        self.iterator = iterator
    }

    /// Appends one value of a basic type.
    public mutating func append(_ value: some BasicType) {
        value.append(to: &iterator)
    }

    /// Appends an array of a fixed-size type in one block, such as `ay` or `at`.
    public mutating func append<Element: FixedSizeType>(fixedArray elements: [Element]) {
        container(.array, String(Element.typeCode.letter)) { writer in
            guard !elements.isEmpty else { return }
            elements.withUnsafeBytes { bytes in
                var pointer = bytes.baseAddress
                check(
                    dbus_message_iter_append_fixed_array(
                        &writer.iterator, Element.typeCode.rawValue, &pointer, Int32(elements.count)))
            }
        }
    }

    /// Appends an array with the elements that `body` appends.
    ///
    /// - Parameter signature: The type of one element.
    public mutating func array<Failure: Error>(
        of signature: Signature, _ body: (inout MessageWriter) throws(Failure) -> Void
    ) throws(Failure) {
        try container(.array, signature.rawValue, body)
    }

    /// Appends a dictionary entry; `body` appends a key and a value.
    public mutating func dictEntry<Failure: Error>(
        _ body: (inout MessageWriter) throws(Failure) -> Void
    ) throws(Failure) {
        try container(.dictEntry, nil, body)
    }

    /// Appends a structure with the members that `body` appends.
    public mutating func structure<Failure: Error>(
        _ body: (inout MessageWriter) throws(Failure) -> Void
    ) throws(Failure) {
        try container(.structure, nil, body)
    }

    /// Appends a variant with the one value that `body` appends.
    ///
    /// - Parameter signature: The type of that value.
    public mutating func variant<Failure: Error>(
        of signature: Signature, _ body: (inout MessageWriter) throws(Failure) -> Void
    ) throws(Failure) {
        try container(.variant, signature.rawValue, body)
    }

    /// Appends an entry of a dictionary `a{sv}`: a text as the key, and a variant with the value.
    public mutating func entry<Value: BasicType>(_ key: String, _ value: Value) {
        dictEntry { writer in
            writer.append(key)
            writer.variant(of: Signature(unchecked: String(Value.typeCode.letter))) { $0.append(value) }
        }
    }

    /// Appends a container.
    ///
    /// - Parameter signature: The type of the contents; nil for types whose contents determine it.
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
