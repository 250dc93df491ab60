// SPDX-License-Identifier: Apache-2.0
import CarillonMQTT
import CarillonTestLimits
import CarillonWire
import Testing

@testable import CarillonBridge

/// A value that the broker tells anew is posted only where it is not here already, and one is here when the service has
/// one of the same name, object, machine and user with the same content.
@Suite("G2, G3: comparison of an arriving value with the session's values", .limited)
struct KeptHereTests {
    private static let here = RetainedValueInfo(
        name: "com.example.Battery", object: "BAT\u{E9}", userInfo: ["level": .int64(7)],
        details: ["host": .string("desk"), "user": .string("ann\u{E9}"), "serial": .uint64(3), "pid": .uint32(7)])

    private func message() throws -> InwardMessage {
        let topic = BridgeTopic(
            .value(name: "com.example.Battery", object: "BAT\u{E9}"), of: Origin(host: "desk", user: "ann\u{E9}")!)
        let publication = Publication(
            topic: topic.text(in: "home"), payload: Array(#"{"level": 7}"#.utf8), isRetained: true)
        return try InwardMessage(publication, on: try #require(BridgeTopic(publication.topic, in: "home")))
    }

    @Test("G3: equal name, object, content, host and user make a value present, regardless of other details")
    func same() throws {
        #expect(try message().isRetainedValue(as: Self.here, ["level": .int64(7)], now: 0))
    }

    @Test("G2: a value with another expiry time is not present")
    func lifetime() throws {
        var value = Self.here
        value.details["expiry"] = .int64(160_000_000)
        let userInfo: [String: PropertyList] = ["level": .int64(7)]
        #expect(try !message().isRetainedValue(as: value, userInfo, now: 100_000_000))
        let expiring = try message().expiring(after: 62)
        #expect(expiring.isRetainedValue(as: value, userInfo, now: 100_000_000))
        #expect(!expiring.isRetainedValue(as: value, userInfo, now: 110_000_000))
        #expect(!expiring.isRetainedValue(as: Self.here, userInfo, now: 100_000_000))
    }

    @Test(
        "G3: a value with another or missing name, object, content, host or user is not the kept value",
        arguments: [
            { $0.name = "com.example.Batter" }, { $0.object = "" }, { $0.object = "BATe\u{301}" },
            { $0.userInfo = [:] }, { $0.userInfo = ["level": .int64(8)] },
            { $0.userInfo = ["level": .int64(7), "more": .boolean(true)] },
            { $0.details["host"] = .string("lap") }, { $0.details["host"] = nil }, { $0.details["host"] = .string("") },
            { $0.details["user"] = .string("ben") }, { $0.details["user"] = nil },
            { $0.details["user"] = .string("anne\u{301}") },
            {
                $0.details["host"] = .string("ann\u{E9}")
                $0.details["user"] = .string("desk")
            },
        ] as [@Sendable (inout RetainedValueInfo) -> Void])
    func another(change: @Sendable (inout RetainedValueInfo) -> Void) throws {
        var value = Self.here
        change(&value)
        #expect(try !message().isRetainedValue(as: value, ["level": .int64(7)], now: 0))
    }
}
