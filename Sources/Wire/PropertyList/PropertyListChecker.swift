// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonDBus

/// A validator of an encoded userInfo, which refuses types other than property lists, and sizes beyond the limits (N3,
/// E1).
///
/// The service checks each post with it, and clients check each notification. Allowed types: `s b y n q i u x t d`,
/// `ay` (data), `(x)` (a date), arrays and `a{s…}` of these, `v`. Input is untrusted: the bytes may be arbitrary.
///
/// The check decodes no values and allocates no memory. Only after a fault, the path to the faulty value is assembled
/// while the recursion returns.
struct PropertyListChecker {
    /// The bytes of a signature that hold one complete type.
    private typealias TypeText = UnsafeRawBufferPointer

    /// The maximum number of characters of a key in the path of an error.
    private static let longestKey = 128
    /// Limits without a maximum, for a userInfo that the service has accepted before, possibly under other limits.
    static let withoutLimits = {
        var limits = Limits()
        limits[.userInfoBytes] = .max
        limits[.userInfoDepth] = .max
        return limits
    }()
    /// The maximum nesting of arrays in a type, that of the D-Bus specification.
    private static let maxArrays = 32
    /// The position of the check.
    private(set) var reader: MarshalledReader
    /// The number of values checked so far, without keys.
    private(set) var valueCount = 0
    private let limits: Limits
    private let maximumDepth: Int
    /// The offset at which the limit of bytes is reached.
    private var end = 0

    /// - Parameters:
    ///   - reader: A reader at the `a{sv}`.
    ///   - limits: The limits of size and depth.
    init(at reader: MarshalledReader, limits: Limits) {
        self.reader = reader
        self.limits = limits
        maximumDepth = Int(limits[.userInfoDepth])
    }

    /// Checks the `a{sv}`, and moves ``reader`` behind it.
    ///
    /// - Returns: The size of the `a{sv}` in bytes, as encoded at an offset that is aligned to 8 bytes.
    mutating func check() throws(CenterError) -> Int {
        do throws(Fault) {
            guard maximumDepth >= 1 else { throw Fault(.tooDeep) }
            let contents = try array(alignedTo: 8)
            // The size includes the length field and its padding.
            let start = contents.lowerBound - 8
            end = start + Int(limits[.userInfoBytes])
            try checkSize()
            try checkEntries(until: contents.upperBound, of: nil, depth: 1)
            return offset - start
        } catch {
            throw error.centerError(limits: limits)
        }
    }

    // MARK: Values

    /// Checks a value of a known type.
    ///
    /// - Parameter depth: The nesting depth of the collection that contains the value; 1 for the userInfo itself.
    private mutating func checkValue(of type: TypeText, depth: Int) throws(Fault) {
        switch type[0] {
        case UInt8(ascii: "s"): _ = try text()
        case UInt8(ascii: "v"): return try checkVariant(depth: depth)  // The variant counts its content.
        case UInt8(ascii: "a"):
            // Data is a value, not a collection.
            let isData = type[1] == UInt8(ascii: "y")
            try checkArray(of: TypeText(rebasing: type[1...]), depth: isData ? depth : depth + 1)
        case UInt8(ascii: "("): try skip(8)  // (x), as the type was checked
        case UInt8(ascii: "b"): try boolean()
        case let letter: try skip(Self.fixedSize(letter))
        }
        valueCount += 1
        try checkSize()
    }

    /// Checks an array or a dictionary.
    ///
    /// - Parameters:
    ///   - type: The type of the elements.
    ///   - depth: The nesting depth of the array.
    private mutating func checkArray(of type: TypeText, depth: Int) throws(Fault) {
        guard depth <= maximumDepth else { throw Fault(.tooDeep) }
        let size = Self.fixedSize(type[0])
        let isOfEntries = type[0] == UInt8(ascii: "{")
        // An empty array has the padding before its first element, too.
        let contents = try array(alignedTo: Self.alignment(type[0]))
        try checkSize()
        guard !isOfEntries else {
            let value = TypeText(rebasing: type[2..<type.count - 1])
            return try checkEntries(until: contents.upperBound, of: value, depth: depth)
        }
        // Any bytes are valid numbers, so the elements need no check. Booleans must be 0 or 1.
        guard size == 0 || type[0] == UInt8(ascii: "b") else {
            guard contents.count % size == 0 else { throw Fault(.malformed) }
            reader.move(to: contents.upperBound)
            // Data is one value.
            if size > 1 { valueCount += contents.count / size }
            return try checkSize()
        }
        var position = 0
        while offset < contents.upperBound {
            do throws(Fault) {
                try checkValue(of: type, depth: depth)
            } catch {
                throw error.inside("[\(position)]")
            }
            position += 1
        }
        guard offset == contents.upperBound else { throw Fault(.malformed) }
    }

    /// Checks the entries of a dictionary.
    ///
    /// - Parameter type: The type of the values; nil for variants.
    private mutating func checkEntries(until end: Int, of type: TypeText?, depth: Int) throws(Fault) {
        while offset < end {
            try align(to: 8)
            let key = try text()
            do throws(Fault) {
                try checkSize()
                if let type { try checkValue(of: type, depth: depth) } else { try checkVariant(depth: depth) }
            } catch {
                throw error.inside(".\(String(decoding: reader.bytes[key], as: UTF8.self).prefix(Self.longestKey))")
            }
        }
        guard offset == end else { throw Fault(.malformed) }
    }

    /// Checks a variant: its type, and the value in it.
    private mutating func checkVariant(depth: Int) throws(Fault) {
        guard let signature = reader.readSignature(), !signature.isEmpty else { throw Fault(.malformed) }
        let type = TypeText(rebasing: reader.bytes[signature])
        // The whole type is checked, so that an empty collection of a forbidden type is refused as well.
        guard Self.endOfType(type, from: 0, arrays: 0) == type.count else {
            throw Fault(.notPropertyList(String(decoding: type, as: UTF8.self)))
        }
        try checkSize()
        guard type[0] == UInt8(ascii: "v") else { return try checkValue(of: type, depth: depth) }
        // A variant in a variant counts as a level of nesting, which limits the recursion.
        guard depth < maximumDepth else { throw Fault(.tooDeep) }
        try checkVariant(depth: depth + 1)
    }

    private func checkSize() throws(Fault) {
        guard offset <= end else { throw Fault(.tooLarge) }
    }

    // MARK: Types

    /// Returns the end of the complete type that begins at `index` of a signature; nil if it contains a type that is
    /// not allowed. `arrays` is the number of arrays around it.
    private static func endOfType(_ text: TypeText, from index: Int, arrays: Int) -> Int? {
        guard index < text.count else { return nil }
        switch text[index] {
        case UInt8(ascii: "s"), UInt8(ascii: "v"): return index + 1
        case UInt8(ascii: "("):
            guard text[index...].starts(with: "(x)".utf8) else { return nil }
            return index + 3
        case UInt8(ascii: "a"):
            guard arrays < maxArrays else { return nil }
            guard text[(index + 1)...].starts(with: "{s".utf8) else {
                return endOfType(text, from: index + 1, arrays: arrays + 1)
            }
            guard let end = endOfType(text, from: index + 3, arrays: arrays + 1), end < text.count,
                text[end] == UInt8(ascii: "}")
            else { return nil }
            return end + 1
        case let letter: return fixedSize(letter) > 0 ? index + 1 : nil
        }
    }

    /// Returns the size in bytes, which is also the alignment; 0 for types other than numbers and booleans.
    private static func fixedSize(_ letter: UInt8) -> Int {
        switch letter {
        case UInt8(ascii: "y"): 1
        case UInt8(ascii: "n"), UInt8(ascii: "q"): 2
        case UInt8(ascii: "b"), UInt8(ascii: "i"), UInt8(ascii: "u"): 4
        case UInt8(ascii: "x"), UInt8(ascii: "t"), UInt8(ascii: "d"): 8
        default: 0
        }
    }

    /// Returns the alignment of a type by its first letter, in bytes.
    static func alignment(_ letter: UInt8) -> Int {
        switch letter {
        case UInt8(ascii: "v"): 1
        case UInt8(ascii: "s"), UInt8(ascii: "a"): 4
        case UInt8(ascii: "("), UInt8(ascii: "{"): 8
        default: fixedSize(letter)
        }
    }

    // MARK: Bytes

    private var offset: Int { reader.offset }

    private mutating func text() throws(Fault) -> Range<Int> {
        guard let text = reader.readText() else { throw Fault(.malformed) }
        return text
    }

    private mutating func array(alignedTo alignment: Int) throws(Fault) -> Range<Int> {
        guard let elements = reader.readArray(alignedTo: alignment) else { throw Fault(.malformed) }
        return elements
    }

    private mutating func align(to alignment: Int) throws(Fault) {
        guard reader.align(to: alignment) else { throw Fault(.malformed) }
    }

    private mutating func skip(_ size: Int) throws(Fault) {
        guard reader.skip(size) else { throw Fault(.malformed) }
    }

    private mutating func boolean() throws(Fault) {
        guard let value = reader.readUInt32(), value <= 1 else { throw Fault(.malformed) }
    }
}

/// The reason for the refusal, and the path to the faulty value, which begins with the innermost component.
private struct Fault: Error {
    enum Reason {
        /// A forbidden type, as a signature.
        case notPropertyList(String)
        case tooDeep
        case tooLarge
        /// The bytes violate the D-Bus layout.
        case malformed
    }

    let reason: Reason
    var path = ""

    init(_ reason: Reason) {
        self.reason = reason
    }

    /// Returns the same fault with a component of the path in front.
    func inside(_ component: String) -> Fault {
        var outer = self
        outer.path = component + path
        return outer
    }

    func centerError(limits: Limits) -> CenterError {
        switch reason {
        case .notPropertyList(let signature):
            .invalidUserInfo(
                path: "userInfo" + path, reason: "D-Bus type '\(signature)' is not a property-list type")
        case .malformed: .invalidUserInfo(path: "userInfo" + path, reason: "it is malformed D-Bus data")
        case .tooDeep: .limitExceeded(.userInfoDepth, value: limits[.userInfoDepth])
        case .tooLarge: .limitExceeded(.userInfoBytes, value: limits[.userInfoBytes])
        }
    }
}
