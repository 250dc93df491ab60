// SPDX-License-Identifier: Apache-2.0
import CarillonMQTT
import CarillonTestLimits
import CarillonWire
import Testing

@testable import CarillonBridge

@Suite("G2: topics of devices", .limited)
struct TopicMapTests {
    private static func map(_ rules: (name: String, from: String?, to: String?)...) throws -> TopicMap {
        var map = TopicMap()
        for rule in rules {
            let (source, target) = (try rule.from.map(TopicPattern.init), try rule.to.map(TopicPattern.init))
            map.change(rule.name) { ($0.source, $0.target) = (source, target) }
        }
        return map
    }

    @Test(
        "The object stands for the wildcards of a topic pattern, in both directions",
        arguments: [
            ("zigbee2mqtt/+", "zigbee2mqtt/lamp", "lamp"), ("owntracks/+/+", "owntracks/anna/phone", "anna/phone"),
            ("shellies/+/relay/0", "shellies/plug-1/relay/0", "plug-1"), ("a/#", "a/b/c", "b/c"),
            ("a/+/x/#", "a/b/x/c/d", "b/c/d"), ("a/b", "a/b", ""), ("$SYS/+", "$SYS/uptime", "uptime"),
            ("zigbee2mqtt/+", "zigbee2mqtt/Lampe d'été ✨", "Lampe d'été ✨"),
        ])
    func objects(_ pattern: String, _ topic: String, _ object: String) throws {
        let pattern = try TopicPattern(pattern)
        #expect(pattern.object(of: topic) == object)
        #expect(pattern.topic(of: object) == topic)
    }

    @Test(
        "A topic that does not match the pattern has no object",
        arguments: [
            ("a/+", "a"), ("a/+", "a/b/c"), ("a/+/c", "a/b/d"), ("a/b/#", "a"), ("a/b", "a/b/c"), ("a/b", "A/b"),
            ("\u{E9}/b", "e\u{301}/b"),
        ])
    func others(_ pattern: String, _ topic: String) throws {
        #expect(try TopicPattern(pattern).object(of: topic) == nil)
    }

    @Test("The topic above a wildcard # has no object") func above() throws {
        #expect(try TopicPattern("a/b/#").object(of: "a/b") == "")
    }

    @Test(
        "An object that can't fill the wildcards has no topic",
        arguments: [
            ("a/+", ""), ("a/+", "b/c"), ("a/+", "+"), ("a/+", "b#"), ("a/+/+", "b"), ("a/+/+", "b/"), ("a/#", ""),
            ("a/#", "b//c"), ("a/+", "b\u{1}"), ("a/+/#", "b"), ("a/+", String(repeating: "x", count: 70_000)),
            ("a/#", String(repeating: "x/", count: 200) + "x"),
        ])
    func impossible(_ pattern: String, _ object: String) throws {
        #expect(try TopicPattern(pattern).topic(of: object) == nil)
    }

    @Test(
        "An invalid topic pattern, or one that is not a device's, is refused",
        arguments: [
            "", "+/x", "#", "$queue/a", "/x", "a/b+", "a/#/b", "a/b#", "carillon/1/home/desk/anna/n/A", "$share/g/a",
            "a/\u{0}",
            String(repeating: "x", count: 300) + "/a", String(repeating: "a/", count: 200) + "a",
        ])
    func malformed(_ text: String) {
        #expect(throws: TopicPattern.Malformed.self) { try TopicPattern(text) }
    }

    @Test("A device's message is translated to a topic of the realm, without its user properties")
    func translation() throws {
        let map = try Self.map(("org.zigbee.Lamp", "zigbee2mqtt/+", nil), ("org.zigbee.All", "zigbee2mqtt/+/+", nil))
        var publication = Publication(topic: "zigbee2mqtt/hall/north", payload: [1])
        publication.userProperties = [UserProperty("run", "a"), UserProperty("count", "no"), UserProperty("hops", "9")]
        let north = try #require(map.translated(publication, in: "home"))
        #expect(north.topic == "carillon/1/home/zigbee2mqtt/device/n/org/zigbee/All")
        #expect(north.userProperties.first { $0.name == "object" }?.value == "hall/north")
        let read = try #require(MessageProperties(north.userProperties))
        #expect(read.sequenceNumber == nil && read.hops == 0)
        publication.topic = "zigbee2mqtt/lamp"
        publication.isRetained = true
        let value = try #require(map.translated(publication, in: "home"))
        #expect(value.topic == "carillon/1/home/zigbee2mqtt/device/v/org/zigbee/Lamp/lamp")
        publication.topic = "zigbee/lamp"
        #expect(map.translated(publication, in: "home") == nil)
        publication.topic = "zigbee2mqtt/lamp"
        publication.userProperties = [UserProperty("run", "a"), UserProperty("count", "7"), UserProperty("hops", "1")]
        #expect(map.translated(publication, in: "home") == nil, "a bridge published it")
    }

    @Test("The first of several overlapping mappings is in force")
    func overlapping() throws {
        let map = try Self.map(("A", "z/+", nil), ("B", "z/#", nil), ("C", "z/+/x", nil), ("D", "y", "z/+"))
        #expect(map.rules.map(map.isShadowed) == [false, true, true, false])
        #expect(map.filters { _ in true } == ["z/+", "y"])
        #expect(map.translated(Publication(topic: "z/a/b", payload: []), in: "home") == nil)
        let patterns = try ["a/+", "a/#", "a/b/c", "a/+/c", "a/b/+/d", "ab/#", "a"].map(TopicPattern.init)
        let overlaps = patterns.map { one in patterns.filter { $0.overlaps(one) }.map(\.text) }
        #expect(overlaps[0] == ["a/+", "a/#"])
        #expect(overlaps[1] == ["a/+", "a/#", "a/b/c", "a/+/c", "a/b/+/d", "a"])
        #expect(overlaps[2] == ["a/#", "a/b/c", "a/+/c"] && overlaps[4] == ["a/#", "a/b/+/d"])
        #expect(overlaps[6] == ["a/#", "a"])
    }

    @Test("A notification is mapped to the topic of its device, if its object fits the wildcards") func targets() throws
    {
        let map = try Self.map(("A", nil, "a/+/set"), ("B", "b", nil))
        #expect(map.target(of: "A", "x") == .topic("a/x/set"))
        #expect(map.target(of: "A", "x/y") == .impossible)
        #expect(map.target(of: "B", "x") == .none && map.target(of: "C", "") == .none)
    }

    @Test("A payload for devices is decoded to the original userInfo")
    func payloads() throws {
        let all: [[String: PropertyList]] = [
            ["value": .string("on")], ["value": .string("42")], ["value": .int64(42)], ["value": .double(1.5)],
            ["value": .boolean(true)], ["value": .data([0, 1])], ["value": .array([.int64(1), .string("two")])],
            ["value": .dictionary(["a": .int64(1)])], ["state": .string("ON")], [:],
            ["value": .int64(1), "more": .boolean(false)],
        ]
        for userInfo in all {
            let (bytes, contentType) = Payload.plain(of: userInfo)
            #expect(try Payload.userInfo(bytes, contentType: contentType, keepsWidths: false) == userInfo)
        }
        #expect(String(decoding: Payload.plain(of: all[0]).bytes, as: UTF8.self) == "on")
        #expect(String(decoding: Payload.plain(of: all[2]).bytes, as: UTF8.self) == "42")
        #expect(String(decoding: Payload.plain(of: all[8]).bytes, as: UTF8.self) == #"{"state": "ON"}"#)
    }
}
