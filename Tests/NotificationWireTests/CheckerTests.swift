// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonTestLimits
import CarillonTestSupport
import CarillonWire
import Foundation
import Testing

@testable import CarillonDBus

/// What userInfo may hold when it arrives at the service (N3).
@Suite("N3: property lists on the wire", .limited)
struct CheckerTests {
    @Test("N3: strings, integers, floating point, booleans, data and dates are allowed")
    func basics() throws {
        try Sample.check(Sample.post("s") { $0.append("text") })
        try Sample.check(Sample.post("b") { $0.append(true) })
        try Sample.check(Sample.post("y") { $0.append(UInt8(1)) })
        try Sample.check(Sample.post("n") { $0.append(Int16(1)) })
        try Sample.check(Sample.post("q") { $0.append(UInt16(1)) })
        try Sample.check(Sample.post("i") { $0.append(Int32(1)) })
        try Sample.check(Sample.post("u") { $0.append(UInt32(1)) })
        try Sample.check(Sample.post("x") { $0.append(Int64(1)) })
        try Sample.check(Sample.post("t") { $0.append(UInt64(1)) })
        try Sample.check(Sample.post("d") { $0.append(Double.nan) })
        try Sample.check(Sample.post("ay") { $0.append(fixedArray: [UInt8](0...255)) })
        try Sample.check(Sample.post("(x)") { $0.structure { $0.append(Int64.min) } })
        try Sample.check(Sample.post("v") { $0.variant(of: "s") { $0.append("text") } })
        try Sample.check(Sample.post { $0.array(of: "{sv}") { _ in } })
    }

    @Test(
        "N3: only 0 and 1 are accepted as a boolean, alone and in an array",
        arguments: [0, 1, 2, 256, .max] as [UInt32])
    func booleans(value: UInt32) throws {
        let (alone, inArray) = (
            Sample.post("b") { $0.append(true) }, Sample.post("ab") { $0.array(of: "b") { $0.append(true) } }
        )
        for post in [alone, inArray] {
            var body = try Sample.userInfo(of: post).commonBody
            withUnsafeBytes(of: value) { body.replaceSubrange(body.count - 4..<body.count, with: $0) }
            let restored = body.withUnsafeBytes { WireUserInfo.restored(fromCommonBody: $0) }
            #expect((restored != nil) == (value <= 1))
        }
    }

    @Test(
        "N3: arrays and string-keyed dictionaries of allowed types are accepted, also when they are empty",
        arguments: [
            "s", "b", "y", "n", "q", "i", "u", "x", "t", "d", "v", "ay", "(x)", "as", "aas", "a{sv}", "a{ss}", "{sv}",
            "{ss}", "{s(x)}", "{say}", "{sa{sv}}", "{sa{sas}}",
        ] as [Signature])
    func collections(element: Signature) throws {
        try Sample.check(Sample.post(Self.array(of: element)) { $0.array(of: element) { _ in } })
    }

    @Test(
        "N3: all other types are refused, also deep inside the type of an empty array",
        arguments: [
            "o", "g", "h", "(s)", "(xx)", "()x", "(t)", "((x))", "(d)", "{ov}", "{yv}", "{iv}", "{gs}", "{so}", "{sg}",
            "{sh}", "{s(s)}", "{s{sv}}", "ao", "ah", "a{yv}", "aa{us}", "{sa{sah}}", "(xs)", "{s(xv)}", "a(xx)",
        ])
    func refusedElements(text: String) throws {
        guard let element = Signature(rawValue: text), let array = Signature(rawValue: "a" + text) else {
            try Test.cancel("skipped: \(text) is no D-Bus type, so it never arrives")
        }
        #expect(
            throws: CenterError.invalidUserInfo(
                path: "userInfo.a", reason: "D-Bus type '\(array)' is not a property-list type")
        ) { try Sample.check(Sample.post(array) { $0.array(of: element) { _ in } }) }
    }

    @Test("N3: object paths, signatures, file descriptors and other structures are refused")
    func refusedValues() {
        expectRefusal("userInfo.a", "o", Sample.post("o") { $0.append(ObjectPath("/")) })
        expectRefusal("userInfo.a", "g", Sample.post("g") { $0.append(Signature("s")) })
        let descriptor = FileDescriptor(adopting: dup(0))
        expectRefusal("userInfo.a", "h", Sample.post("h") { $0.append(descriptor) })
        expectRefusal("userInfo.a", "(s)", Sample.post("(s)") { $0.structure { $0.append("x") } })
        expectRefusal(
            "userInfo.a", "(xx)",
            Sample.post("(xx)") { writer in
                writer.structure { writer in
                    writer.append(Int64(1))
                    writer.append(Int64(2))
                }
            })
        expectRefusal("userInfo.a", "(t)", Sample.post("(t)") { $0.structure { $0.append(UInt64(1)) } })
    }

    @Test("N3: the error of a refused value names its key path")
    func keyPaths() {
        let path = Signature("o")
        expectRefusal("userInfo.größe", "o", Sample.post(key: "größe", path) { $0.append(ObjectPath("/")) })
        expectRefusal("userInfo.", "o", Sample.post(key: "", path) { $0.append(ObjectPath("/")) })
        expectRefusal(
            "userInfo.sizes[2]", "g",
            Sample.post(key: "sizes", "av") { writer in
                writer.array(of: "v") { writer in
                    writer.variant(of: "s") { $0.append("0") }
                    writer.variant(of: "s") { $0.append("1") }
                    writer.variant(of: "g") { $0.append(Signature("s")) }
                }
            })
        expectRefusal(
            "userInfo.a.b[1].c", "h",
            Sample.post("a{sv}") { writer in
                writer.array(of: "{sv}") { writer in
                    writer.entry("fine", "text")
                    writer.entry("b", "aa{sv}") { writer in
                        writer.array(of: "a{sv}") { writer in
                            writer.array(of: "{sv}") { $0.entry("fine", UInt8(1)) }
                            writer.array(of: "{sv}") { writer in
                                writer.entry("c", FileDescriptor(adopting: dup(0)))
                            }
                        }
                    }
                }
            })
        expectRefusal(
            "userInfo.a", "o",
            Sample.post("v") { $0.variant(of: "v") { $0.variant(of: "o") { $0.append(ObjectPath("/")) } } })
    }

    @Test("N3: libdbus accepts all damaged bytes that the checker accepts")
    func damaged() throws {
        let whole = Sample.post { writer in
            writer.array(of: "{sv}") { writer in
                writer.entry("größe", "text")
                writer.entry("flags", "ab") { $0.array(of: "b") { for flag in [true, false] { $0.append(flag) } } }
                writer.entry("flag", true)
                writer.entry("date", "(x)") { $0.structure { $0.append(Int64(1)) } }
                writer.entry("data", "ay") { $0.append(fixedArray: [UInt8](0..<9)) }
                writer.entry("list", "aa{sv}") { writer in
                    writer.array(of: "a{sv}") { writer in writer.array(of: "{sv}") { $0.entry("x", UInt16(1)) } }
                }
            }
        }
        var random = SplitMix.ofTest("CheckerTests.damaged", standard: 5)
        let body = whole.marshalledBody
        var (accepted, refused) = (0, 0)
        for _ in 0..<20_000 {
            var bytes = body
            for _ in 0..<Int.random(in: 1...2, using: &random) {
                bytes[Int.random(in: 0..<bytes.count, using: &random)] = .random(in: 0...255, using: &random)
            }
            if Bool.random(using: &random) { bytes.removeLast(Int.random(in: 0..<bytes.count, using: &random)) }
            let end = bytes.withUnsafeBytes { bytes -> Int? in
                var reader = MarshalledReader(bytes)
                guard reader.readText() != nil, reader.readText() != nil,
                    (try? WireUserInfo(at: &reader, limits: Limits())) != nil
                else { return nil }
                return reader.offset
            }
            guard let end else {
                refused += 1
                continue
            }
            accepted += 1
            let signal = Message.signal(
                to: ":1.0", path: Wire.path, interface: Wire.interface, member: "Damaged", serial: 1,
                signature: "ssa{sv}", body: Array(bytes[..<end]))
            #expect(signal != nil, "\(bytes)")
        }
        #expect(accepted > 1000 && refused > 1000)
    }

    @Test(
        "N3: types nest as deep as D-Bus allows and no deeper, for dictionaries and arrays alike",
        arguments: ["a{s", "a"])
    func deepTypes(opening: String) {
        func isAccepted(_ levels: Int) -> Bool {
            let closing = opening.hasSuffix("{s") ? "}" : ""
            return Self.isAccepted(
                type: String(repeating: opening, count: levels) + "y" + String(repeating: closing, count: levels))
        }
        #expect(isAccepted(1) && isAccepted(32))
        #expect(!isAccepted(33) && !isAccepted(40))
    }

    @Test("N3: a type signature that is incomplete or has surplus characters is refused")
    func brokenTypes() {
        for type in ["as", "aas", "a{ss}", "aa{sv}", "a{sa{sy}}", "a(x)"] {
            #expect(Self.isAccepted(type: type), "\(type)")
            #expect(!Self.isAccepted(type: type + "}") && !Self.isAccepted(type: type + "s"), "\(type)")
        }
        for type in ["a{s", "a{sy", "aa{sy", "a{sa{sy}", "a", "a{", "a(x", "a{s}"] {
            #expect(!Self.isAccepted(type: type), "\(type)")
        }
    }

    /// Whether one entry is, whose value is an empty array of this type.
    private static func isAccepted(type: String) -> Bool {
        var entry: [UInt8] = [1, 0, 0, 0, UInt8(ascii: "k"), 0, UInt8(type.utf8.count)] + type.utf8 + [0]
        while entry.count % 4 != 0 { entry.append(0) }
        entry += [0, 0, 0, 0]
        // Where its elements would begin.
        while type.hasPrefix("a{") || type.hasPrefix("a("), entry.count % 8 != 0 { entry.append(0) }
        let body: [UInt8] = [UInt8(entry.count), 0, 0, 0, 0, 0, 0, 0] + entry
        return body.withUnsafeBytes { bytes in
            var reader = MarshalledReader(bytes)
            return (try? WireUserInfo(at: &reader, limits: Limits())) != nil
        }
    }

    @Test("A post with malformed arguments that no bus has checked is refused")
    func damagedPost() throws {
        let post = Sample.post { $0.array(of: "{sv}") { $0.entry("key", "text") } }
        _ = post.numbered { 1 }
        let good = try #require(Message(arrived: post.withMarshalledBytes { Array($0) }))
        #expect(try Post(good, limits: Limits()) { _, _ in }.name == "Ding")
        // The NUL behind the name.
        var bytes = post.withMarshalledBytes { Array($0) }
        let body = try #require(good.arrived).header.body
        bytes[body.lowerBound + 8] = 1
        let bad = try #require(Message(arrived: bytes))
        #expect(throws: BusError.self) { _ = try Post(bad, limits: Limits()) { _, _ in } }
        #expect(throws: BusError.self) { _ = try Post.nameAndObject(of: bad) }
    }

    @Test("N3: the error shows at most the first 128 characters of a key")
    func longKeys() {
        for (length, shown) in [(127, 127), (128, 128), (129, 128), (5000, 128)] {
            let key = String(repeating: "k", count: length)
            expectRefusal(
                "userInfo." + key.prefix(shown), "o", Sample.post(key: key, "o") { $0.append(ObjectPath("/")) })
        }
    }

    @Test("A single invalid value among 2000 valid ones is found")
    func among() {
        let message = Sample.post { writer in
            writer.array(of: "{sv}") { writer in
                for index in 0..<1000 { writer.entry("key\(index)", UInt64(index)) }
                writer.entry("bad", ObjectPath("/"))
                for index in 1000..<2000 { writer.entry("key\(index)", "\(index)") }
            }
        }
        expectRefusal("userInfo.bad", "o", message)
    }

    // MARK: Size (E1)

    @Test("E1: the size of userInfo is counted as D-Bus marshals it", arguments: Self.samples.indices)
    func byteCount(index: Int) throws {
        let write = Self.samples[index]
        let alone = Message.signal(path: "/", interface: Wire.interface, member: "A")
        var writer = MessageWriter(alone)
        write(&writer)
        #expect(try Sample.check(Sample.post(write)) == alone.marshalledBody.count)
    }

    @Test(
        "E1: userInfo of exactly the limit in bytes is accepted, and one byte more is refused",
        arguments: Self.samples.indices)
    func byteLimit(index: Int) throws {
        let post = Sample.post(Self.samples[index])
        let count = UInt64(try Sample.check(post))
        var limits = Limits()
        limits[.userInfoBytes] = count
        #expect(try Sample.check(post, limits: limits) == Int(count))
        limits[.userInfoBytes] = count - 1
        #expect(throws: CenterError.limitExceeded(.userInfoBytes, value: count - 1)) {
            try Sample.check(post, limits: limits)
        }
    }

    @Test("E1: the size limit is checked first, and a forbidden value beyond it is not examined")
    func beyondLimit() {
        let post = Sample.post("av") { writer in
            writer.array(of: "v") { writer in writer.variant(of: "o") { $0.append(ObjectPath("/")) } }
        }
        // The array's own length ends there, and its only element begins.
        let element: UInt64 = 24
        var limits = Limits()
        for most in 8..<element {
            limits[.userInfoBytes] = most
            #expect(throws: CenterError.limitExceeded(.userInfoBytes, value: most)) {
                try Sample.check(post, limits: limits)
            }
        }
        limits[.userInfoBytes] = element
        #expect(
            throws: CenterError.invalidUserInfo(
                path: "userInfo.a[0]", reason: "D-Bus type 'o' is not a property-list type")
        ) { try Sample.check(post, limits: limits) }
    }

    private static let samples: [@Sendable (inout MessageWriter) -> Void] = [
        { $0.array(of: "{sv}") { _ in } },
        { $0.array(of: "{sv}") { $0.entry("a", UInt8(1)) } },
        { $0.array(of: "{sv}") { $0.entry("a", "text") } },
        { $0.array(of: "{sv}") { $0.entry("ab", Int64(1)) } },
        { $0.array(of: "{sv}") { $0.entry("größe", 1.5) } },
        { $0.array(of: "{sv}") { $0.entry("a", true) } },
        { $0.array(of: "{sv}") { $0.entry("a", Int16(1)) } },
        { writer in
            writer.array(of: "{sv}") { writer in
                writer.entry("data", "ay") { $0.append(fixedArray: [UInt8](repeating: 1, count: 1001)) }
                writer.entry("date", "(x)") { $0.structure { $0.append(Int64(1)) } }
                writer.entry("v", "v") { $0.variant(of: "v") { $0.variant(of: "d") { $0.append(1.0) } } }
            }
        },
        { writer in
            writer.array(of: "{sv}") { writer in
                writer.entry("doubles", "ad") { $0.append(fixedArray: [1.0, 2.0]) }
                writer.entry("strings", "as") { writer in
                    writer.array(of: "s") { writer in ["", "a", "abc"].forEach { writer.append($0) } }
                }
                writer.entry("dates", "a(x)") { writer in
                    writer.array(of: "(x)") { writer in
                        for index in 0..<3 { writer.structure { $0.append(Int64(index)) } }
                    }
                }
                writer.entry("nested", "a{sa{sv}}") { writer in
                    writer.array(of: "{sa{sv}}") { writer in
                        writer.dictEntry { writer in
                            writer.append("inner")
                            writer.array(of: "{sv}") { $0.entry("x", UInt16(1)) }
                        }
                    }
                }
            }
        },
        { $0.array(of: "{sv}") { $0.entry("a", "a(x)") { $0.array(of: "(x)") { _ in } } } },
        { $0.array(of: "{sv}") { $0.entry("abcde", "a(x)") { $0.array(of: "(x)") { _ in } } } },
        { $0.array(of: "{sv}") { $0.entry("a", "a{ss}") { $0.array(of: "{ss}") { _ in } } } },
        { $0.array(of: "{sv}") { $0.entry("abcde", "a{ss}") { $0.array(of: "{ss}") { _ in } } } },
        // Empty arrays of what is aligned to 8: the padding before the first element is there without one.
        { writer in
            writer.array(of: "{sv}") { writer in
                writer.entry("a", "a{sv}") { $0.array(of: "{sv}") { _ in } }
                writer.entry("bcd", "ax") { $0.append(fixedArray: [Int64]()) }
                writer.entry("c", "a(x)") { $0.array(of: "(x)") { _ in } }
            }
        },
    ]

    // MARK: -

    private static func array(of element: Signature) -> Signature { Signature(rawValue: "a" + element.rawValue)! }

    private func expectRefusal(
        _ path: String, _ type: String, _ post: Message, sourceLocation: SourceLocation = #_sourceLocation
    ) {
        #expect(
            throws: CenterError.invalidUserInfo(path: path, reason: "D-Bus type '\(type)' is not a property-list type"),
            sourceLocation: sourceLocation
        ) { try Sample.check(post) }
    }
}
