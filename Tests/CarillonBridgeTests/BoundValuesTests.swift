// SPDX-License-Identifier: Apache-2.0
import MQTT
import TestLimits
import Testing

@testable import CarillonBridge

@Suite("R8: values that go with their posters, on other machines", .limited)
struct BoundValuesTests {
    private let desk = Origin(host: "desk", user: "anna")!
    private let online = HostTable.Host(isOnline: true, run: "1")

    private func message(
        _ object: String, _ text: String = "{}", while run: String? = "1", isRetained: Bool = true
    ) throws -> InwardMessage {
        var properties = MessageProperties()
        properties.boundTo = run
        properties.object = object
        let topic = BridgeTopic(
            isRetained && !object.isEmpty ? .value(name: "N", object: object) : .notification(name: "N"), of: desk)
        let publication = Publication(
            topic: topic.text(in: "home"), payload: Array(text.utf8), isRetained: isRetained,
            userProperties: properties.all)
        return try InwardMessage(publication, on: topic)
    }

    private func objects(_ messages: [InwardMessage]) -> [String] { messages.map(\.object) }

    @Test("They are there while their host is, with the run that they were published under")
    func follow() throws {
        var values = BoundValues()
        for object in ["b", "a"] {
            let verdict = values.take(try message(object), host: online)
            #expect(verdict == .post)
        }
        let other = values.take(try message("c", while: nil), host: online)
        #expect(other == .post)
        var change = values.follow(desk, online)
        #expect(change.over.isEmpty && change.again.isEmpty)
        for host in [HostTable.Host(isOnline: false, run: "1"), HostTable.Host(isOnline: true, run: "2"), nil] {
            change = values.follow(desk, host)
            #expect(objects(change.over) == ["a", "b"] && change.again.isEmpty)
            change = values.follow(desk, host)
            #expect(change.over.isEmpty, "once")
            change = values.follow(desk, online)
            #expect(objects(change.again) == ["a", "b"] && change.over.isEmpty)
        }
    }

    @Test("One that comes while its host is not there waits for it; a newer one takes its place, whatever it is")
    func wait() throws {
        var values = BoundValues()
        for (object, host) in [("a", nil), ("b", HostTable.Host(isOnline: false, run: "1")), ("c", nil), ("d", nil)] {
            let verdict = values.take(try message(object), host: host)
            #expect(verdict == .wait)
        }
        let plain = values.take(try message("c", while: nil), host: nil)
        let removal = values.take(try message("d", ""), host: nil)
        #expect(plain == .post && removal == .post)
        let change = values.follow(desk, online)
        #expect(objects(change.again) == ["a", "b"])
    }

    @Test("A notification that is no value changes nothing")
    func noValue() throws {
        var values = BoundValues()
        _ = values.take(try message(""), host: online)
        let verdict = values.take(try message("", isRetained: false), host: online)
        #expect(verdict == .post && values.all.count == 1)
    }

    @Test("They are bounded, and room comes back")
    func bounds() throws {
        var values = BoundValues()
        for number in 0..<BoundValues.maxCount { _ = values.take(try message("\(number)"), host: online) }
        let refused = values.take(try message("more"), host: online)
        let again = values.take(try message("7"), host: online)
        #expect(refused == .refuse && again == .post)
        _ = values.take(try message("7", ""), host: online)
        let next = values.take(try message("more"), host: online)
        #expect(next == .post)
    }

    @Test("A removal of one is a message as the broker sends it")
    func removal() throws {
        for object in ["", "a/b", "\u{7}"] {
            let removal = try #require(try message(object).removal(in: "home"))
            if case .notification = removal.content { Issue.record("it is a notification") }
            #expect(removal.object == object && removal.name == "N" && removal.origin == desk && removal.isKept)
        }
    }

    @Test("They come back with the state, and whether the session has them")
    func saved() throws {
        var values = BoundValues()
        _ = values.take(try message("a"), host: online)
        _ = values.take(try message("b", while: "2"), host: online)
        let state = SavedState(
            realm: "home", origin: desk, counts: TopicCounts(run: "r"), places: [], queue: [], bound: values.all)
        let read = try #require(SavedState(state.bytes(now: 0), now: 0))
        #expect(read.bound.map(\.isHere) == [true, false] && objects(read.bound.map(\.message)) == ["a", "b"])
        var next = BoundValues()
        for value in read.bound { next.restore(value) }
        let change = next.follow(desk, HostTable.Host(isOnline: true, run: "2"))
        #expect(objects(change.over) == ["a"] && objects(change.again) == ["b"])
    }

    @Test("A host that the broker has forgotten is offline after a while; one that it shows is not")
    func forgotten() throws {
        var hosts = HostTable()
        let lap = Origin(host: "lap", user: "ben")!
        let message = Publication(topic: "t", payload: Array(#"{"online": true, "run": "1"}"#.utf8), isRetained: true)
        for origin in [desk, lap] { _ = hosts.take(message, of: origin) }
        hosts.beginConfirming()
        let isNews = hosts.take(message, of: lap) != nil
        let forgotten = hosts.endConfirming()
        #expect(!isNews && forgotten == [desk] && hosts[desk]?.isOnline == false && hosts[lap]?.isOnline == true)
        let again = hosts.endConfirming()
        #expect(again == [])
    }
}
