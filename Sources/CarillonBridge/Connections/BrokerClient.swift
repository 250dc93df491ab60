// SPDX-License-Identifier: Apache-2.0
import CarillonMQTT

/// A client of an MQTT broker, as ``BrokerLink`` uses it: ``MQTTClient``, or a simulated one. The members have
/// the meaning of those of ``MQTTClient``.
package protocol BrokerClient: AnyObject {
    var delegate: (any MQTTClientDelegate)? { get set }
    /// Begins to connect. The delegate is informed of the outcome.
    ///
    /// - Parameter startsClean: whether the broker is to discard its session of this client.
    func connect(startsClean: Bool) throws(MQTTError)
    /// Ends the connection with a DISCONNECT packet. The delegate is not called for this end.
    func disconnect(_ reason: ReasonCode)
    /// Each of the following three methods queues a packet, and returns the identifier that its answer will have.
    func publish(_ publication: Publication) throws(MQTTError) -> PacketID
    func subscribe(_ filters: [TopicFilter]) throws(MQTTError) -> PacketID
    func unsubscribe(_ topics: [String]) throws(MQTTError) -> PacketID
    /// Whether the socket is not read, so that messages stay at the broker (backpressure).
    var isReadingPaused: Bool { get set }
}

extension MQTTClient: BrokerClient {}
