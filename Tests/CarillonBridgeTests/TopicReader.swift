// SPDX-License-Identifier: Apache-2.0
import CarillonMQTT
import CarillonMainLoop
import CarillonTestSupport

/// A client of a broker that subscribes to one topic.
final class TopicReader: MQTTClientDelegate {
    private let topic: String
    private let context = MainContext()
    private let client: MQTTClient
    private var publications: [Publication] = []
    private var error: MQTTError?

    init(_ topic: String, at broker: MosquittoBroker) throws {
        self.topic = topic
        client = try MQTTClient(
            MQTTClient.Settings(host: "127.0.0.1", port: broker.port, clientID: "reader"), context: context)
        client.delegate = self
        try client.connect()
    }

    /// Waits for the first publication: the retained one, or the next where the topic has none.
    func first(within patience: Patience = .event) throws -> Publication {
        try context.run("a publication on \(topic)", within: patience) {
            if let error { throw error }
            return !publications.isEmpty
        }
        return publications[0]
    }

    func connected(sessionPresent: Bool, limits: BrokerLimits) {
        do {
            _ = try client.subscribe([TopicFilter(topic)])
        } catch {
            self.error = error
        }
    }

    func disconnected(_ error: MQTTError) { self.error = error }
    func received(_ publication: Publication) { publications.append(publication) }
    func acknowledged(_: PacketID, _: ReasonCode) {}
    func subscribed(_: PacketID, _: [ReasonCode]) {}
    func unsubscribed(_: PacketID) {}
}
