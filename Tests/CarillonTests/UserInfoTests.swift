// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonTestLimits
import CarillonWire
import Foundation
import Testing

@testable import Carillon

@Suite("userInfo with types of Swift and Foundation (N3)", .limited)
struct UserInfoTests {
    private func roundTrip(_ value: Any) throws -> Any {
        try #require(UserInfoDecoder.decode(UserInfoEncoder.encode(["key": value]))["key"])
    }

    @Test("Int, Double, Bool, String, Data and Date arrive with their own type")
    func exact() throws {
        for value in [0, 1, -1, Int.max, Int.min] {
            let back = try roundTrip(value)
            #expect(type(of: back) == Int.self && back as? Int == value)
        }
        for value in [0.0, 1.0, -0.1, .infinity, .greatestFiniteMagnitude, .leastNonzeroMagnitude] {
            let back = try roundTrip(value)
            #expect(type(of: back) == Double.self && back as? Double == value)
        }
        for value in [true, false] {
            let back = try roundTrip(value)
            #expect(type(of: back) == Bool.self && back as? Bool == value)
        }
        for value in ["", "x", "日本語 🔔", String(repeating: "a", count: 100_000)] {
            #expect(try roundTrip(value) as? String == value)
        }
        for value in [Data(), Data([0, 1, 255])] { #expect(try roundTrip(value) as? Data == value) }
        for seconds in [0, 1_700_000_000.123456, -1.5, 4e9] {
            let date = Date(timeIntervalSince1970: seconds)
            #expect(try roundTrip(date) as? Date == date)
        }
        #expect((try roundTrip(Double.nan) as? Double)?.isNaN == true)
    }

    @Test("Integers of other widths are read as any integer type that can hold them")
    func widths() throws {
        #expect(try roundTrip(UInt8.max) as? UInt8 == .max)
        #expect(try roundTrip(UInt8.max) as? Int == 255)
        #expect(try roundTrip(Int8.min) as? Int8 == .min)
        #expect(try roundTrip(Int16.min) as? Int16 == .min)
        #expect(try roundTrip(UInt16.max) as? UInt16 == .max)
        #expect(try roundTrip(Int32.min) as? Int32 == .min)
        #expect(try roundTrip(Int32.min) as? Int == Int(Int32.min))
        #expect(try roundTrip(UInt32.max) as? UInt32 == .max)
        #expect(try roundTrip(UInt64.max) as? UInt64 == .max)
        #expect(try roundTrip(UInt.max) as? UInt == .max)
        #expect(try roundTrip(Int64.min) as? Int == .min)
    }

    @Test("Foundation's types arrive as Swift's")
    func foundation() throws {
        #expect(try roundTrip(NSString("text")) as? String == "text")
        #expect(try roundTrip(NSNumber(value: true)) as? Bool == true)
        #expect(type(of: try roundTrip(NSNumber(value: true))) == Bool.self)
        #expect(type(of: try roundTrip(NSNumber(value: 1))) == Int.self)
        #expect(type(of: try roundTrip(NSNumber(value: Int8(1)))) == Int.self)
        #expect(type(of: try roundTrip(NSNumber(value: 1.0))) == Double.self)
        #expect(try roundTrip(NSNumber(value: UInt64.max)) as? UInt64 == .max)
        #expect(try roundTrip(Float(1.5)) as? Double == 1.5)
        #expect(try roundTrip(CGFloat(1.5)) as? Double == 1.5)
        #expect(try roundTrip(NSData(data: Data([1]))) as? Data == Data([1]))
        #expect(try roundTrip(NSDate(timeIntervalSince1970: 1)) as? Date == Date(timeIntervalSince1970: 1))
        #expect(try roundTrip(NSArray(array: [1, "a"])) as? [AnyHashable] == [1, "a"])
        #expect(try roundTrip(NSDictionary(dictionary: ["a": 1])) as? [String: Int] == ["a": 1])
        #expect(try roundTrip(NSMutableString("text")) as? String == "text")
    }

    @Test("Collections arrive with the types of their elements")
    func collections() throws {
        #expect(try roundTrip([1, 2, 3]) as? [Int] == [1, 2, 3])
        #expect(try roundTrip(["a", "b"]) as? [String] == ["a", "b"])
        #expect(try roundTrip([Int]()) as? [Int] == [])
        #expect(try roundTrip(["a": ["b": [1.5, 2]]]) as? [String: [String: [Double]]] == ["a": ["b": [1.5, 2]]])
        #expect(try roundTrip([UInt8(1), 2]) as? [Int] == [1, 2], "an array of bytes is no data")
        #expect(try roundTrip(Optional(Optional(5)) as Any) as? Int == 5)
    }

    @Test(
        "A value of any other type is refused with its key path",
        arguments: [
            Refused(userInfo: ["a": URL(string: "http://x")!], path: "userInfo.a"),
            Refused(userInfo: ["a": NSNull()], path: "userInfo.a"),
            Refused(userInfo: ["a": Int?.none as Any], path: "userInfo.a"),
            Refused(userInfo: ["a": [1, ["b": UUID()]] as [Any]], path: "userInfo.a[1].b"),
            Refused(
                userInfo: ["a": NSArray(array: [NSDictionary(dictionary: ["c": NSNull()])])], path: "userInfo.a[0].c"),
            Refused(userInfo: ["a": Set([1])], path: "userInfo.a"),
            Refused(userInfo: ["a": NSObject()], path: "userInfo.a"),
            Refused(userInfo: ["a": NSDecimalNumber(string: "0.1")], path: "userInfo.a"),
            Refused(userInfo: ["a": "x\0y"], path: "userInfo.a"),
            Refused(userInfo: ["a": [1: "x"]], path: "userInfo.a[1]"),
            Refused(userInfo: ["a": Date.distantFuture.addingTimeInterval(1e15)], path: "userInfo.a"),
        ])
    func refused(_ refused: Refused) {
        let error = #expect(throws: DistributedNotificationError.self) {
            _ = try UserInfoEncoder.encode(refused.userInfo)
        }
        guard case .invalidUserInfo(let path, let reason) = error else {
            Issue.record("\(String(describing: error))")
            return
        }
        #expect(path == refused.path)
        #expect(!reason.isEmpty)
    }

    @Test("A key that is no string or contains a NUL character is refused")
    func keys() {
        for (userInfo, path) in [([1: "x"], "userInfo[1]"), (["a\0": 1], "userInfo.a\0")]
            as [([AnyHashable: Any], String)]
        {
            let error = #expect(throws: DistributedNotificationError.self) { _ = try UserInfoEncoder.encode(userInfo) }
            guard case .invalidUserInfo(path, _) = error else {
                Issue.record("\(String(describing: error))")
                continue
            }
        }
    }

    @Test("Two keys with equal text, a String and an NSString, arrive as one")
    func keysOfTwoTypes() throws {
        let userInfo: [AnyHashable: Any] = [AnyHashable("a"): 1, AnyHashable(NSString("a")): 1, "b": 2]
        let entries = try UserInfoEncoder.entries(of: userInfo)
        #expect(entries.map(\.key).sorted() == ["a", "b"])
        #expect(try UserInfoEncoder.encode(userInfo) == ["a": .int64(1), "b": .int64(2)])
    }

    @Test("Collections nested deeper than any service takes are refused")
    func depth() {
        var value: Any = 1
        for _ in 0..<10_000 { value = [value] }
        #expect(throws: DistributedNotificationError.self) { _ = try UserInfoEncoder.encode(["a": value]) }
    }

    // MARK: Typed messages

    private struct Inner: Codable, Equatable {
        var flag = true
        var numbers = [1, 2]
    }

    private enum Level: String, Codable {
        case low
        case high
    }

    private struct Sample: Codable, Equatable {
        var text = "x"
        var int = -5
        var byte: UInt8 = 255
        var big = UInt64.max
        var double = 0.1
        var float: Float = 0.1
        var flag = false
        var data = Data([1, 2])
        var date = Date(timeIntervalSince1970: 1.5)
        var url = URL(string: "https://example.com")!
        var id = UUID()
        var nothing: Int?
        var something: Int? = 3
        var inner = Inner()
        var list = [Inner(flag: false, numbers: [])]
        var map = ["a": 1.5]
        var level = Level.high
        var whole = 2.0
    }

    private func codableRoundTrip<Value: Codable>(_ value: Value) throws -> Value {
        try MessageCoder.message(Value.self, from: UserInfoEncoder.encode(MessageCoder.userInfo(of: value)))
    }

    @Test("Codable types arrive unchanged")
    func messages() throws {
        let sample = Sample()
        #expect(try codableRoundTrip(sample) == sample)
        #expect(try codableRoundTrip(Level.low) == .low)
        #expect(try codableRoundTrip([1, 2]) == [1, 2])
        #expect(try codableRoundTrip(["a": [true]]) == ["a": [true]])
        #expect(try codableRoundTrip(7) == 7)
        struct Value: Codable, Equatable {
            var value = 1
        }
        #expect(try codableRoundTrip(Value()) == Value())
        struct Empty: Codable, Equatable {}
        #expect(try codableRoundTrip(Empty()) == Empty())
    }

    @Test("A message is a userInfo with the keys of its type, which any program can post")
    func keysOfMessages() throws {
        let userInfo = try UserInfoEncoder.encode(MessageCoder.userInfo(of: Inner()))
        #expect(userInfo == ["flag": .boolean(true), "numbers": .array([.int64(1), .int64(2)])])
        let foreign: [String: PropertyList] = ["flag": .boolean(false), "numbers": .array([.int32(3), .uint8(4)])]
        #expect(try MessageCoder.message(Inner.self, from: foreign) == Inner(flag: false, numbers: [3, 4]))
        #expect(throws: (any Error).self) { try MessageCoder.message(Inner.self, from: ["flag": .boolean(true)]) }
    }
}

/// A userInfo that is refused, and the path in the error.
struct Refused: @unchecked Sendable, CustomTestStringConvertible {
    // Sendable: made once, and only read.
    let userInfo: [AnyHashable: Any]
    let path: String
    var testDescription: String { path }
}
