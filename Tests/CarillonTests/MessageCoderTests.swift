// SPDX-License-Identifier: Apache-2.0
import CarillonTestLimits
import CarillonWire
import Foundation
import Testing

@testable import Carillon

/// Codable types between processes, beside Foundation's coders of property lists, which they go by.
@Suite("Codable types as property lists", .limited)
struct MessageCoderTests {
    // MARK: Foundation's way

    private struct Box<Value: Codable>: Codable {
        var value: Value
    }

    private static func foundationEncodes(_ value: some Codable) throws -> [String: PropertyList] {
        let encoder = PropertyListEncoder()
        encoder.outputFormat = .binary
        let list = try PropertyListSerialization.propertyList(from: encoder.encode(Box(value: value)), format: nil)
        let entries = try UserInfoEncoder.encode(try #require(list as? [String: Any]))
        if case .dictionary(let entries)? = entries["value"] { return entries }
        return entries
    }

    private static func foundationDecodes<Value: Codable>(
        _ type: Value.Type, from list: PropertyList
    ) throws -> Value {
        let data = try PropertyListSerialization.data(
            fromPropertyList: ["value": UserInfoDecoder.decode(list)], format: .binary, options: 0)
        return try PropertyListDecoder().decode(Box<Value>.self, from: data).value
    }

    // MARK: Both

    private func encodesTheSame(_ value: some Codable) throws {
        let ours = try MessageCoder.entries(of: value)
        #expect(try ours == Self.foundationEncodes(value), "\(value)")
    }

    /// Values of each kind that the wire has, at their ends.
    private static let lists: [PropertyList] = [
        .string(""), .string("a"), .string("1"), .boolean(true), .boolean(false), .uint8(0), .uint8(255), .int16(-1),
        .int16(.min), .uint16(.max), .int32(-5), .int32(.max), .uint32(.max), .int64(0), .int64(1), .int64(-1),
        .int64(.max), .int64(.min), .int64(1 << 53 + 1), .uint64(.max), .uint64(3), .double(0), .double(1), .double(-1),
        .double(1.5), .double(0.1), .double(1e300), .double(.infinity), .double(-0.0), .data([]), .data([1, 2]),
        .date(microsecondsSince1970: 0), .date(microsecondsSince1970: 1_500_000), .array([]),
        .array([.int64(1), .int32(2)]), .array([.string("a"), .boolean(true)]), .array([.string("$null")]),
        .dictionary([:]), .dictionary(["a": .int64(1)]), .dictionary(["a": .array([.double(2)])]), .string("$null"),
    ]

    /// Decodes all of ``lists`` as a type, in both ways.
    ///
    /// - Parameter apart: where the two differ.
    private func decodesTheSame<Value: Codable & Equatable>(
        _ type: Value.Type, apart: (PropertyList) -> Bool = { _ in false }
    ) {
        for list in Self.lists where !apart(list) {
            let theirs = Result { try Self.foundationDecodes(type, from: list) }
            let ours = Result { try MessageDecoder.decode(type, from: list) }
            switch (ours, theirs) {
            case (.success(let ours), .success(let theirs)):
                #expect(ours == theirs || "\(ours)" == "\(theirs)", "\(type) from \(list)")
            case (.failure, .failure): break
            default: Issue.record("\(type) from \(list): \(ours), and Foundation \(theirs)")
            }
        }
    }

    @Test("The decoder accepts exactly the values that Foundation's decoder accepts for each type")
    func decoding() throws {
        decodesTheSame(Int.self)
        decodesTheSame(Int8.self)
        decodesTheSame(Int16.self)
        decodesTheSame(Int32.self)
        decodesTheSame(Int64.self)
        decodesTheSame(UInt.self)
        decodesTheSame(UInt8.self)
        decodesTheSame(UInt16.self)
        decodesTheSame(UInt32.self)
        decodesTheSame(UInt64.self)
        decodesTheSame(Double.self)
        // Foundation has its own number for each of the two, so that one says which it was. On the wire there is one.
        decodesTheSame(Float.self) { $0 == .double(0.1) }
        #expect(try MessageDecoder.decode(Float.self, from: .double(0.1)) == 0.1)
        decodesTheSame(Bool.self)
        // Others post it as a text; Foundation's has nothing to do with others.
        decodesTheSame(String.self) { $0 == .string("$null") }
        #expect(try MessageDecoder.decode(String.self, from: .string("$null")) == "$null")
        decodesTheSame(Data.self)
        decodesTheSame(Date.self)
        decodesTheSame(Int?.self)
        decodesTheSame(String?.self)
        decodesTheSame([Int].self)
        decodesTheSame([Double].self)
        decodesTheSame([Int?].self)
        decodesTheSame([String].self) { $0 == .array([.string("$null")]) }
        decodesTheSame([UInt8].self)
        decodesTheSame([String: Int].self)
        decodesTheSame([String: [Double]].self)
        decodesTheSame([Int: Int].self)
    }

    @Test("The text $null, which stands for nil, is refused anywhere in a message", arguments: [0, 1, 2, 3])
    func null(place: Int) throws {
        struct Texts: Codable {
            var text = ""
            var list: [String?] = [nil]
            var inner: [String: [String]] = [:]
        }
        var texts = Texts()
        let path = ["userInfo.text", "userInfo.list[0]", "userInfo.inner.x[0]", "userInfo"][place]
        switch place {
        case 0: texts.text = "$null"
        case 1: texts.list = ["$null"]
        case 2: texts.inner = ["x": ["$null"]]
        default: break
        }
        #expect(
            throws: DistributedNotificationError.invalidUserInfo(
                keyPath: path, reason: "the text '$null' stands for nil in a message")
        ) {
            if place == 3 { _ = try MessageCoder.entries(of: "$null") } else { _ = try MessageCoder.entries(of: texts) }
        }
    }

    @Test("A decoding error names the actual cause")
    func causes() {
        func cause<Value: Decodable>(_ type: Value.Type, _ userInfo: [String: PropertyList]) -> String {
            do {
                _ = try MessageCoder.message(type, from: userInfo)
                return ""
            } catch {
                return MessageCoder.describe(error)
            }
        }
        #expect(cause(Level.self, ["value": .string("x")]).contains("value: Cannot initialize Level"))
        #expect(cause(Level.self, ["value": .int64(1)]) == "value: there is an integer instead of a string")
        let two: [String: PropertyList] = ["b": .int64(1), "a": .int64(2)]
        #expect(cause(Level.self, two) == "there is a, b instead of one value under 'value'")
        #expect(cause(Int.self, [:]) == "there is nothing instead of one value under 'value'")
        #expect(cause(Box<Int>.self, ["value": .string("x")]) == "value: there is a string instead of an integer")
        #expect(cause(Box<Int>.self, ["other": .string("x")]) == "there is no value")
    }

    // MARK: Encoding

    private enum Level: String, Codable { case low, high }

    private enum Shape: Codable {
        case point
        case circle(radius: Double)
        case named(String, sides: [Int])
    }

    private struct Nothing: Codable {}

    private struct Everything: Codable {
        var text = "x"
        var int = -5
        var int8 = Int8.min
        var byte: UInt8 = 255
        var big = UInt64.max
        var double = 0.1
        var float: Float = 0.1
        var flag = false
        var data = Data([1, 2])
        var date = Date(timeIntervalSince1970: 1.5)
        var url = URL(string: "https://example.com")!
        var id = UUID(uuidString: "9A5B1F6E-8D2C-4B7A-9E31-0C6D5F4A3B2E")!
        var nothing: Int?
        var something: Int? = 3
        var holes: [Int?] = [1, nil]
        var level = Level.high
        var shapes: [Shape] = [.point, .circle(radius: 2), .named("a", sides: [1, 2])]
        var map = ["a": 1.5]
        var byNumber = [1: "one"]
        var deep = [[["a": [true]]]]
        var empty = Nothing()
        var emptyList: [String] = []
        var decimal = Decimal(string: "1.25")!
        var range = 1..<5
        var set: Set = [7]
    }

    @Test("The encoder writes each type as Foundation's encoder does")
    func encoding() throws {
        try encodesTheSame(Everything())
        try encodesTheSame(Nothing())
        try encodesTheSame(Level.low)
        try encodesTheSame(Shape.circle(radius: 1))
        try encodesTheSame([1, 2])
        try encodesTheSame(["a": [Int8(1)]])
        try encodesTheSame([[UInt64.max], []])
        try encodesTheSame("text")
        try encodesTheSame(1.5)
        try encodesTheSame(Float(1.5))
        try encodesTheSame(Data([1]))
        try encodesTheSame(Date(timeIntervalSince1970: 0))
        try encodesTheSame([Date(timeIntervalSince1970: -1)])
        try encodesTheSame(Int?.none)
        try encodesTheSame(Int?.some(1))
        try encodesTheSame([Data([1]), Data()])
    }

    // MARK: All that a coder has

    private class Base: Codable {
        var id = 1
        init() {}
    }

    private final class Derived: Base {
        var title = "t"
        private enum CodingKeys: String, CodingKey { case title, nested, list, later }
        private enum Inner: String, CodingKey { case a }

        override init() { super.init() }

        required init(from decoder: any Decoder) throws {
            let container = try decoder.container(keyedBy: CodingKeys.self)
            title = try container.decode(String.self, forKey: .title)
            let nested = try container.nestedContainer(keyedBy: Inner.self, forKey: .nested)
            #expect(try nested.decode(Int.self, forKey: .a) == 5 && nested.allKeys == [.a])
            #expect(try !nested.decodeNil(forKey: .a) && nested.decodeIfPresent(Int.self, forKey: .a) == 5)
            var list = try container.nestedUnkeyedContainer(forKey: .list)
            #expect(list.count == 6 && !list.isAtEnd)
            #expect(try !list.decodeNil())
            #expect(throws: DecodingError.self) { try list.decode(String.self) }
            #expect(try list.decode(Int.self) == 1, "what failed was not taken")
            #expect(try list.decodeNil())
            #expect(try list.nestedContainer(keyedBy: Inner.self).decode(Bool.self, forKey: .a))
            var inner = try list.nestedUnkeyedContainer()
            #expect(try inner.decode(Float.self) == 0.5 && inner.isAtEnd)
            #expect(throws: DecodingError.self) { try inner.decode(Int.self) }
            #expect(try list.superDecoder().singleValueContainer().decode(UInt8.self) == 9)
            #expect(list.currentIndex == 5)
            #expect(try list.decode(Nothing?.self) == nil)
            let later = try container.superDecoder(forKey: .later).singleValueContainer()
            #expect(try !later.decodeNil() && later.decode([Int].self) == [1])
            try super.init(from: container.superDecoder())
        }

        override func encode(to encoder: any Encoder) throws {
            var container = encoder.container(keyedBy: CodingKeys.self)
            try container.encode(title, forKey: .title)
            var nested = container.nestedContainer(keyedBy: Inner.self, forKey: .nested)
            var list = container.nestedUnkeyedContainer(forKey: .list)
            try list.encode(1)
            try list.encodeNil()
            var inList = list.nestedContainer(keyedBy: Inner.self)
            var listInList = list.nestedUnkeyedContainer()
            var single = list.superEncoder().singleValueContainer()
            try list.encode(Nothing?.none)
            try single.encode(UInt8(9))
            try listInList.encode(Float(0.5))
            try inList.encode(true, forKey: .a)
            // Several containers of an encoder are one.
            var again = encoder.container(keyedBy: CodingKeys.self)
            try [1].encode(to: again.superEncoder(forKey: .later))
            try super.encode(to: container.superEncoder())
            try nested.encode(5, forKey: .a)
        }
    }

    @Test("Nested containers, inheritance and late writes encode as with Foundation, and decode again")
    func containers() throws {
        let derived = Derived()
        derived.id = 7
        derived.title = "other"
        try encodesTheSame(derived)
        let list = PropertyList.dictionary(try MessageCoder.entries(of: derived))
        let back = try MessageDecoder.decode(Derived.self, from: list)
        #expect(back.id == 7 && back.title == "other")
    }

    private struct Tree: Codable {
        var children: [Tree] = []
        var text = ""

        init(depth: Int, _ text: String) {
            if depth > 0 { children = [Tree(depth: depth - 1, text)] } else { self.text = text }
        }
    }

    @Test("A value that the wire format can't carry is refused with its key path")
    func refused() {
        func path(_ value: some Codable) -> String? {
            do throws(DistributedNotificationError) {
                _ = try MessageCoder.entries(of: value)
                return nil
            } catch {
                guard case .invalidUserInfo(let path, _) = error else { return "\(error)" }
                return path
            }
        }
        #expect(path("a\0") == "userInfo")
        #expect(path(Tree(depth: 2, "a\0")) == "userInfo.children[0].children[0].text")
        #expect(path(["a\0": 1]) == "userInfo.a\0")
        #expect(path([Date(timeIntervalSince1970: .infinity)]) == "userInfo[0]")
        #expect(path(["a": ["b", "c\0"]]) == "userInfo.a[1]")
        #expect(path(Tree(depth: 7, "a")) == nil)
        #expect(path(Tree(depth: 5000, "a"))?.hasPrefix("userInfo.children[0]") == true)
    }

    @Test("A decoding error contains the path of the value and the type found")
    func errors() {
        func text<Value: Decodable>(_ type: Value.Type, _ list: PropertyList) -> String {
            do {
                _ = try MessageDecoder.decode(type, from: list)
                return "none"
            } catch {
                return "\(error)"
            }
        }
        let wrong = text([String: [Int]].self, .dictionary(["a": .array([.int64(1), .string("b")])]))
        #expect(wrong.contains("a[1]") || wrong.contains("a.[1]"), "\(wrong)")
        #expect(wrong.contains("a string instead of an integer"), "\(wrong)")
        #expect(text(Everything.self, .dictionary([:])).contains("text"))
        #expect(text(Int8.self, .int64(1000)).contains("does not fit in Int8"))
    }
}
