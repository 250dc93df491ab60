// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonTestLimits
import CarillonTestSupport
import Testing

@testable import CarillonBridge

/// Swift has no literals of these.
private let noCharacters = String(decoding: [0xEF, 0xB7, 0x90, 0xEF, 0xBF, 0xBF], as: UTF8.self)

@Suite("G2: topics of the bridge", .limited)
struct TopicTests {
    private let origin = Origin(host: "desk", user: "anna")!

    private func text(_ subject: BridgeTopic.Subject, realm: String = "home") -> String {
        BridgeTopic(subject, of: origin).text(in: realm)
    }

    @Test("The parts of a name are topic levels, and a value's object is the last level")
    func texts() {
        #expect(text(.notification(name: "com.example.Saved")) == "carillon/1/home/desk/anna/n/com/example/Saved")
        #expect(text(.value(name: "a.b", object: "x.y")) == "carillon/1/home/desk/anna/v/a/b/x.y")
        #expect(text(.online) == "carillon/1/home/desk/anna/online")
        #expect(text(.status, realm: "a/b") == "carillon/1/a%2Fb/desk/anna/status")
    }

    @Test("G3: host and user are limited to the maximum length of an origin, and must not be empty or have a NUL")
    func originBounds() {
        let longest = String(repeating: "x", count: OutsideOrigin.maxBytes)
        for text in ["x", longest] {
            #expect(Origin(host: text, user: "u") != nil && Origin(host: "h", user: text) != nil)
        }
        for text in ["", longest + "x", "a\0b"] {
            #expect(Origin(host: text, user: "u") == nil && Origin(host: "h", user: text) == nil)
        }
    }

    @Test("The number of levels of a name is limited")
    func maxLevels() {
        func name(_ count: Int) -> String { Array(repeating: "a", count: count).joined(separator: ".") }
        #expect(BridgeTopic.isPossible(name: name(192)) && !BridgeTopic.isPossible(name: name(193)))
    }

    @Test("The removal of a value goes to the topic of the value")
    func removal() {
        let message = OutwardMessage(removalOf: "a.b", "x")
        #expect(message.topic(of: origin, in: "home") == text(.value(name: "a.b", object: "x")))
        #expect(message.isRetained && message.payload.isEmpty)
    }

    @Test(
        "Characters that MQTT forbids or interprets are percent-encoded in a topic level, and decoded",
        arguments: [
            ("plain", "plain"), ("a/b", "a%2Fb"), ("+#%", "%2B%23%25"), ("\u{1}\u{7F}\u{85}", "%01%7F%C2%85"),
            (noCharacters, "%EF%B7%90%EF%BF%BF"), ("Größe 大", "Größe 大"), ("", ""), ("$SYS", "$SYS"),
        ])
    func levels(text: String, level: String) {
        #expect(TopicLevel.encoded(text) == level)
        #expect(TopicLevel.decoded(level) == text)
    }

    @Test(
        "A topic level that decodes to no D-Bus string is refused", arguments: ["%", "%4", "%GG", "%00", "%FF", "a%C3"])
    func malformedLevels(level: String) {
        #expect(TopicLevel.decoded(level) == nil)
    }

    @Test("Each topic is decoded to its original name and object, byte for byte")
    func roundTrip() throws {
        var generator = SplitMix.ofTest("TopicTests.roundTrip", standard: 4711)
        let parts = ["a", ".", "/", "+", "#", "%", "ä", "\u{301}", "e", " ", "\u{8}", "..", noCharacters, "$"]
        for _ in 0..<2_000 {
            let name = (0..<Int.random(in: 1...8, using: &generator)).map { _ in parts.randomElement(using: &generator)!
            }
            .joined()
            let object = (0..<Int.random(in: 1...4, using: &generator)).map { _ in
                parts.randomElement(using: &generator)!
            }.joined()
            let topic = text(.notification(name: name), realm: "r/1")
            #expect(!topic.contains("+") && !topic.contains("#"))
            guard case .notification(let read) = BridgeTopic(topic, in: "r/1")?.subject else {
                Issue.record("\(topic) is not read")
                continue
            }
            #expect(Array(read.utf8) == Array(name.utf8))
            guard
                case .value(let readName, let readObject) = BridgeTopic(
                    text(.value(name: name, object: object)), in: "home")?
                    .subject
            else {
                Issue.record("\(name) \(object) is not read")
                continue
            }
            #expect(Array(readName.utf8) == Array(name.utf8) && Array(readObject.utf8) == Array(object.utf8))
        }
    }

    @Test(
        "A topic of another form, realm or version is no topic of the bridge",
        arguments: [
            "", "carillon", "carillon/1/home/desk/anna", "carillon/1/home/desk/anna/n", "carillon/1/home/desk/anna/n/",
            "carillon/2/home/desk/anna/online", "carillon/1/away/desk/anna/online", "carillon/1/home//anna/online",
            "carillon/1/home/desk//online", "carillon/1/home/desk/anna/online/x", "carillon/1/home/desk/anna/v/name",
            "carillon/1/home/desk/anna/v/name/", "carillon/1/home/de%sk/anna/online", "carillon/1/home/desk/anna/x/y",
            "zigbee2mqtt/lamp", "carillon/1/home/desk/anna/n/a%00b",
        ])
    func others(topic: String) {
        #expect(BridgeTopic(topic, in: "home") == nil)
    }

    @Test("A name has two subscription filters, and a prefix has two filters with wildcards")
    func filters() {
        #expect(
            BridgeTopic.filters(name: "a.b", in: "home") == [
                "carillon/1/home/+/+/n/a/b", "carillon/1/home/+/+/v/a/b/+",
            ])
        #expect(
            BridgeTopic.filters(below: "a.b.", in: "home") == [
                "carillon/1/home/+/+/n/a/b/#", "carillon/1/home/+/+/v/a/b/#",
            ])
        #expect(BridgeTopic.presenceFilter(in: "home") == "carillon/1/home/+/+/online")
    }
}
