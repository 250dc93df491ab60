// SPDX-License-Identifier: Apache-2.0
import CarillonCBOR
import CarillonTestLimits
import CarillonWire
import Testing

@testable import CarillonBridge

@Suite("G2: payloads in CBOR", .limited)
struct CBORPayloadTests {
    private func read(_ bytes: [UInt8], keepsWidths: Bool = false) throws -> [String: PropertyList] {
        try Payload.userInfo(bytes, contentType: "application/cbor", keepsWidths: keepsWidths)
    }

    private func read(_ item: CBOR, keepsWidths: Bool = false) throws -> [String: PropertyList] {
        try read(item.encoded, keepsWidths: keepsWidths)
    }

    private static let values: [PropertyList] = [
        .string(""), .string("e\u{301}\n\u{10151}"), .boolean(true), .boolean(false), .data([]), .data([0, 255]),
        .uint8(0), .uint8(23), .uint8(24), .uint8(.max), .int16(0), .int16(5), .int16(-1), .int16(.min), .int16(.max),
        .uint16(0), .uint16(.max), .int32(0), .int32(-1), .int32(.min), .int32(.max), .uint32(7), .uint32(.max),
        .int64(0), .int64(-1), .int64(.min), .int64(.max), .uint64(0), .uint64(.max),
        .double(0), .double(-0.0), .double(1), .double(.pi), .double(.infinity), .double(-.infinity),
        .double(.leastNonzeroMagnitude), .date(microsecondsSince1970: 0), .date(microsecondsSince1970: 1),
        .date(microsecondsSince1970: -1), .date(microsecondsSince1970: 1_795_000_000_123_457),
        .date(microsecondsSince1970: 253_402_300_800_000_001), .date(microsecondsSince1970: -253_402_300_800_000_001),
        .date(microsecondsSince1970: .max), .array([]), .array([.int32(1), .string("a"), .array([.uint16(2)])]),
        .dictionary([:]), .dictionary(["b": .int16(1), "a": .dictionary(["": .data([1])])]),
    ]

    @Test("Each value survives encoding and decoding with its integer width", arguments: values)
    func widths(value: PropertyList) throws {
        let bytes = Payload.cbor(of: ["value": value])
        #expect(try read(bytes, keepsWidths: true) == ["value": value])
    }

    @Test("Without the option for widths all integers are decoded as 64-bit integers")
    func plain() throws {
        let items: [(CBOR, PropertyList)] = [
            (.unsigned(5, .one), .int64(5)), (.unsigned(200, .one), .int64(200)), (.unsigned(1, .two), .int64(1)),
            (.unsigned(UInt64(Int64.max) + 1, .eight), .uint64(UInt64(Int64.max) + 1)),
            (.negative(0, .four), .int64(-1)),
            (.tagged(2, .bytes([0, 0, 1, 0])), .int64(256)), (.tagged(2, .bytes([])), .int64(0)),
            (.tagged(3, .bytes([1, 0])), .int64(-257)),
        ]
        for (item, value) in items { #expect(try read(item) == ["value": value]) }
        let widest = CBOR.map([.init(.text("n"), .unsigned(1, .eight))])
        #expect(try read(.tagged(55799, widest)) == ["n": .int64(1)])
    }

    @Test("Dates are decoded from tags 0, 1 and 1001")
    func dates() throws {
        let second = PropertyList.date(microsecondsSince1970: 1_363_896_240_000_000)
        let half = PropertyList.date(microsecondsSince1970: 1_363_896_240_500_000)
        let items: [(CBOR, PropertyList)] = [
            (.tagged(0, .text("2013-03-21T20:04:00Z")), second), (.tagged(1, .unsigned(1_363_896_240, .four)), second),
            (.tagged(1, .double(1_363_896_240.5)), half),
            (.tagged(1, .negative(0, .one)), .date(microsecondsSince1970: -1_000_000)),
            (
                .tagged(
                    1001,
                    .map([
                        .init(.unsigned(1, .one), .unsigned(1_363_896_240, .four)),
                        .init(.negative(8, .one), .unsigned(500_000_000, .four)),
                    ])), half
            ),
            (.tagged(1001, .map([.init(.unsigned(1, .one), .unsigned(1_363_896_240, .four))])), second),
        ]
        for (item, value) in items { #expect(try read(item) == ["value": value]) }
    }

    @Test("Items that a property list can't have are refused with their key path")
    func refused() {
        let items: [(CBOR, String)] = [
            (.null, "userInfo: null is not a property-list value"),
            (.map([.init(.text("a"), .array([.undefined]))]), "userInfo.a[0]: undefined is not a property-list value"),
            (.map([.init(.unsigned(1, .one), .null)]), "userInfo: a key is not text"),
            (
                .map([.init(.text("a"), .text("")), .init(.text("a"), .text(""))]),
                "userInfo: the key 'a' is given twice"
            ),
            (.negative(.max, .eight), "userInfo: a number is out of the range of 64-bit integers"),
            (
                .tagged(2, .bytes([1, 0, 0, 0, 0, 0, 0, 0, 0])),
                "userInfo: the value with the tag 2 is invalid or out of range"
            ),
            (
                .tagged(3, .bytes([255, 0, 0, 0, 0, 0, 0, 0])),
                "userInfo: the value with the tag 3 is invalid or out of range"
            ),
            (.tagged(1, .double(.nan)), "userInfo: the value with the tag 1 is invalid or out of range"),
            (.tagged(1, .double(1e300)), "userInfo: the value with the tag 1 is invalid or out of range"),
            (
                .tagged(1, .unsigned(.max, .eight)),
                "userInfo: the value with the tag 1 is invalid or out of range"
            ),
            (.tagged(0, .text("now")), "userInfo: the value with the tag 0 is invalid or out of range"),
            (.tagged(1001, .map([])), "userInfo: the value with the tag 1001 is invalid or out of range"),
            (
                .tagged(1001, .map([.init(.negative(5, .one), .unsigned(7, .one))])),
                "userInfo: the value with the tag 1001 is invalid or out of range"
            ),
            (.tagged(4, .array([])), "userInfo: a value with the tag 4 is not a property-list value"),
        ]
        for (item, reason) in items { #expect(throws: Payload.Malformed(reason: reason)) { try read(item) } }
        #expect(throws: Payload.Malformed(reason: "it is not CBOR: the bytes end too early (byte 0)")) {
            try read([0x41])
        }
    }

    @Test("Tags that only annotate a text or bytes are ignored")
    func tags() throws {
        #expect(try read(.tagged(32, .text("http://a"))) == ["value": .string("http://a")])
        #expect(try read(.tagged(37, .bytes([1, 2]))) == ["value": .data([1, 2])])
    }
}
