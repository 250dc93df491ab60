// SPDX-License-Identifier: Apache-2.0
import CCarillonMosquitto

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// Requests to the broker, for ``MQTTClient``. Each checks its arguments, queues a packet in libmosquitto, and returns
/// the packet's identifier.
extension ClientDriver {
    /// Queues a publication. libmosquitto would send a packet that is too large again on each connection, so the size
    /// is checked first.
    func publish(_ publication: Publication) throws(MQTTError) -> PacketID {
        guard state == .connected else { throw MQTTError(.notConnected) }
        try publication.topic.checkForPacket()
        guard !publication.topic.isEmpty,
            mosquitto_pub_topic_check(publication.topic) == MOSQ_ERR_SUCCESS.rawValue
        else { throw MQTTError(.topicInvalid, publication.topic) }
        guard publication.packetSize <= limits.maxBytes else { throw MQTTError(.packetTooLarge) }
        var properties = PropertyList()
        try properties.addProperties(of: publication)
        var number: Int32 = 0
        let code = publication.payload.withUnsafeBytes { payload in
            mosquitto_publish_v5(
                handle.pointer, &number, publication.topic, Int32(payload.count), payload.baseAddress,
                publication.quality.rawValue, publication.isRetained, properties.pointer)
        }
        return try sent(number, code, errno: errno)
    }

    /// Queues the packets of a subscription: one for each combination of options, because libmosquitto gives all
    /// filters of a packet the same options.
    ///
    /// - Returns: the identifier of the first packet, which stands for the whole subscription.
    func subscribe(_ filters: [TopicFilter]) throws(MQTTError) -> PacketID {
        try checkFilters(filters.map(\.topic))
        var packets: [(PacketID, places: [Int])] = []
        // If a packet can't be queued, the answers to the packets before it still arrive and have to be matched.
        defer { subscriptions.wait(for: packets) }
        for places in PendingSubscriptions.packets(of: filters) {
            let (quality, options) = (filters[places[0]].quality, filters[places[0]].options)
            var properties = PropertyList()
            if let identifier = filters[places[0]].identifier { try properties.addSubscription(identifier) }
            var number: Int32 = 0
            let code = withCStrings(places.map { filters[$0].topic }) { count, texts in
                mosquitto_subscribe_multiple(
                    handle.pointer, &number, count, texts, quality.rawValue, options, properties.pointer)
            }
            packets.append((try sent(number, code, errno: errno), places))
        }
        return packets[0].0
    }

    /// Queues one packet that ends the subscriptions to filters.
    func unsubscribe(_ topics: [String]) throws(MQTTError) -> PacketID {
        try checkFilters(topics)
        var number: Int32 = 0
        let code = withCStrings(topics) { count, texts in
            mosquitto_unsubscribe_multiple(handle.pointer, &number, count, texts, nil)
        }
        return try sent(number, code, errno: errno)
    }

    /// Checks that there is a connection, and that each filter is valid.
    private func checkFilters(_ topics: [String]) throws(MQTTError) {
        guard state == .connected else { throw MQTTError(.notConnected) }
        guard !topics.isEmpty else { throw MQTTError(.topicInvalid) }
        for topic in topics {
            try topic.checkForPacket()
            guard !topic.isEmpty, mosquitto_sub_topic_check(topic) == MOSQ_ERR_SUCCESS.rawValue else {
                throw MQTTError(.topicInvalid, topic)
            }
        }
    }
}

/// Runs `body` with the number of texts and with copies of them as an array of C strings.
private func withCStrings<Result>(
    _ texts: [String], _ body: (Int32, UnsafePointer<UnsafeMutablePointer<CChar>?>) -> Result
) -> Result {
    let copies = texts.map { strdup($0) }
    defer { copies.forEach { free($0) } }
    return body(Int32(copies.count), copies)
}
