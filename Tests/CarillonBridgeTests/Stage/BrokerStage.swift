// SPDX-License-Identifier: Apache-2.0
import CarillonMQTT
import CarillonMainLoop

@testable import CarillonBridge

/// A part of the bridge with a ``StagedBroker``, in time that a test passes. Subclasses say what the broker's words mean to it.
class BrokerStage: BrokerLinkDelegate {
    let broker = StagedBroker()
    let clock = StageClock()
    let context: MainContext
    let link: BrokerLink

    init() throws {
        context = MainContext(clock: clock)
        var environment = BridgeEnvironment.own(address: "", context: context)
        environment.makeBrokerClient = { [broker] _, _ throws(MQTTError) in broker }
        link = try BrokerLink(.init(host: "h", port: 1, clientID: "c"), environment, context: context)
        link.delegate = self
    }

    func pass(seconds: Int64) { clock.pass(seconds: seconds, on: context) { broker.deliver() } }

    func brokerChanged() {}
    func brokerConnected(sessionPresent: Bool) {}
    func brokerDisconnected(because error: MQTTError?) {}
    func brokerSent(_ publication: Publication) {}
    func brokerAcknowledged(_ id: PacketID, _ reason: ReasonCode) {}
    func brokerSubscribed(_ id: PacketID, _ reasons: [ReasonCode]) {}
    func brokerUnsubscribed(_ id: PacketID) {}
    var waitsForBroker = false
    func brokerHasShown() {}
}
