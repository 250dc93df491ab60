// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonDBus

/// The encoding and decoding of a userInfo dictionary through libdbus, for messages without high volume.
/// ``UserInfoLayout`` and ``UserInfoBytes`` do the same without libdbus.
///
/// Decoding maps each D-Bus integer type to the case of the same width, so that a value that is posted again keeps its
/// type. Arrays of one simple type are encoded as such (`as`, `ax`), others as `av`.
public enum UserInfoCoding {
    /// Reads the next `a{sv}` of a message.
    ///
    /// - Throws: InvalidArgs for a type that is not allowed in property lists.
    public static func read(from reader: inout MessageReader) throws(BusError) -> [String: PropertyList] {
        try readDictionary(&reader)
    }

    /// Checks a userInfo before encoding.
    ///
    /// - Throws: ``CenterError/invalidUserInfo(path:reason:)`` for a string with a NUL character, which D-Bus can't
    ///   carry; ``CenterError/limitExceeded(_:value:)`` beyond the hard maximum of a limit, which every service
    ///   refuses.
    public static func check(_ userInfo: [String: PropertyList]) throws(CenterError) {
        _ = try UserInfoLayout.byteCount(of: userInfo)
        guard let path = pathToNUL(in: userInfo) else { return }
        throw .invalidUserInfo(path: "userInfo" + path, reason: "a D-Bus string can't hold a NUL character")
    }

    /// Checks `userInfo` and appends it as an `a{sv}`.
    ///
    /// - Throws: The errors of ``check(_:)``; then nothing has been written.
    public static func append(
        _ userInfo: [String: PropertyList], to writer: inout MessageWriter
    ) throws(CenterError) {
        try check(userInfo)
        append(entries: userInfo, .variants, to: &writer)
    }

    /// Appends a userInfo that ``check(_:)`` has accepted as an `a{sv}`.
    ///
    /// - Parameter emptyElements: Returns the element type of an empty array under a key. An empty array itself does
    ///   not show its type, and a client may expect for example `as`.
    static func append(
        checked userInfo: [String: PropertyList],
        emptyArraysOf emptyElements: @escaping @Sendable (String) -> Signature, to writer: inout MessageWriter
    ) {
        append(entries: userInfo, Empty(elements: emptyElements), to: &writer)
    }

    /// Appends a checked userInfo, with empty arrays as arrays of variants.
    static func append(checked userInfo: [String: PropertyList], to writer: inout MessageWriter) {
        append(entries: userInfo, .variants, to: &writer)
    }

    /// The element types of empty arrays, by key, and the current key.
    private struct Empty: Sendable {
        static let variants = Empty { _ in "v" }

        let elements: @Sendable (String) -> Signature
        /// The key of the innermost dictionary entry.
        var key = ""

        init(elements: @escaping @Sendable (String) -> Signature) { self.elements = elements }

        /// Returns a copy for the value of an entry with this key.
        func at(_ key: String) -> Empty {
            var empty = self
            empty.key = key
            return empty
        }
    }

    /// Appends entries in this order as an `a{sv}`.
    static func append(_ entries: [(key: String, value: PropertyList)], to writer: inout MessageWriter) {
        append(entries: entries, .variants, to: &writer)
    }

    // MARK: Reading

    private static func readDictionary(_ reader: inout MessageReader) throws(BusError) -> [String: PropertyList] {
        var result: [String: PropertyList] = [:]
        var entries = try reader.readContainer(.array)
        while !entries.isAtEnd {
            var entry = try entries.readContainer(.dictEntry)
            let key = try entry.readString()
            result[key] = try readValue(&entry)
        }
        return result
    }

    private static func readValue(_ reader: inout MessageReader) throws(BusError) -> PropertyList {
        switch reader.nextType {
        case .string: return .string(try reader.read())
        case .boolean: return .boolean(try reader.read())
        case .byte: return .uint8(try reader.read())
        case .int16: return .int16(try reader.read())
        case .uint16: return .uint16(try reader.read())
        case .int32: return .int32(try reader.read())
        case .uint32: return .uint32(try reader.read())
        case .int64: return .int64(try reader.read())
        case .uint64: return .uint64(try reader.read())
        case .double: return .double(try reader.read())
        case .variant:
            var value = try reader.readContainer(.variant)
            return try readValue(&value)
        case .structure where reader.nextSignature == "(x)":
            var date = try reader.readContainer(.structure)
            return .date(microsecondsSince1970: try date.read())
        case .array:
            switch reader.nextElementType {
            case .byte: return .data(try reader.readFixedArray())
            case .dictEntry: return .dictionary(try readDictionary(&reader))
            default:
                var elements = try reader.readContainer(.array)
                var result: [PropertyList] = []
                while !elements.isAtEnd { result.append(try readValue(&elements)) }
                return .array(result)
            }
        default:
            throw .invalidArgs("D-Bus type '\(reader.nextSignature)' is not a property-list type")
        }
    }

    // MARK: Writing

    private static func append(
        entries: some Sequence<(key: String, value: PropertyList)>, _ empty: Empty,
        to writer: inout MessageWriter
    ) {
        writer.array(of: "{sv}") { writer in
            for (key, value) in entries {
                writer.dictEntry { writer in
                    writer.append(key)
                    let empty = empty.at(key)
                    writer.variant(of: signature(of: value, empty)) { append(value, empty, to: &$0) }
                }
            }
        }
    }

    private static func append(_ value: PropertyList, _ empty: Empty, to writer: inout MessageWriter) {
        switch value {
        case .string(let value): writer.append(value)
        case .boolean(let value): writer.append(value)
        case .uint8(let value): writer.append(value)
        case .int16(let value): writer.append(value)
        case .uint16(let value): writer.append(value)
        case .int32(let value): writer.append(value)
        case .uint32(let value): writer.append(value)
        case .int64(let value): writer.append(value)
        case .uint64(let value): writer.append(value)
        case .double(let value): writer.append(value)
        case .data(let bytes): writer.append(fixedArray: bytes)
        case .date(let microseconds): writer.structure { $0.append(microseconds) }
        case .dictionary(let entries): append(entries: entries, empty, to: &writer)
        case .array(let elements):
            let common = elementSignature(of: elements, empty)
            writer.array(of: common ?? "v") { writer in
                for element in elements {
                    if common != nil {
                        append(element, empty, to: &writer)
                    } else {
                        writer.variant(of: signature(of: element, empty)) {
                            append(element, empty, to: &$0)
                        }
                    }
                }
            }
        }
    }

    private static func signature(of value: PropertyList, _ empty: Empty) -> Signature {
        switch value {
        case .string: "s"
        case .boolean: "b"
        case .uint8: "y"
        case .int16: "n"
        case .uint16: "q"
        case .int32: "i"
        case .uint32: "u"
        case .int64: "x"
        case .uint64: "t"
        case .double: "d"
        case .data: "ay"
        case .date: "(x)"
        case .dictionary: "a{sv}"
        case .array(let elements): .array(of: elementSignature(of: elements, empty) ?? "v")
        }
    }

    /// Returns the common type of all elements; nil for an array that must be encoded as an array of variants (`av`).
    /// These are mixed arrays, arrays of arrays, and arrays of `uint8`, which would be decoded as data.
    private static func elementSignature(of elements: [PropertyList], _ empty: Empty) -> Signature? {
        guard let first = elements.first else { return empty.elements(empty.key) }
        switch first {
        case .uint8, .array: return nil
        default:
            let common = signature(of: first, empty)
            return elements.allSatisfy { signature(of: $0, empty) == common } ? common : nil
        }
    }
}

/// Returns the path to a text with a NUL character; nil if there is none. The path is assembled only if there is one.
private func pathToNUL(in value: PropertyList) -> String? {
    switch value {
    case .string(let text): return text.holdsNUL ? "" : nil
    case .array(let elements):
        for (position, element) in elements.enumerated() {
            if let path = pathToNUL(in: element) { return "[\(position)]" + path }
        }
        return nil
    case .dictionary(let entries): return pathToNUL(in: entries)
    default: return nil
    }
}

private func pathToNUL(in entries: [String: PropertyList]) -> String? {
    for (key, value) in entries {
        if key.holdsNUL { return "." + key }
        if let path = pathToNUL(in: value) { return ".\(key)" + path }
    }
    return nil
}
