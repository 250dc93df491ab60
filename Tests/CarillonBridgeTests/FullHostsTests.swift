// SPDX-License-Identifier: Apache-2.0
import MQTT
import NotificationWire
import TestLimits
import Testing

@testable import CarillonBridge

@Suite("E4: machines of whose values the service has as many as it takes", .limited)
struct FullHostsTests {
    private func value(_ object: String, of host: String) throws -> InwardMessage {
        let origin = try #require(Origin(host: host, user: "u"))
        let topic = BridgeTopic(value: "N", object, of: origin)
        let publication = Publication(topic: topic.text(in: "home"), payload: Array("{}".utf8), isRetained: true)
        return try InwardMessage(publication, on: topic)
    }

    private func listed(_ object: String, of host: String) throws -> FollowValues.Listed {
        FollowValues.Listed(name: "N", object: object, serial: 1, host: host, user: "u")
    }

    @Test("One that is full is asked for nothing but what it may replace, and another one for all")
    func full() throws {
        var hosts = FullHosts()
        #expect(try !hosts.hasNoRoom(for: value("a", of: "greedy")))
        let isNews = [hosts.insert("greedy"), hosts.insert("greedy")]
        #expect(isNews == [true, false])
        #expect(try hosts.hasNoRoom(for: value("a", of: "greedy")) && !hosts.hasNoRoom(for: value("a", of: "desk")))
        hosts.found([try listed("a", of: "greedy"), try listed("b", of: "desk")], in: "home")
        #expect(try !hosts.hasNoRoom(for: value("a", of: "greedy")) && hosts.hasNoRoom(for: value("b", of: "greedy")))
    }

    @Test("After a while it is tried again, and what it may replace is known from the time before")
    func again() throws {
        var hosts = FullHosts()
        _ = hosts.insert("greedy")
        hosts.tryAgain()
        #expect(try !hosts.hasNoRoom(for: value("b", of: "greedy")))
        hosts.found([try listed("a", of: "greedy")], in: "home")
        let isNews = hosts.insert("greedy")
        #expect(isNews)
        #expect(try !hosts.hasNoRoom(for: value("a", of: "greedy")) && hosts.hasNoRoom(for: value("b", of: "greedy")))
        for _ in 0..<2 { hosts.tryAgain() }
        hosts.found([try listed("a", of: "greedy")], in: "home")
        _ = hosts.insert("greedy")
        #expect(try hosts.hasNoRoom(for: value("a", of: "greedy")), "nothing is kept of one that is not full any more")
    }

    @Test("Very many are one")
    func many() throws {
        var hosts = FullHosts()
        for number in 0..<FullHosts.maxHosts { _ = hosts.insert("h\(number)") }
        #expect(try !hosts.hasNoRoom(for: value("a", of: "desk")))
        let isNews = [hosts.insert("more"), hosts.insert("most"), hosts.insert("h1")]
        #expect(isNews == [true, false, false])
        #expect(try hosts.hasNoRoom(for: value("a", of: "desk")))
        hosts.tryAgain()
        #expect(try !hosts.hasNoRoom(for: value("a", of: "desk")))
    }
}
