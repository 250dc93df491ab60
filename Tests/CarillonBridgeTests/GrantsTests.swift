// SPDX-License-Identifier: Apache-2.0
import CarillonMQTT
import CarillonTestLimits
import Testing

@testable import CarillonBridge

@Suite("G2: refusals of the broker", .limited)
struct GrantsTests {
    private let one = PacketID(rawValue: 1)
    private let two = PacketID(rawValue: 2)

    @Test("A refused subscription is reported once with its reason, until it is granted or ended")
    func refused() throws {
        var grants = Grants()
        grants.asked([TopicFilter("a"), TopicFilter("b"), TopicFilter("c")], one)
        #expect(grants.reason(nil) == nil)
        let answer = grants.answered(one, [.grantedAtLeastOnce, .notAuthorized, .quotaExceeded])
        let said = try #require(answer)
        #expect(said.contains(" b and 1 more: not authorized"))
        let again = grants.answered(one, [.notAuthorized])
        #expect(again == nil, "it was answered")
        #expect(grants.reason(nil) == said)
        grants.asked([TopicFilter("b")], two)
        let next = grants.answered(two, [.grantedAtLeastOnce])
        #expect(next?.contains(" c: a quota is exceeded") == true)
        grants.gaveUp(["c"])
        #expect(grants.reason(nil) == nil)
        grants.asked([TopicFilter("b")], two)
        _ = grants.answered(two, [.notAuthorized])
        grants.begin()
        #expect(grants.reason(nil) == nil, "another connection")
    }

    @Test("A subscription granted with less than the requested quality of service is reported")
    func weak() {
        var grants = Grants()
        grants.asked([TopicFilter("own", quality: .atMostOnce)], one)
        let own = grants.answered(one, [.success])
        #expect(own == nil)
        grants.asked([TopicFilter("a")], two)
        let other = grants.answered(two, [.success])
        #expect(other?.contains("at most once") == true)
    }

    @Test("Limits in the broker's answer to a connection are reported")
    func limits() {
        let grants = Grants()
        #expect(grants.reason(BrokerLimits()) == nil)
        #expect(grants.reason(BrokerLimits(maximumQuality: .atMostOnce))?.contains("at most once") == true)
        #expect(grants.reason(BrokerLimits(retainAvailable: false))?.contains("does not retain") == true)
    }
}
