// SPDX-License-Identifier: Apache-2.0
import CarillonTestLimits
import Testing

@testable import CarillonCBOR

@Suite("CBOR", .limited)
struct CBORTests {
    /// From "83010203".
    private static func bytes(_ digits: String) -> [UInt8] {
        let digits = Array(digits)
        return stride(from: 0, to: digits.count, by: 2).map { UInt8(String(digits[$0...$0 + 1]), radix: 16)! }
    }

    /// Examples of RFC 8949, appendix A.
    private static let standard: [(String, CBOR)] = [
        ("00", .unsigned(0, .one)), ("17", .unsigned(23, .one)), ("1818", .unsigned(24, .one)),
        ("1903e8", .unsigned(1000, .two)), ("1a000f4240", .unsigned(1_000_000, .four)),
        ("1bffffffffffffffff", .unsigned(.max, .eight)), ("3bffffffffffffffff", .negative(.max, .eight)),
        ("20", .negative(0, .one)), ("3863", .negative(99, .one)), ("3903e7", .negative(999, .two)),
        ("c249010000000000000000", .tagged(2, .bytes([1, 0, 0, 0, 0, 0, 0, 0, 0]))),
        ("fb3ff199999999999a", .double(1.1)), ("fb7e37e43c8800759c", .double(1.0e+300)),
        ("fbc010666666666666", .double(-4.1)), ("fb7ff0000000000000", .double(.infinity)),
        ("f4", .boolean(false)), ("f5", .boolean(true)), ("f6", .null), ("f7", .undefined),
        ("c074323031332d30332d32315432303a30343a30305a", .tagged(0, .text("2013-03-21T20:04:00Z"))),
        ("c11a514b67b0", .tagged(1, .unsigned(1_363_896_240, .four))), ("40", .bytes([])),
        ("4401020304", .bytes([1, 2, 3, 4])), ("60", .text("")), ("6449455446", .text("IETF")),
        ("62225c", .text("\"\\")), ("62c3bc", .text("\u{FC}")), ("64f0908591", .text("\u{10151}")),
        ("80", .array([])), ("83010203", .array([.unsigned(1, .one), .unsigned(2, .one), .unsigned(3, .one)])),
        (
            "8301820203820405",
            .array([
                .unsigned(1, .one), .array([.unsigned(2, .one), .unsigned(3, .one)]),
                .array([.unsigned(4, .one), .unsigned(5, .one)]),
            ])
        ),
        ("a0", .map([])),
        (
            "a201020304",
            .map([
                .init(.unsigned(1, .one), .unsigned(2, .one)), .init(.unsigned(3, .one), .unsigned(4, .one)),
            ])
        ),
        (
            "a26161016162820203",
            .map([
                .init(.text("a"), .unsigned(1, .one)),
                .init(.text("b"), .array([.unsigned(2, .one), .unsigned(3, .one)])),
            ])
        ),
    ]

    @Test("The examples of RFC 8949 are decoded, and encoded to identical bytes", arguments: standard)
    func examples(digits: String, item: CBOR) throws {
        #expect(try CBOR(Self.bytes(digits)) == item)
        #expect(item.encoded == Self.bytes(digits))
    }

    @Test(
        "Alternative encodings of an item are decoded",
        arguments: [
            ("f93c00", .double(1)), ("f90001", .double(5.960464477539063e-8)), ("fa47c35000", .double(100_000)),
            ("f97c00", .double(.infinity)), ("5f42010243030405ff", .bytes([1, 2, 3, 4, 5])),
            ("7f657374726561646d696e67ff", .text("streaming")), ("9fff", .array([])),
            ("9f0102ff", .array([.unsigned(1, .one), .unsigned(2, .one)])),
            ("bf616101ff", .map([.init(.text("a"), .unsigned(1, .one))])),
            ("7fff", .text("")), ("5fff", .bytes([])), ("1b0000000000000005", .unsigned(5, .eight)),
        ] as [(String, CBOR)])
    func otherForms(digits: String, item: CBOR) throws {
        #expect(try CBOR(Self.bytes(digits)) == item)
    }

    @Test(
        "Malformed CBOR is refused",
        arguments: [
            "", "18", "1903", "1a0102", "1b01020304050607", "38", "58", "41", "4201", "5affffffff00", "61", "62c3",
            "61ff",
            "5bffffffffffffffff010203", "7bffffffffffffffff010203", "81", "818181818181818181", "8200", "a1", "a20102",
            "a100", "a2000000", "9bffffffffffffffff", "bbffffffffffffffff", "9b7fffffffffffffff00", "c0", "d8", "f9",
            "fa00",
            "fb00000000000000", "1c", "1d", "1e", "3c", "3d", "5c", "7c", "9c", "bc", "dc", "fc", "fd", "fe", "f800",
            "f818",
            "ff", "81ff", "8200ff", "a1ff", "a100ff", "c0ff", "bf00ff", "5f00ff", "5f5f4100ffff", "5f6100ff",
            "7f4100ff",
            "7f61ffff", "5f", "7f", "9f", "bf", "9f00", "bf0000", "0000", "8000", "e0", "f0",
        ])
    func malformed(digits: String) {
        #expect(throws: CBOR.Malformed.self) { try CBOR(Self.bytes(digits)) }
    }

    @Test("The decoder limits the nesting depth of arrays, maps and tags")
    func depth() throws {
        for head in ["81", "9f", "c1", "a100"] {
            let deep = String(repeating: head, count: CBOR.maximumDepth - 1)
            let ends = head == "9f" ? String(repeating: "ff", count: CBOR.maximumDepth - 1) : ""
            _ = try CBOR(Self.bytes(deep + "00" + ends))
            #expect(throws: CBOR.Malformed.self) { try CBOR(Self.bytes(head + deep + "00" + ends)) }
            #expect(throws: CBOR.Malformed.self) { try CBOR(Self.bytes(String(repeating: head, count: 1_000_000))) }
        }
    }

    @Test("Every tag number survives encoding and decoding", arguments: Array(0...30) + [255, 256, 65_536, UInt64.max])
    func tags(number: UInt64) throws {
        let item = CBOR.tagged(number, .unsigned(1, .one))
        #expect(try CBOR(item.encoded) == item)
    }

    @Test("A decoding error contains the byte position")
    func position() {
        #expect(throws: CBOR.Malformed(position: 2, reason: "the bytes end too early")) {
            try CBOR([0x82, 0x01, 0x61])
        }
    }

    @Test("Random bytes are refused or decoded, and decoded items survive another encoding and decoding")
    func random() throws {
        var generator = SplitMix.ofTest("CBORTests.random")
        var readCount = 0
        for _ in 0..<20_000 {
            let bytes = (0..<Int.random(in: 1...24, using: &generator)).map { _ in
                UInt8.random(in: 0...255, using: &generator)
            }
            guard let item = try? CBOR(bytes) else { continue }
            readCount += 1
            // NaN is not equal to itself.
            let again = try CBOR(item.encoded)
            #expect(again.encoded == item.encoded, "\(bytes)")
        }
        #expect(readCount > 100)
    }
}
