// SPDX-License-Identifier: Apache-2.0
import CarillonMQTT
import CarillonTestLimits
import CarillonWire
import Testing

@testable import CarillonBridge

@Suite("G2: message format", .limited)
struct MessageTests {
    private func read(
        _ payload: String, topic: String = "carillon/1/home/lap/ben/n/com/example/Saved", contentType: String? = nil,
        isRetained: Bool = false, expiry: UInt32? = nil, _ properties: [(String, String)] = []
    ) throws -> InwardMessage {
        let publication = Publication(
            topic: topic, payload: Array(payload.utf8), isRetained: isRetained, contentType: contentType,
            expiry: expiry,
            userProperties: properties.map { UserProperty($0.0, $0.1) })
        return try InwardMessage(publication, on: try #require(BridgeTopic(topic, in: "home")))
    }

    private func userInfo(_ message: InwardMessage) -> [String: PropertyList]? {
        if case .notification(let userInfo) = message.content { userInfo } else { nil }
    }

    @Test("JSON of a plain MQTT client is a notification without any user properties")
    func plain() throws {
        let message = try read(#"{"bytes": 4711, "name": "a"}"#)
        #expect(message.name == "com.example.Saved" && message.object.isEmpty && !message.isRetainedValue)
        #expect(message.origin == Origin(host: "lap", user: "ben"))
        #expect(userInfo(message) == ["bytes": .int64(4711), "name": .string("a")])
        #expect(message.properties.sequenceNumber == nil)
        #expect(userInfo(try read("")) == [:])
        #expect(userInfo(try read("21.5")) == ["value": .double(21.5)])
        #expect(userInfo(try read(#"["a", 1]"#)) == ["value": .array([.string("a"), .int64(1)])])
        #expect(userInfo(try read("{}", contentType: "Application/JSON; charset=utf-8")) == [:])
    }

    @Test(
        "A payload that can't be a userInfo is refused",
        arguments: ["{", "{\"a\": 1} x", #"{"a": 1e999}"#, " [1", "{\"a\": \"\u{0}\"}"])
    func malformed(payload: String) {
        #expect(throws: InwardMessage.Refusal.self) { try read(payload) }
    }

    @Test("Plain text of devices is a string, other payloads are data, and null is left out")
    func anyDevice() throws {
        for text in ["ON", "offline", "21,5 °C", "NaN", "'n'", "1e999"] {
            #expect(userInfo(try read(text)) == ["value": .string(text)])
        }
        #expect(userInfo(try read("\u{0}\u{1}")) == ["value": .data([0, 1])])
        #expect(userInfo(try read("null")) == [:])
        #expect(
            userInfo(try read(#"{"a": null, "b": {"c": null}, "d": [1, null]}"#)) == [
                "b": .dictionary([:]), "d": .array([.int64(1)]),
            ])
        #expect(userInfo(try read("{}", contentType: "text/plain; charset=utf-8")) == ["value": .string("{}")])
        #expect(userInfo(try read("{}", contentType: "image/png")) == ["value": .data([0x7B, 0x7D])])
        #expect(throws: InwardMessage.Refusal.self) { try read("ON", contentType: "application/json") }
    }

    @Test("Object, serial and sequence number are read from user properties, and the first of a repeated one counts")
    func properties() throws {
        let message = try read(
            "{}",
            [
                ("object", "a.txt"), ("object", "b"), ("serial", "7"), ("count", "3"), ("run", "x1"), ("hops", "4"),
                ("z", ""),
            ])
        #expect(message.object == "a.txt")
        #expect(message.properties.sequenceNumber == MessageProperties.SequenceNumber(run: "x1", count: 3))
        #expect(message.properties.serial == 7)
        #expect(try read("{}", [("object-percent", "a%0Ab")]).object == "a\nb")
    }

    @Test(
        "A user property with an invalid value is refused",
        arguments: [
            ("count", "0"), ("count", "-1"), ("count", "x"), ("serial", "18446744073709551616"), ("hops", ""),
            ("object-percent", "%0"), ("time", "now"),
        ])
    func malformedProperty(name: String, value: String) {
        #expect(throws: InwardMessage.Refusal.undecodable("a user property has an invalid value")) {
            try read("{}", [(name, value), ("run", "r")])
        }
    }

    @Test("A message that has passed more than four bridges is refused")
    func hops() {
        #expect(throws: InwardMessage.Refusal.tooManyHops) { try read("{}", [("hops", "5")]) }
    }

    @Test("A retained message is a value with its expiry, and an empty payload is its removal")
    func values() throws {
        let topic = "carillon/1/home/lap/ben/v/com/example/Battery/BAT0"
        let message = try read(#"{"level": 50}"#, topic: topic, isRetained: true, expiry: 60)
        #expect(message.name == "com.example.Battery" && message.object == "BAT0")
        #expect(message.isRetainedValue && message.expiresAfter == 60 && !message.mayBeOld)
        #expect(message.marked(anew: true).mayBeOld)
        #expect(try read("{}", [("value", "1")]).mayBeOld)
        guard case .removal = try read("", topic: topic, isRetained: true).content else {
            Issue.record("it is no removal")
            return
        }
    }

    @Test("User properties survive encoding and decoding")
    func roundTrip() throws {
        var properties = MessageProperties()
        (properties.object, properties.serial, properties.hops, properties.time) = ("a\u{7}b", 9, 1, -5)
        properties.sequenceNumber = .init(run: "r", count: 12)
        properties.isOldValue = true
        properties.identity = "1000/9/-5"
        #expect(MessageProperties(properties.all) == properties)
        #expect(properties.all.allSatisfy { $0.value.unicodeScalars.allSatisfy(TopicLevel.isAllowed) })
    }
}
