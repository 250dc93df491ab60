// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonDBus

/// The encoding of a userInfo as an `a{sv}` without libdbus, into a buffer of the caller. Posts and notifications are
/// encoded with it. The bytes are the same that ``UserInfoCoding`` appends.
///
/// There are two passes. The first one computes the size, and refuses values beyond the limits of size and depth. The
/// second one writes the bytes, and finds NUL characters while it copies texts.
public enum UserInfoLayout {
    /// Returns the size in bytes of the encoded userInfo, including the padding in front of it if it begins at
    /// `offset`.
    ///
    /// - Throws: ``CenterError/limitExceeded(_:value:)`` beyond the hard maximum of a limit, which every service
    ///   refuses.
    public static func byteCount(
        of userInfo: [String: PropertyList], at offset: Int = 0
    ) throws(CenterError) -> Int {
        try byteCount(ofEntries: userInfo, at: offset)
    }

    /// Returns the same for entries in this order.
    static func byteCount(
        ofEntries userInfo: some Sequence<(key: String, value: PropertyList)>, at offset: Int
    ) throws(CenterError) -> Int {
        var measure = Measure(offset: offset)
        try measure.add(userInfo, depth: 0)
        return measure.offset - offset
    }

    /// Appends a userInfo.
    ///
    /// - Parameter bytes: A buffer with space for the number of bytes from ``byteCount(of:at:)``.
    /// - Throws: ``CenterError/invalidUserInfo(path:reason:)`` for a text with a NUL character, which D-Bus can't
    ///   carry. The caller then has to discard the appended bytes.
    public static func append(
        _ userInfo: [String: PropertyList], to bytes: inout MarshalledBytes
    ) throws(CenterError) {
        try append(checking: userInfo, to: &bytes)
    }

    /// The same for entries in this order.
    static func append(
        checking userInfo: some Sequence<(key: String, value: PropertyList)>, to bytes: inout MarshalledBytes
    ) throws(CenterError) {
        guard !append(entries: userInfo, to: &bytes) else { return }
        // There is a NUL character. This call finds its path and throws.
        try UserInfoCoding.check(Dictionary(userInfo.map { ($0.key, $0.value) }) { $1 })
        preconditionFailure("there is a NUL character")
    }

    /// Appends entries in this order as an `a{sv}`.
    ///
    /// - Returns: Whether all texts are free of NUL characters; otherwise the caller has to discard the appended bytes.
    static func append(
        entries: some Sequence<(key: String, value: PropertyList)>, to bytes: inout MarshalledBytes
    ) -> Bool {
        var writer = Writer()
        writer.append(entries, to: &bytes)
        return !writer.holdsNUL
    }

    /// Returns the encoded `a{sv}`, for an offset that is aligned to 8 bytes.
    ///
    /// - Throws: The errors of ``byteCount(of:at:)`` and ``append(_:to:)``.
    public static func bytes(of userInfo: [String: PropertyList]) throws(CenterError) -> [UInt8] {
        var fault: CenterError?
        let bytes = MarshalledBytes.make(atMost: try byteCount(of: userInfo)) { bytes in
            do throws(CenterError) { try append(userInfo, to: &bytes) } catch { fault = error }
        }
        if let fault { throw fault }
        return bytes
    }

    fileprivate static let maxBytes = Limits.row(.userInfoBytes).hardMaximum
    fileprivate static let maxDepth = Limits.row(.userInfoDepth).hardMaximum
}

/// The D-Bus type of a value.
private enum WireKind {
    case string, boolean, uint8, int16, uint16, int32, uint32, int64, uint64, double, data, date, array, dictionary

    init(_ value: PropertyList) {
        self =
            switch value {
            case .string: .string
            case .boolean: .boolean
            case .uint8: .uint8
            case .int16: .int16
            case .uint16: .uint16
            case .int32: .int32
            case .uint32: .uint32
            case .int64: .int64
            case .uint64: .uint64
            case .double: .double
            case .data: .data
            case .date: .date
            case .array: .array
            case .dictionary: .dictionary
            }
    }

    /// The common type of all elements; nil for an array that must be encoded as an array of variants (`av`). These are
    /// mixed and empty arrays, arrays of arrays, and arrays of `uint8`, which would be decoded as data.
    init?(ofAll elements: [PropertyList]) {
        guard let first = elements.first.map({ WireKind($0) }), first != .uint8, first != .array else { return nil }
        for element in elements.dropFirst() where WireKind(element) != first { return nil }
        self = first
    }

    /// The signature of a value of this type; for an array, that of an array of variants.
    var signature: StaticString {
        switch self {
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
        case .array: "av"
        case .dictionary: "a{sv}"
        }
    }

    /// The signature of an array of values of this type.
    var arraySignature: StaticString {
        switch self {
        case .string: "as"
        case .boolean: "ab"
        case .uint8: "ay"
        case .int16: "an"
        case .uint16: "aq"
        case .int32: "ai"
        case .uint32: "au"
        case .int64: "ax"
        case .uint64: "at"
        case .double: "ad"
        case .data: "aay"
        case .date: "a(x)"
        case .array: "aav"
        case .dictionary: "aa{sv}"
        }
    }

    /// The alignment of a value, in bytes.
    var alignment: Int {
        switch self {
        case .uint8: 1
        case .int16, .uint16: 2
        case .string, .boolean, .int32, .uint32, .data, .array, .dictionary: 4
        case .int64, .uint64, .double, .date: 8
        }
    }
}

/// The first pass: adds up the size, with the same traversal as ``Writer``. The argument `depth` is the number of
/// containers around a value.
private struct Measure {
    private(set) var offset: Int
    /// The offset beyond which the userInfo is too large.
    private let end: Int

    init(offset: Int) {
        self.offset = offset
        end = offset + Int(UserInfoLayout.maxBytes)
    }

    mutating func add(
        _ entries: some Sequence<(key: String, value: PropertyList)>, depth: Int
    ) throws(CenterError) {
        try beginArray(alignedTo: 8, depth: depth)
        for (key, value) in entries {
            align(to: 8)
            add(key)
            try add(variant: value, depth: depth + 1)
        }
        try checkSize()
    }

    private mutating func add(variant value: PropertyList, depth: Int) throws(CenterError) {
        guard case .array(let elements) = value else {
            offset += 2 + WireKind(value).signature.utf8CodeUnitCount
            return try add(value, depth: depth)
        }
        let kind = WireKind(ofAll: elements)
        offset += 2 + (kind?.arraySignature ?? "av").utf8CodeUnitCount
        try beginArray(alignedTo: kind?.alignment ?? 1, depth: depth)
        for element in elements {
            if kind == nil { try add(variant: element, depth: depth + 1) } else { try add(element, depth: depth + 1) }
        }
        try checkSize()
    }

    /// - Parameter value: A value other than an array.
    private mutating func add(_ value: PropertyList, depth: Int) throws(CenterError) {
        switch value {
        case .string(let text): add(text)
        case .data(let bytes):
            add(fixed: 4)
            offset += bytes.count
        case .dictionary(let entries): try add(entries, depth: depth)
        case .uint8: offset += 1
        case .int16, .uint16: add(fixed: 2)
        case .boolean, .int32, .uint32: add(fixed: 4)
        case .int64, .uint64, .double, .date: add(fixed: 8)
        case .array: preconditionFailure("arrays are in variants")
        }
        try checkSize()
    }

    private mutating func beginArray(alignedTo alignment: Int, depth: Int) throws(CenterError) {
        guard depth < UserInfoLayout.maxDepth else {
            throw .limitExceeded(.userInfoDepth, value: UserInfoLayout.maxDepth)
        }
        add(fixed: 4)
        align(to: alignment)
    }

    private mutating func add(_ text: String) {
        add(fixed: 4)
        offset += text.utf8.count + 1
    }

    private mutating func add(fixed size: Int) {
        align(to: size)
        offset += size
    }

    private mutating func align(to alignment: Int) {
        offset = (offset + alignment - 1) & ~(alignment - 1)
    }

    private func checkSize() throws(CenterError) {
        guard offset <= end else { throw .limitExceeded(.userInfoBytes, value: UserInfoLayout.maxBytes) }
    }
}

/// The second pass: writes the bytes.
private struct Writer {
    /// Whether a text with a NUL character was found.
    private(set) var holdsNUL = false

    mutating func append(
        _ entries: some Sequence<(key: String, value: PropertyList)>, to bytes: inout MarshalledBytes
    ) {
        let array = bytes.beginArray(alignedTo: 8)
        for (key, value) in entries {
            bytes.beginStructure()
            append(key, to: &bytes)
            append(variant: value, to: &bytes)
        }
        bytes.end(array)
    }

    private mutating func append(variant value: PropertyList, to bytes: inout MarshalledBytes) {
        guard case .array(let elements) = value else {
            bytes.append(signature: WireKind(value).signature)
            return append(value, to: &bytes)
        }
        let kind = WireKind(ofAll: elements)
        bytes.append(signature: kind?.arraySignature ?? "av")
        let array = bytes.beginArray(alignedTo: kind?.alignment ?? 1)
        for element in elements {
            if kind == nil { append(variant: element, to: &bytes) } else { append(element, to: &bytes) }
        }
        bytes.end(array)
    }

    /// - Parameter value: A value other than an array.
    private mutating func append(_ value: PropertyList, to bytes: inout MarshalledBytes) {
        switch value {
        case .string(let text): append(text, to: &bytes)
        case .boolean(let value): bytes.append(value)
        case .uint8(let value): bytes.append(value)
        case .int16(let value): bytes.append(value)
        case .uint16(let value): bytes.append(value)
        case .int32(let value): bytes.append(value)
        case .uint32(let value): bytes.append(value)
        case .int64(let value): bytes.append(value)
        case .uint64(let value): bytes.append(value)
        case .double(let value): bytes.append(value)
        case .data(let data): bytes.append(data: data)
        case .date(let microseconds): bytes.append(microseconds)
        case .dictionary(let entries): append(entries, to: &bytes)
        case .array: preconditionFailure("arrays are in variants")
        }
    }

    private mutating func append(_ text: String, to bytes: inout MarshalledBytes) {
        if !bytes.append(checking: text) { holdsNUL = true }
    }
}
