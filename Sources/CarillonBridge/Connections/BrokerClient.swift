// SPDX-License-Identifier: Apache-2.0
import CarillonMQTT

/// A client of an MQTT broker, as ``BrokerLink`` uses it: ``MQTTClient``, or a simulated one. The members are those of
/// ``MQTTClient``.
package protocol BrokerClient: AnyObject {
    var delegate: (any MQTTClientDelegate)? { get set }
    func connect(startsClean: Bool) throws(MQTTError)
    func disconnect(_ reason: ReasonCode)
    func publish(_ publication: Publication) throws(MQTTError) -> PacketID
    func subscribe(_ filters: [TopicFilter]) throws(MQTTError) -> PacketID
    func unsubscribe(_ topics: [String]) throws(MQTTError) -> PacketID
    var isReadingPaused: Bool { get set }
}

extension MQTTClient: BrokerClient {}
