import DBus
import NotificationCore

/// Walks a userInfo and refuses what is no property list on the wire, or beyond the limits (N3, E1).
///
/// Allowed: `s b y n q i u x t d`, `ay` (data), `(x)` (a date), arrays and `a{s…}` of these, `v`. The walk allocates
/// nothing; the path of a fault is put together only when there is one, on the way out.
struct PropertyListChecker {
    /// Characters of a key that a path shows.
    private static let longestKey = 128
    private let maximumBytes: Int
    private let maximumDepth: Int
    private let limits: Limits
    /// Bytes on the wire so far, counted as D-Bus aligns them.
    private var offset = 0

    init(limits: Limits) {
        self.limits = limits
        maximumBytes = Int(limits[.userInfoBytes])
        maximumDepth = Int(limits[.userInfoDepth])
    }

    /// Checks the `a{sv}` that comes next and moves `reader` behind it.
    ///
    /// - Returns: its bytes on the wire.
    mutating func check(userInfo reader: inout MessageReader) throws(CenterError) -> Int {
        do throws(Fault) {
            try checkArray(&reader, depth: 1)
        } catch {
            throw error.centerError(limits: limits)
        }
        reader.skip()
        return offset
    }

    /// - Parameter depth: of the collection that holds the value.
    private mutating func checkValue(_ reader: inout MessageReader, depth: Int) throws(Fault) {
        switch reader.nextType {
        case .string:
            try count(alignedTo: 4, 4 + reader.withNextText { length(of: $0) } + 1)
        case .array:
            // Data is a value, not a collection.
            try checkArray(&reader, depth: reader.nextElementType == .byte ? depth : depth + 1)
        case .variant:
            try checkVariant(&reader, depth: depth)
        case .structure:
            try count(alignedTo: 8, 8)  // (x), as the signature was checked
        case let type where type.fixedSize > 0 && type != .unixFD:
            try count(alignedTo: type.fixedSize, type.fixedSize)
        case let type:
            throw Fault(.notPropertyList(Signature(type)))
        }
    }

    private mutating func checkArray(_ reader: inout MessageReader, depth: Int) throws(Fault) {
        guard depth <= maximumDepth else { throw Fault(.tooDeep) }
        let elementType = reader.nextElementType
        try count(alignedTo: 4, 4)
        if elementType.fixedSize > 0 {
            let bytes = reader.withNextFixedArray { _, count in count * elementType.fixedSize }
            return try count(alignedTo: elementType.fixedSize, bytes)
        }
        // The padding before the first element is there without one, too.
        if elementType == .dictEntry || elementType == .structure { try count(alignedTo: 8, 0) }
        var elements = reader.nextContents()
        var position = 0
        while !elements.isAtEnd {
            if elementType == .dictEntry {
                try checkEntry(&elements, depth: depth)
            } else {
                do throws(Fault) {
                    try checkValue(&elements, depth: depth)
                } catch {
                    throw error.inside("[\(position)]")
                }
            }
            elements.skip()
            position += 1
        }
    }

    private mutating func checkEntry(_ entries: inout MessageReader, depth: Int) throws(Fault) {
        try count(alignedTo: 8, 0)
        var entry = entries.nextContents()
        try count(alignedTo: 4, 4 + entry.withNextText { length(of: $0) } + 1)
        let key = entry
        entry.skip()
        do throws(Fault) {
            try checkValue(&entry, depth: depth)
        } catch {
            var key = key
            throw error.inside(".\(((try? key.readString()) ?? "").prefix(Self.longestKey))")
        }
    }

    private mutating func checkVariant(_ reader: inout MessageReader, depth: Int) throws(Fault) {
        var value = reader.nextContents()
        switch value.nextType {
        case .array, .structure:
            // The whole type, so that an empty collection of something forbidden is refused as well.
            let signature = value.nextSignature
            guard Self.isPropertyList(signature) else { throw Fault(.notPropertyList(signature)) }
            try count(alignedTo: 1, signature.rawValue.utf8.count + 2)
            try checkValue(&value, depth: depth)
        case .variant:
            // A variant in a variant is no collection, but has to be bounded like one.
            guard depth < maximumDepth else { throw Fault(.tooDeep) }
            try count(alignedTo: 1, 3)
            try checkVariant(&value, depth: depth + 1)
        default:
            try count(alignedTo: 1, 3)
            try checkValue(&value, depth: depth)
        }
    }

    /// Whether a type is made of property-list types only.
    private static func isPropertyList(_ signature: Signature) -> Bool {
        let text = Array(signature.rawValue.utf8)
        var index = 0
        while index < text.count {
            switch UInt8(text[index]) {
            case UInt8(ascii: "("):
                guard text[index...].starts(with: "(x)".utf8) else { return false }
                index += 2
            case UInt8(ascii: "{"):
                guard text[index + 1] == UInt8(ascii: "s") else { return false }
            case UInt8(ascii: "o"), UInt8(ascii: "g"), UInt8(ascii: "h"):
                return false
            default:
                break
            }
            index += 1
        }
        return true
    }

    private mutating func count(alignedTo alignment: Int, _ bytes: Int) throws(Fault) {
        offset = (offset + alignment - 1) / alignment * alignment + bytes
        guard offset <= maximumBytes else { throw Fault(.tooLarge) }
    }
}

/// What is wrong, and the way to it, put together from the inside out.
private struct Fault: Error {
    enum Reason {
        case notPropertyList(Signature)
        case tooDeep
        case tooLarge
    }

    let reason: Reason
    var path = ""

    init(_ reason: Reason) {
        self.reason = reason
    }

    func inside(_ component: String) -> Fault {
        var outer = self
        outer.path = component + path
        return outer
    }

    func centerError(limits: Limits) -> CenterError {
        switch reason {
        case .notPropertyList(let signature):
            .invalidUserInfo(
                path: "userInfo" + path, reason: "D-Bus type '\(signature)' is no property-list type")
        case .tooDeep: .limitExceeded(.userInfoDepth, value: limits[.userInfoDepth])
        case .tooLarge: .limitExceeded(.userInfoBytes, value: limits[.userInfoBytes])
        }
    }
}

private func length(of text: UnsafePointer<CChar>) -> Int {
    var length = 0
    while text[length] != 0 { length += 1 }
    return length
}
