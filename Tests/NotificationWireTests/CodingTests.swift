// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonDBus
import CarillonTestLimits
import CarillonWire
import Testing

/// A client's userInfo, written and read (N3).
@Suite("N3: encoding and decoding of userInfo values", .limited)
struct CodingTests {
    @Test("N3: each value arrives with the type with which it was written")
    func roundTrips() throws {
        let values: [PropertyList] = [
            .string(""), .string("Größe 🔔"), .string(String(repeating: "x", count: 100_000)),
            .boolean(true), .boolean(false),
            .uint8(.max), .int16(.min), .uint16(.max), .int32(.min), .uint32(.max), .int64(.min), .int64(.max),
            .uint64(.max), .double(0), .double(1), .double(-.infinity), .double(.leastNonzeroMagnitude),
            .data([]), .data([0, 255]), .data([UInt8](repeating: 7, count: 100_000)),
            .date(microsecondsSince1970: 0), .date(microsecondsSince1970: .min), .date(microsecondsSince1970: .max),
            .array([]), .array([.string("a"), .string("b")]), .array([.int64(1), .int64(2)]),
            .array([.boolean(true), .boolean(false)]), .array([.date(microsecondsSince1970: 1)]),
            .array([.data([1]), .data([])]), .array([.double(1.5), .double(2)]),
            // Mixed, and those that would read as something else if they were written as one type.
            .array([.int64(1), .double(1), .string("1"), .boolean(true), .data([1]), .array([]), .dictionary([:])]),
            .array([.int64(1), .int32(1)]), .array([.uint8(1), .uint8(2)]), .array([.array([]), .array([.uint8(1)])]),
            .array([.array([.int64(1)]), .array([.int64(2)])]),
            .array([.array([.int64(1)]), .array([.string("x")])]),
            .array([.dictionary(["a": .int64(1)]), .dictionary([:])]),
            .dictionary([:]), .dictionary(["": .string("")]),
            .dictionary(["a": .dictionary(["b": .array([.dictionary(["c": .uint16(1)])])])]),
        ]
        for value in values { #expect(try roundTrip(["key": value]) == ["key": value]) }
        let all = Dictionary(uniqueKeysWithValues: values.enumerated().map { ("key\($0.offset)", $0.element) })
        #expect(try roundTrip(all) == all)
        #expect(try roundTrip([:]) == [:])
    }

    @Test("N3: NaN arrives as NaN")
    func nan() throws {
        guard case .double(let value)? = try roundTrip(["a": .double(.nan)])["a"] else {
            Issue.record("it is no double")
            return
        }
        #expect(value.isNaN)
    }

    @Test("N3: the service accepts userInfo that a client writes within the limits")
    func accepted() throws {
        let userInfo: [String: PropertyList] = [
            "mixed": .array([.int64(1), .string("a"), .dictionary(["b": .data([1])])]),
            "date": .date(microsecondsSince1970: -1), "empty": .array([]), "dictionary": .dictionary([:]),
            "arrays": .array([.array([.uint8(1)]), .array([])]),
        ]
        var result: Result<Void, CenterError> = .success(())
        let post = Sample.post { writer in
            do throws(CenterError) {
                try UserInfoCoding.append(userInfo, to: &writer)
            } catch {
                result = .failure(error)
            }
        }
        try result.get()
        try Sample.check(post)
    }

    @Test("An array of one simple type is written with that type, and any other array as variants")
    func signatures() throws {
        #expect(try valueSignature(.array([.string("a")])) == "as")
        #expect(try valueSignature(.array([.int64(1), .int64(2)])) == "ax")
        #expect(try valueSignature(.array([.date(microsecondsSince1970: 1)])) == "a(x)")
        #expect(try valueSignature(.array([.data([1])])) == "aay")
        #expect(try valueSignature(.array([.dictionary([:])])) == "aa{sv}")
        #expect(try valueSignature(.array([])) == "av")
        #expect(try valueSignature(.array([.uint8(1)])) == "av")
        #expect(try valueSignature(.array([.int64(1), .double(1)])) == "av")
        #expect(try valueSignature(.array([.array([.int64(1)])])) == "av")
        #expect(try valueSignature(.data([])) == "ay")
        #expect(try valueSignature(.date(microsecondsSince1970: 1)) == "(x)")
    }

    @Test("Typed containers of other languages are read: as, aai, a{ss}, variants in variants")
    func foreign() throws {
        let message = Sample.post { writer in
            writer.array(of: "{sv}") { writer in
                writer.entry("as", "as") { writer in writer.array(of: "s") { $0.append("a") } }
                writer.entry("aai", "aai") { writer in
                    writer.array(of: "ai") { $0.append(fixedArray: [Int32(1), 2]) }
                }
                writer.entry("a{ss}", "a{ss}") { writer in
                    writer.array(of: "{ss}") { writer in
                        writer.dictEntry { writer in
                            writer.append("k")
                            writer.append("v")
                        }
                    }
                }
                writer.entry("vv", "v") { $0.variant(of: "v") { $0.variant(of: "y") { $0.append(UInt8(1)) } } }
            }
        }
        var reader = MessageReader(message)
        reader.skip()
        reader.skip()
        let expected: [String: PropertyList] = [
            "as": .array([.string("a")]), "aai": .array([.array([.int32(1), .int32(2)])]),
            "a{ss}": .dictionary(["k": .string("v")]), "vv": .uint8(1),
        ]
        #expect(try UserInfoCoding.read(from: &reader) == expected)
    }

    @Test("N3: a NUL character is refused, with the key path, before anything is written")
    func nul() {
        let reason = "a D-Bus string can't hold a NUL character"
        func expect(_ userInfo: [String: PropertyList], at path: String) {
            let message = Wire.methodCall("Post")
            var writer = MessageWriter(message)
            #expect(throws: CenterError.invalidUserInfo(path: path, reason: reason)) {
                try UserInfoCoding.append(userInfo, to: &writer)
            }
            #expect(message.signature == "")
        }
        expect(["a": .string("x\0y")], at: "userInfo.a")
        expect(["a": .array([.string("fine"), .string("\0")])], at: "userInfo.a[1]")
        expect(["a": .dictionary(["b": .string("\0")])], at: "userInfo.a.b")
        expect(["k\0": .string("fine")], at: "userInfo.k\0")
    }

    @Test("E1: a client refuses to write userInfo larger than any service accepts")
    func size() {
        let maximum = Limits.row(.userInfoBytes).hardMaximum
        let message = Wire.methodCall("Post")
        var writer = MessageWriter(message)
        #expect(throws: CenterError.limitExceeded(.userInfoBytes, value: maximum)) {
            try UserInfoCoding.append(["a": .data([UInt8](repeating: 0, count: Int(maximum)))], to: &writer)
        }
        #expect(message.signature == "")
    }

    private func roundTrip(_ userInfo: [String: PropertyList]) throws -> [String: PropertyList] {
        let message = Wire.methodCall("Post")
        var writer = MessageWriter(message)
        try UserInfoCoding.append(userInfo, to: &writer)
        #expect(message.signature == "a{sv}")
        var reader = MessageReader(message)
        return try UserInfoCoding.read(from: &reader)
    }

    private func valueSignature(_ value: PropertyList) throws -> Signature {
        let message = Wire.methodCall("Post")
        var writer = MessageWriter(message)
        try UserInfoCoding.append(["a": value], to: &writer)
        var reader = MessageReader(message)
        var entries = try reader.readContainer(.array)
        var entry = try entries.readContainer(.dictEntry)
        entry.skip()
        var variant = try entry.readContainer(.variant)
        return variant.nextSignature
    }
}
