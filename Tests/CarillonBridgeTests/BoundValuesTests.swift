// SPDX-License-Identifier: Apache-2.0
import CarillonMQTT
import CarillonTestLimits
import Testing

@testable import CarillonBridge

@Suite("R8: while-connected values of other machines", .limited)
struct BoundValuesTests {
    private let desk = Origin(host: "desk", user: "anna")!
    private let online = HostTable.Host(isOnline: true, run: "1")

    private func message(
        _ object: String, _ text: String = "{}", while run: String? = "1", isRetained: Bool = true,
        of origin: Origin? = nil, expiry: UInt32? = nil
    ) throws -> InwardMessage {
        let origin = origin ?? desk
        var properties = MessageProperties()
        properties.boundTo = run
        properties.object = object
        let topic = BridgeTopic(
            isRetained && !object.isEmpty ? .value(name: "N", object: object) : .notification(name: "N"), of: origin)
        let publication = Publication(
            topic: topic.text(in: "home"), payload: Array(text.utf8), isRetained: isRetained, expiry: expiry,
            userProperties: properties.all)
        return try InwardMessage(publication, on: topic)
    }

    private func objects(_ messages: [InwardMessage]) -> [String] { messages.map(\.object) }

    @Test("While-connected values exist only while their host is online with the run that published them")
    func follow() throws {
        var values = BoundValues()
        for object in ["b", "a"] {
            let verdict = values.take(try message(object), host: online, now: 0)
            #expect(verdict == .post)
        }
        let other = values.take(try message("c", while: nil), host: online, now: 0)
        #expect(other == .post)
        var change = values.follow(desk, online, now: 0)
        #expect(change.over.isEmpty && change.again.isEmpty)
        for host in [HostTable.Host(isOnline: false, run: "1"), HostTable.Host(isOnline: true, run: "2"), nil] {
            change = values.follow(desk, host, now: 0)
            #expect(objects(change.over) == ["a", "b"] && change.again.isEmpty)
            change = values.follow(desk, host, now: 0)
            #expect(change.over.isEmpty, "once")
            change = values.follow(desk, online, now: 0)
            #expect(objects(change.again) == ["a", "b"] && change.over.isEmpty)
        }
    }

    @Test("A value of an offline host waits for the host, and a newer message of its topic replaces it")
    func wait() throws {
        var values = BoundValues()
        for (object, host) in [("a", nil), ("b", HostTable.Host(isOnline: false, run: "1")), ("c", nil), ("d", nil)] {
            let verdict = values.take(try message(object), host: host, now: 0)
            #expect(verdict == .wait)
        }
        let plain = values.take(try message("c", while: nil), host: nil, now: 0)
        let removal = values.take(try message("d", ""), host: nil, now: 0)
        #expect(plain == .post && removal == .post)
        let change = values.follow(desk, online, now: 0)
        #expect(objects(change.again) == ["a", "b"])
    }

    @Test("A notification that is not retained changes no value")
    func noValue() throws {
        var values = BoundValues()
        _ = values.take(try message(""), host: online, now: 0)
        let verdict = values.take(try message("", isRetained: false), host: online, now: 0)
        #expect(verdict == .post && values.saved(at: 0).count == 1)
    }

    @Test("The number of values is limited, a machine leaves space for others, and removals free space")
    func bounds() throws {
        var values = BoundValues()
        var count = 0
        while values.take(try message("\(count)"), host: online, now: 0) == .post { count += 1 }
        #expect(count == BoundValues.maxCount / 8 * 7)
        // Its users are one machine's.
        let another = Origin(host: "desk", user: "ben")!
        let refused = values.take(try message("more", of: another), host: online, now: 0)
        let lap = Origin(host: "lap", user: "ben")!
        let other = values.take(try message("more", of: lap), host: online, now: 0)
        let again = values.take(try message("7"), host: online, now: 0)
        #expect(refused == .refuse && other == .post && again == .post)
        _ = values.take(try message("8", ""), host: online, now: 0)
        let next = values.take(try message("more", of: another), host: online, now: 0)
        #expect(next == .post)
    }

    @Test("An expired value does not return and frees its space; another returns with its remaining lifetime")
    func expiry() throws {
        var values = BoundValues()
        for (object, seconds) in [("a", 10), ("b", 60), ("c", nil)] as [(String, UInt32?)] {
            _ = values.take(try message(object, expiry: seconds), host: online, now: 0)
        }
        _ = values.follow(desk, nil, now: 1_000_000)
        let again = values.follow(desk, online, now: 40_000_000).again
        #expect(objects(again) == ["b", "c"] && again.map(\.expiresAfter) == [20, nil])
        #expect(again[0].publication.expiry == 20)
        #expect(values.saved(at: 50_000_000).map(\.message.expiresAfter) == [10, nil])
        var full = BoundValues()
        var count = 0
        while full.take(try message("\(count)", expiry: 1), host: online, now: 0) == .post { count += 1 }
        let later = full.take(try message("more"), host: online, now: 2_000_000)
        #expect(later == .post && full.saved(at: 2_000_000).count == 1)
    }

    @Test("Removal of unwanted names reports only the values that the session has")
    func unwanted() throws {
        var values = BoundValues()
        _ = values.take(try message("a"), host: online, now: 0)
        _ = values.take(try message("b", while: "2"), host: online, now: 0)
        let gone = values.removeAll { $0.message.name == "N" }
        #expect(objects(gone) == ["a"] && values.saved(at: 0).isEmpty && values.origins.isEmpty)
    }

    @Test("The removal of a value is equal to a removal message from the broker")
    func removal() throws {
        for object in ["", "a/b", "\u{7}"] {
            let removal = try message(object).removal
            if case .notification = removal.content { Issue.record("it is a notification") }
            #expect(
                removal.object == object && removal.name == "N" && removal.origin == desk && removal.isRetainedValue)
        }
    }

    @Test("Values are restored from the saved state, including whether the session has them")
    func saved() throws {
        var values = BoundValues()
        _ = values.take(try message("a"), host: online, now: 0)
        _ = values.take(try message("b", while: "2"), host: online, now: 0)
        let state = SavedState(
            realm: "home", origin: desk, counts: TopicCounts(run: "r"), places: [], queue: [],
            bound: values.saved(at: 0))
        let read = try #require(SavedState(state.bytes(now: 0), now: 0))
        #expect(read.bound.map(\.isHere) == [true, false] && objects(read.bound.map(\.message)) == ["a", "b"])
        var next = BoundValues()
        for value in read.bound { next.restore(value, now: 0) }
        let change = next.follow(desk, HostTable.Host(isOnline: true, run: "2"), now: 0)
        #expect(objects(change.over) == ["a"] && objects(change.again) == ["b"])
    }

    @Test("A host that the broker does not confirm becomes offline, and a confirmed host remains online")
    func forgotten() throws {
        var hosts = HostTable()
        let lap = Origin(host: "lap", user: "ben")!
        let message = Publication(topic: "t", payload: Array(#"{"online": true, "run": "1"}"#.utf8), isRetained: true)
        for origin in [desk, lap] { _ = hosts.take(message, of: origin) }
        hosts.beginConfirming()
        let isNews = hosts.take(message, of: lap) != nil
        let forgotten = hosts.endConfirming(Array(hosts.unconfirmed))
        #expect(!isNews && forgotten == [desk] && hosts[desk]?.isOnline == false && hosts[lap]?.isOnline == true)
        let again = hosts.endConfirming(Array(hosts.unconfirmed))
        #expect(again == [])
    }
}
