// SPDX-License-Identifier: Apache-2.0
/// A complete D-Bus type.
public indirect enum WireType: Equatable, Sendable {
    /// By its letter: `y b n q i u x t d s o g h`.
    case basic(Character)
    case variant
    case array(WireType)
    case dictionary(key: Character, value: WireType)
    case structure([WireType])

    public var signature: String {
        switch self {
        case .basic(let letter): String(letter)
        case .variant: "v"
        case .array(let element): "a" + element.signature
        case .dictionary(let key, let value): "a{\(key)\(value.signature)}"
        case .structure(let fields): "(" + fields.map(\.signature).joined() + ")"
        }
    }

    var alignment: Int {
        switch self {
        case .basic("y"), .basic("g"), .variant: 1
        case .basic("n"), .basic("q"): 2
        case .basic("x"), .basic("t"), .basic("d"), .structure: 8
        default: 4
        }
    }

    /// Whether it is made of property-list types only (N3, and the wire contract).
    public var isPropertyList: Bool {
        switch self {
        case .basic(let letter): !"ogh".contains(letter)
        case .variant: true
        case .array(let element): element.isPropertyList
        case .dictionary(let key, let value): key == "s" && value.isPropertyList
        case .structure(let fields): fields == [.basic("x")]
        }
    }
}

/// A D-Bus value with its type.
public indirect enum WireValue: Sendable {
    /// The bits of a value of a fixed size.
    case fixed(Character, UInt64)
    /// A string, an object path or a signature.
    case text(Character, String)
    case variant(WireValue)
    case array(WireType, [WireValue])
    case dictionary(key: Character, value: WireType, [(WireValue, WireValue)])
    case structure([WireValue])

    public static var noOptions: WireValue { .dictionary(key: "s", value: .variant, []) }

    public static func string(_ text: String) -> WireValue { .text("s", text) }

    public static func options(_ entries: [(String, WireValue)]) -> WireValue {
        .dictionary(key: "s", value: .variant, entries.map { (.string($0), .variant($1)) })
    }

    public var type: WireType {
        switch self {
        case .fixed(let letter, _), .text(let letter, _): .basic(letter)
        case .variant: .variant
        case .array(let element, _): .array(element)
        case .dictionary(let key, let value, _): .dictionary(key: key, value: value)
        case .structure(let fields): .structure(fields.map(\.type))
        }
    }

    public func marshal(to output: inout Marshaller) {
        switch self {
        case .fixed("y", let bits): output.append(UInt8(truncatingIfNeeded: bits))
        case .fixed("b", let bits): output.append(UInt32(bits & 1))
        case .fixed("n", let bits), .fixed("q", let bits): output.append(UInt16(truncatingIfNeeded: bits))
        case .fixed("x", let bits), .fixed("t", let bits), .fixed("d", let bits): output.append(bits)
        case .fixed(_, let bits): output.append(UInt32(truncatingIfNeeded: bits))
        case .text("g", let text): output.append(signature: text)
        case .text(_, let text): output.append(text)
        case .variant(let value):
            output.append(signature: value.type.signature)
            value.marshal(to: &output)
        case .array(let element, let elements):
            output.array(alignedTo: element.alignment) { for element in elements { element.marshal(to: &$0) } }
        case .dictionary(_, _, let entries):
            output.array(alignedTo: 8) { output in
                for (key, value) in entries {
                    output.align(to: 8)
                    key.marshal(to: &output)
                    value.marshal(to: &output)
                }
            }
        case .structure(let fields):
            output.align(to: 8)
            for field in fields { field.marshal(to: &output) }
        }
    }

    /// Whether this and everything in it is a property list.
    public var isPropertyList: Bool {
        guard type.isPropertyList else { return false }
        switch self {
        case .fixed, .text: return true
        case .variant(let value): return value.isPropertyList
        case .array(_, let elements): return elements.allSatisfy(\.isPropertyList)
        case .dictionary(_, _, let entries): return entries.allSatisfy(\.1.isPropertyList)
        case .structure: return true
        }
    }

    /// Collections in collections, this one included; data is none, and a variant in a variant counts as one.
    public var depth: Int {
        switch self {
        case .fixed, .text: 0
        case .variant(.variant(let value)): 1 + WireValue.variant(value).depth
        case .variant(let value): value.depth
        case .array(.basic("y"), _): 0
        case .array(_, let elements): 1 + (elements.map(\.depth).max() ?? 0)
        case .dictionary(_, _, let entries): 1 + (entries.map(\.1.depth).max() ?? 0)
        case .structure(let fields): fields.map(\.depth).max() ?? 0
        }
    }
}

extension ByteSource {
    /// A type of any kind, nested at most `depth` deep.
    public mutating func wireType(depth: Int) -> WireType {
        let letters: [Character] = ["s", "x", "b", "d", "y", "i", "u", "t", "n", "q", "o", "g", "h"]
        switch number(below: depth > 0 ? 20 : letters.count) {
        case let index where index < letters.count: return .basic(letters[index])
        case 13: return .structure([.basic("x")])
        case 14: return .structure((0...number(below: 3)).map { _ in wireType(depth: depth - 1) })
        case 15: return .dictionary(key: flag() ? choice(of: letters) : "s", value: wireType(depth: depth - 1))
        case 16: return .dictionary(key: "s", value: .variant)
        case 17: return .array(.basic("y"))
        case 18: return .array(wireType(depth: depth - 1))
        default: return .variant
        }
    }

    /// A value of this type, nested at most `depth` deep.
    public mutating func wireValue(_ type: WireType, depth: Int) -> WireValue {
        switch type {
        case .basic("s"): return .string(text())
        case .basic("o"): return .text("o", flag() ? "/" : "/org/example")
        case .basic("g"): return .text("g", choice(of: ["", "s", "a{sv}", "(x)"]))
        case .basic("h"): return .fixed("h", 0)
        case .basic(let letter):
            return .fixed(letter, "xtd".contains(letter) ? integer() : UInt64(byte()) &* 0x0101_0101)
        case .variant: return .variant(wireValue(wireType(depth: depth - 1), depth: depth - 1))
        case .array(let element):
            return .array(element, (0..<count(depth)).map { _ in wireValue(element, depth: depth - 1) })
        case .dictionary(let key, let value):
            return .dictionary(
                key: key, value: value,
                (0..<count(depth)).map { _ in
                    (wireValue(.basic(key), depth: 0), wireValue(value, depth: depth - 1))
                })
        case .structure(let fields):
            return .structure(fields.map { wireValue($0, depth: depth - 1) })
        }
    }

    /// A short text, at times a long one.
    public mutating func text() -> String {
        switch byte() {
        case 255: return String(repeating: "é", count: 64 * Int(byte()))
        case let count:
            let scalars = bytes(Int(count) % 24).map { Unicode.Scalar($0 == 0 ? 0x1F514 : UInt32($0))! }
            return String(String.UnicodeScalarView(scalars))
        }
    }

    private mutating func count(_ depth: Int) -> Int {
        depth > 0 && !isAtEnd ? number(below: 5) : 0
    }
}
