// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonDBus
import CarillonTestLimits
import Testing

/// The names of the D-Bus specification: libdbus aborts on a malformed one, so none may get there.
@Suite("D-Bus names", .limited)
struct NamesTests {
    @Test("Valid bus names are accepted, and malformed ones are refused")
    func busNames() {
        check(
            AnyBusName.self,
            good: [
                ":1.42", "org.example.App", "org.example._App-1", "a.b", ":a.1",
                "a." + String(repeating: "b", count: 253),
            ],
            bad: [
                "", "org", ".org.example", "org.example.", "org..example", "org.1example", "org.ex ample",
                "org.exämple",
                "a." + String(repeating: "b", count: 254), "org.example\0", "org.example/x", "org.example\n",
            ])
        check(UniqueName.self, good: [":1.42", ":a.1"], bad: ["org.example.App", ":", ":.", ":1.", ":1..2", ":1 .2"])
        check(WellKnownName.self, good: ["org.example.App"], bad: [":1.42", "org"])
        #expect(AnyBusName(":1.42").unique == ":1.42")
        #expect(AnyBusName("org.example.App").unique == nil)
    }

    @Test("Valid object paths are accepted, and malformed ones are refused")
    func objectPaths() {
        check(
            ObjectPath.self, good: ["/", "/a", "/a/b_1/C", "/1"],
            bad: ["", "a", "//", "/a/", "/a//b", "/a-b", "/ä", "/a b", "/a\0"])
    }

    @Test("Valid interface and error names are accepted, and malformed ones are refused")
    func interfaces() {
        check(
            InterfaceName.self, good: ["a.b", "org.example.App1", "_a._b", "a." + String(repeating: "b", count: 253)],
            bad: [
                "", "org", "org.", ".org", "org..a", "org.1a", "org.a-b", "org.ä", ":1.42",
                "a." + String(repeating: "b", count: 254), "a.b\0",
            ])
    }

    @Test("Valid member names are accepted, and malformed ones are refused")
    func members() {
        check(
            MemberName.self, good: ["a", "Post", "_1", String(repeating: "b", count: 255)],
            bad: ["", "1a", "a.b", "a-b", "ä", "a b", String(repeating: "b", count: 256), "a\0"])
    }

    @Test("Valid signatures, including that of a dict entry, are accepted, and malformed ones are refused")
    func signatures() {
        check(
            Signature.self,
            good: [
                "", "ybnqiuxtdsogvh", "as", "a{sv}", "(x)", "a(tsss)", "aa{sv}", "{sv}", "{oa{s(xd)}}",
                String(repeating: "a", count: 32) + "s", String(repeating: "y", count: 255),
            ],
            bad: [
                "a", "()", "(", ")", "(s", "{s}", "{vs}", "a{vs}", "{svs}", "z", "r", "e", "a{s}", "(s))", "{sv}{sv}x",
                String(repeating: "a", count: 33) + "s", String(repeating: "y", count: 256), "s\0",
            ])
    }

    private func check<Name: BusSyntax>(_ type: Name.Type, good: [String], bad: [String]) {
        for text in good {
            #expect(Name(rawValue: text)?.rawValue == text, "\(type) refuses '\(text)'")
            #expect(Name(rawValue: text)?.description == text)
        }
        for text in bad { #expect(Name(rawValue: text) == nil, "\(type) accepts '\(text)'") }
    }
}
