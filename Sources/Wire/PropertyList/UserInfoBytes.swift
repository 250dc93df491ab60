// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonDBus

/// The userInfo of a received notification in encoded form: checked on arrival and decoded on demand, without libdbus.
/// ``ArrivedNotification`` has one.
///
/// The check is that of the service (``PropertyListChecker``), without limits of size, which the service has enforced.
/// Input is untrusted: the bytes may be arbitrary.
public struct UserInfoBytes: Hashable, Sendable {
    /// The encoded entries, without the length field in front. The first entry is aligned to 8 bytes.
    private let entries: [UInt8]
    /// The number of values, without keys.
    public let valueCount: Int

    /// Copies the `a{sv}` at the position of `reader`, and moves the reader behind it.
    ///
    /// - Throws: ``CenterError/invalidUserInfo(path:reason:)`` for a forbidden type, or bytes that violate the D-Bus
    ///   layout.
    public init(at reader: inout MarshalledReader) throws(CenterError) {
        var checker = PropertyListChecker(at: reader, limits: PropertyListChecker.withoutLimits)
        // The offset of the first entry: behind the length field, aligned to 4 bytes, and padding to 8 bytes.
        let start = (((reader.offset + 3) & ~3) + 4 + 7) & ~7
        _ = try checker.check()
        reader = checker.reader
        entries = Array(UnsafeRawBufferPointer(rebasing: reader.bytes[start..<reader.offset]))
        valueCount = checker.valueCount
    }

    /// Creates a userInfo from bytes that consist of one `a{sv}`.
    public init(_ bytes: [UInt8]) throws(CenterError) {
        let result = bytes.withUnsafeBytes { bytes in
            Result { () throws(CenterError) in
                var reader = MarshalledReader(bytes)
                let userInfo = try UserInfoBytes(at: &reader)
                guard reader.isAtEnd else {
                    throw .invalidUserInfo(path: "userInfo", reason: "more bytes follow it")
                }
                return userInfo
            }
        }
        self = try result.get()
    }

    public var isEmpty: Bool { entries.isEmpty }

    /// The encoded size with the length field, in bytes.
    public var byteCount: Int { 8 + entries.count }

    /// Returns the decoded userInfo. Each call decodes it again.
    public func decoded() -> [String: PropertyList] {
        // The capacity is an estimate from typical entries, so that the dictionary need not grow entry by entry.
        var result: [String: PropertyList] = Dictionary(minimumCapacity: min(entries.count / 32 + 1, 64))
        forEachEntry { result[$0] = $1 }
        return result
    }

    /// Decodes the userInfo entry by entry, for callers that store the entries in another type of collection. If a key
    /// occurs several times, the caller must keep the last entry.
    public func forEachEntry(_ body: (_ key: String, _ value: PropertyList) -> Void) {
        guard !entries.isEmpty else { return }
        entries.withUnsafeBytes { bytes in
            var builder = UserInfoBuilder(reader: MarshalledReader(bytes))
            do throws(UserInfoBuilder.Malformed) {
                while let (key, value) = try builder.entry() { body(key, value) }
            } catch {
                assertionFailure("checked bytes can be decoded")
            }
        }
    }
}

/// The decoder of bytes that ``PropertyListChecker`` has accepted. It repeats only the bounds checks, which memory
/// safety needs.
private struct UserInfoBuilder {
    /// The bytes of a signature that hold one complete type.
    private typealias TypeText = UnsafeRawBufferPointer

    struct Malformed: Error {}

    var reader: MarshalledReader

    /// Reads the next entry of the userInfo; nil behind the last.
    mutating func entry() throws(Malformed) -> (key: String, value: PropertyList)? {
        guard !reader.isAtEnd else { return nil }
        guard reader.align(to: 8), let key = reader.readKnownText() else { throw Malformed() }
        return (key, try variant())
    }

    /// Reads a nested dictionary.
    ///
    /// - Parameter type: The type of the values.
    private mutating func dictionary(until end: Int, of type: TypeText) throws(Malformed) -> [String: PropertyList] {
        var result: [String: PropertyList] = Dictionary(minimumCapacity: min((end - reader.offset) / 32 + 1, 64))
        while reader.offset < end {
            guard reader.align(to: 8), let key = reader.readKnownText() else { throw Malformed() }
            result[key] = try value(of: type)
        }
        return result
    }

    private mutating func variant() throws(Malformed) -> PropertyList {
        guard let signature = reader.readSignature(), !signature.isEmpty else { throw Malformed() }
        return try value(of: TypeText(rebasing: reader.bytes[signature]))
    }

    /// Reads a value of a known type.
    private mutating func value(of type: TypeText) throws(Malformed) -> PropertyList {
        let value: PropertyList? =
            switch type[0] {
            case UInt8(ascii: "s"): reader.readKnownText().map { .string($0) }
            case UInt8(ascii: "x"): reader.readFixed().map { .int64($0) }
            case UInt8(ascii: "d"): reader.readFixed().map { .double($0) }
            case UInt8(ascii: "b"): reader.readBool().map { .boolean($0) }
            case UInt8(ascii: "y"): reader.readFixed().map { .uint8($0) }
            case UInt8(ascii: "n"): reader.readFixed().map { .int16($0) }
            case UInt8(ascii: "q"): reader.readFixed().map { .uint16($0) }
            case UInt8(ascii: "i"): reader.readFixed().map { .int32($0) }
            case UInt8(ascii: "u"): reader.readFixed().map { .uint32($0) }
            case UInt8(ascii: "t"): reader.readFixed().map { .uint64($0) }
            case UInt8(ascii: "("): reader.readFixed().map { .date(microsecondsSince1970: $0) }
            case UInt8(ascii: "v"): try variant()
            case UInt8(ascii: "a") where type.count > 1: try collection(of: TypeText(rebasing: type[1...]))
            default: nil
            }
        guard let value else { throw Malformed() }
        return value
    }

    /// Reads an array with elements of `type`: data, a dictionary, or an array.
    private mutating func collection(of type: TypeText) throws(Malformed) -> PropertyList {
        guard let contents = reader.readArray(alignedTo: PropertyListChecker.alignment(type[0])) else {
            throw Malformed()
        }
        switch type[0] {
        case UInt8(ascii: "y"):
            reader.move(to: contents.upperBound)
            return .data(Array(UnsafeRawBufferPointer(rebasing: reader.bytes[contents])))
        case UInt8(ascii: "{"):
            guard type.count > 3 else { throw Malformed() }
            return .dictionary(
                try dictionary(until: contents.upperBound, of: TypeText(rebasing: type[2..<type.count - 1])))
        default:
            var elements: [PropertyList] = []
            while reader.offset < contents.upperBound { elements.append(try value(of: type)) }
            return .array(elements)
        }
    }
}
