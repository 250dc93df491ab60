// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonDBus

/// A userInfo in the bytes that it came in: checked when it was taken out of them, and decoded when somebody looks at it.
///
/// libdbus has no part in it. The check is that of the service (``PropertyListChecker``), without limits of size, which the
/// service has kept; the bytes may be anything.
public struct UserInfoBytes: Hashable, Sendable {
    /// The entries, from a place on that D-Bus would align to 8.
    private let entries: [UInt8]
    /// How many values there are, keys not counted.
    public let valueCount: Int

    /// Takes the `a{sv}` at which `reader` is, and moves the reader behind it.
    ///
    /// - Throws: ``CenterError/invalidUserInfo(path:reason:)`` for what is no property list, or not laid out as D-Bus
    ///   lays it out.
    public init(at reader: inout MarshalledReader) throws(CenterError) {
        var checker = PropertyListChecker(at: reader, limits: PropertyListChecker.withoutLimits)
        // The length, and what aligns the first entry, stand in front of them.
        let start = (((reader.offset + 3) & ~3) + 4 + 7) & ~7
        _ = try checker.check()
        reader = checker.reader
        entries = Array(UnsafeRawBufferPointer(rebasing: reader.bytes[start..<reader.offset]))
        valueCount = checker.valueCount
    }

    /// The same for bytes that are nothing but an `a{sv}`.
    public init(_ bytes: [UInt8]) throws(CenterError) {
        let result = bytes.withUnsafeBytes { bytes in
            Result { () throws(CenterError) in
                var reader = MarshalledReader(bytes)
                let userInfo = try UserInfoBytes(at: &reader)
                guard reader.isAtEnd else {
                    throw .invalidUserInfo(path: "userInfo", reason: "there are more bytes than it has")
                }
                return userInfo
            }
        }
        self = try result.get()
    }

    public var isEmpty: Bool { entries.isEmpty }

    /// What it takes on the wire.
    public var byteCount: Int { 8 + entries.count }

    /// Decodes it, anew each time.
    public func decoded() -> [String: PropertyList] {
        // Of entries as they usually are, so that it does not grow entry by entry.
        var result: [String: PropertyList] = Dictionary(minimumCapacity: min(entries.count / 32 + 1, 64))
        forEachEntry { result[$0] = $1 }
        return result
    }

    /// Decodes it entry by entry, for who puts them elsewhere. Of two with the same key the last one counts.
    public func forEachEntry(_ body: (_ key: String, _ value: PropertyList) -> Void) {
        guard !entries.isEmpty else { return }
        entries.withUnsafeBytes { bytes in
            var builder = UserInfoBuilder(reader: MarshalledReader(bytes))
            do throws(UserInfoBuilder.Malformed) {
                while let (key, value) = try builder.entry() { body(key, value) }
            } catch {
                assertionFailure("what was checked can be read")
            }
        }
    }
}

/// Makes values of bytes that ``PropertyListChecker`` has passed, and looks again only at what would lead out of them.
private struct UserInfoBuilder {
    /// One complete type, as a signature has it.
    private typealias TypeText = UnsafeRawBufferPointer

    struct Malformed: Error {}

    var reader: MarshalledReader

    /// The next entry of the userInfo; nil behind the last.
    mutating func entry() throws(Malformed) -> (key: String, value: PropertyList)? {
        guard !reader.isAtEnd else { return nil }
        guard reader.align(to: 8), let key = reader.readKnownText() else { throw Malformed() }
        return (key, try variant())
    }

    /// A dictionary within it.
    ///
    /// - Parameter type: of the values.
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

    /// An array whose elements are of a type: data, a dictionary, or an array.
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
