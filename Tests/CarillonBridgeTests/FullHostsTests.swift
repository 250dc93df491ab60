// SPDX-License-Identifier: Apache-2.0
import CarillonMQTT
import CarillonTestLimits
import CarillonWire
import Testing

@testable import CarillonBridge

@Suite("E4: machines whose quota of retained values is exhausted", .limited)
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

    @Test("A full machine has space only for values that replace its own, and other machines are unaffected")
    func full() throws {
        var hosts = FullHosts()
        #expect(try !hosts.hasNoSpace(for: value("a", of: "greedy")))
        let isNews = [hosts.insert("greedy"), hosts.insert("greedy")]
        #expect(isNews == [true, false])
        #expect(try !hosts.hasNoSpace(for: value("a", of: "greedy")), "nobody knows which ones the service has")
        hosts.found([try listed("a", of: "greedy"), try listed("b", of: "desk")])
        #expect(try !hosts.hasNoSpace(for: value("a", of: "greedy")) && hosts.hasNoSpace(for: value("b", of: "greedy")))
        #expect(try !hosts.hasNoSpace(for: value("a", of: "desk")))
        hosts.keeps(try value("c", of: "greedy"))
        #expect(try !hosts.hasNoSpace(for: value("c", of: "greedy")), "one that came by itself")
    }

    @Test("A value is identified by name and object, also on an irregular topic")
    func irregular() throws {
        var hosts = FullHosts()
        _ = hosts.insert("greedy")
        hosts.found([try listed("a", of: "greedy")])
        let text = "carillon/1/home/greedy/u/n/N"
        let publication = Publication(
            topic: text, payload: Array("{}".utf8), isRetained: true, userProperties: [UserProperty("object", "a")])
        let message = try InwardMessage(publication, on: try #require(BridgeTopic(text, in: "home")))
        #expect(!hosts.hasNoSpace(for: message))
    }

    @Test("A full machine is tried again later, and the service has to list its values again")
    func again() throws {
        var hosts = FullHosts()
        _ = hosts.insert("greedy")
        hosts.found([])
        #expect(try hosts.hasNoSpace(for: value("b", of: "greedy")))
        hosts.tryAgain()
        #expect(try !hosts.hasNoSpace(for: value("b", of: "greedy")))
        let isNews = hosts.insert("greedy")
        #expect(try isNews && !hosts.hasNoSpace(for: value("b", of: "greedy")))
        hosts.found([])
        #expect(try hosts.hasNoSpace(for: value("b", of: "greedy")))
        for _ in 0..<2 { hosts.tryAgain() }
        hosts.found([try listed("a", of: "greedy")])
        #expect(try !hosts.hasNoSpace(for: value("b", of: "greedy")))
    }

    @Test("Machines beyond the maximum number remembered are never considered full")
    func many() throws {
        var hosts = FullHosts()
        for number in 0..<FullHosts.maxHosts { _ = hosts.insert("h\(number)") }
        let isNews = [hosts.insert("more"), hosts.insert("h1")]
        hosts.found([])
        #expect(try isNews == [false, false] && !hosts.hasNoSpace(for: value("a", of: "more")))
        #expect(try hosts.hasNoSpace(for: value("a", of: "h1")))
    }
}
