// SPDX-License-Identifier: Apache-2.0
import CarillonTestLimits
import CarillonWire
import Testing

/// userInfo as text: what people and programs see of it.
@Suite("JSON of userInfo", .limited)
struct PropertyListJSONTests {
    private func read(_ json: String) throws -> PropertyList? {
        try PropertyListJSON.userInfo(from: #"{"a": \#(json)}"#)["a"]
    }

    @Test(
        "Each type is written as JSON, and read as the corresponding JSON type",
        arguments: [
            (.string("a\"b"), #""a\"b""#, nil), (.boolean(true), "true", nil), (.boolean(false), "false", nil),
            (.uint8(255), "255", .int64(255)), (.int16(-7), "-7", .int64(-7)), (.uint16(7), "7", .int64(7)),
            (.int32(-7), "-7", .int64(-7)), (.uint32(7), "7", .int64(7)), (.int64(.min), "-9223372036854775808", nil),
            (.uint64(.max), "18446744073709551615", nil), (.double(1), "1.0", nil), (.double(-0.5), "-0.5", nil),
            (.double(.infinity), #"{"$double": "inf"}"#, nil), (.double(-.infinity), #"{"$double": "-inf"}"#, nil),
            (.data([1, 2, 255]), #"{"$data": "AQL/"}"#, nil), (.data([]), #"{"$data": ""}"#, nil),
            (.date(microsecondsSince1970: 0), #"{"$date": "1970-01-01T00:00:00Z"}"#, nil),
            (.array([.int64(1), .string("b")]), #"[1, "b"]"#, nil),
            (.dictionary(["b": .int64(1), "a": .array([])]), #"{"a": [], "b": 1}"#, nil),
        ] as [(PropertyList, String, PropertyList?)])
    func types(_ value: PropertyList, _ json: String, _ back: PropertyList?) throws {
        #expect(PropertyListJSON.text(value) == json)
        #expect(try read(json) == back ?? value)
    }

    @Test("NaN survives JSON, and an object that only resembles a type tag is an ordinary dictionary")
    func tags() throws {
        #expect(PropertyListJSON.text(.double(.nan)) == #"{"$double": "nan"}"#)
        guard case .double(let number)? = try read(#"{"$double": "nan"}"#) else {
            Issue.record("it is no number")
            return
        }
        #expect(number.isNaN)
        let two = PropertyList.dictionary(["$data": .string("AQ=="), "b": .int64(1)])
        #expect(try read(#"{"$data": "AQ==", "b": 1}"#) == two)
        #expect(try read(#"{"$data": 1}"#) == .dictionary(["$data": .int64(1)]))
        #expect(try read(#"{"$other": "AQ=="}"#) == .dictionary(["$other": .string("AQ==")]))
    }

    @Test(
        "JSON that can't be a userInfo is refused with its key path",
        arguments: [
            ("[1, null]", "userInfo.a[1]: null"), (#"{"b": null}"#, "userInfo.a.b: null"),
            ("18446744073709551616", "userInfo.a: 18446744073709551616 is out of the range of 64-bit"),
            ("-9223372036854775809", "userInfo.a: -9223372036854775809 is out of the range of 64-bit"),
            (
                String(repeating: "8", count: 65),
                "userInfo.a: " + String(repeating: "8", count: 64) + "… is out of the range of 64-bit"
            ),
            ("1e999", "userInfo.a: 1e999 is out of the range of floating-point"),
            (#"{"$data": "AQ"}"#, "userInfo.a: '$data' is not base64"), (#"{"$date": "now"}"#, "userInfo.a: '$date'"),
            (#"{"$double": "1"}"#, "userInfo.a: '$double' is none of nan, inf, -inf"), ("{", "not valid JSON"),
        ])
    func refused(_ json: String, _ reason: String) {
        let failure = #expect(throws: PropertyListJSON.Failure.self) { try read(json) }
        #expect(failure?.description.hasPrefix(reason) == true, "\(String(describing: failure))")
    }

    @Test("Only a JSON object is accepted as userInfo")
    func root() {
        #expect(throws: PropertyListJSON.Failure.self) { try PropertyListJSON.userInfo(from: "[1]") }
        #expect(throws: PropertyListJSON.Failure.self) { try PropertyListJSON.userInfo(from: "1") }
    }

    // MARK: Base64

    @Test("Data of any length survives JSON")
    func data() throws {
        for count in 0...70 {
            let data = PropertyList.data((0..<count).map { UInt8($0 * 37 & 255) })
            #expect(try read(PropertyListJSON.text(data)) == data)
        }
        #expect(PropertyListJSON.text(.data(Array("Many hands".utf8))) == #"{"$data": "TWFueSBoYW5kcw=="}"#)
    }

    @Test(
        "Base64 that is not in canonical form is refused",
        arguments: ["A", "AQ", "AQI", "AR==", "AQJ=", "A===", "====", "AQ==AQ==", "A Q=", "AQ=I", "_-==", "AQID\n"])
    func base64(_ text: String) {
        #expect(throws: PropertyListJSON.Failure.self) {
            try read(PropertyListJSON.object([("$data", PropertyListJSON.quoted(text))]))
        }
    }

    // MARK: Dates

    @Test(
        "A date is written in UTC, to the microsecond",
        arguments: [
            (0, "1970-01-01T00:00:00Z"), (1, "1970-01-01T00:00:00.000001Z"), (-1, "1969-12-31T23:59:59.999999Z"),
            (1_794_000_000_123_456, "2026-11-06T21:20:00.123456Z"), (-1_000_000, "1969-12-31T23:59:59Z"),
            (951_825_599_500_000, "2000-02-29T11:59:59.500000Z"),
        ] as [(Int64, String)])
    func dates(_ microseconds: Int64, _ text: String) {
        #expect(ISO8601Date.text(microseconds) == text)
        #expect(ISO8601Date.microseconds(from: text) == microseconds)
    }

    @Test(
        "A date with an offset or with any fraction of a second is read",
        arguments: [
            ("1970-01-01T01:00:00+01:00", 0), ("1969-12-31T22:30:00-01:30", 0),
            ("1970-01-01T23:59:59+23:59", 59_000_000),
            ("1970-01-01T00:00:00.5Z", 500_000), ("1970-01-01T00:00:00.1234567Z", 123_456),
            ("1970-01-01T00:00:00.000000999Z", 0), ("1970-01-01T23:59:59Z", 86_399_000_000),
        ] as [(String, Int64)])
    func offsets(_ text: String, _ microseconds: Int64) {
        #expect(ISO8601Date.microseconds(from: text) == microseconds)
    }

    @Test(
        "An invalid date is refused",
        arguments: [
            "", "1970-01-01", "1970-01-01T00:00:00", "1970-01-01 00:00:00Z", "1970-1-01T00:00:00Z",
            "1970-13-01T00:00:00Z", "1970-00-01T00:00:00Z", "1970-02-29T00:00:00Z", "1970-01-00T00:00:00Z",
            "1970-01-01T24:00:00Z", "1970-01-01T00:60:00Z", "1970-01-01T00:00:60Z", "1970-01-01T00:00:00.Z",
            "1970-01-01T00:00:00Zx", "1970-01-01T00:00:00+24:00", "1970-01-01T00:00:00+00:60",
            "1970-01-01T00:00:00 01:00", "x970-01-01T00:00:00Z", "1970-01-01T00-00-00Z",
        ])
    func noDates(_ text: String) {
        #expect(ISO8601Date.microseconds(from: text) == nil)
    }
}
