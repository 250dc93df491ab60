// SPDX-License-Identifier: Apache-2.0
import JSON
import NotificationWire

/// What a bridge leaves to the next one of its session: how far it has counted, what came last on each topic, and what
/// the broker has not confirmed. So nothing is lost, and nothing comes twice, when it is started anew.
struct SavedState: Equatable {
    var realm: String
    var origin: Origin
    var counts: TopicCounts
    var places: PlaceCheck
    /// In order.
    var queue: [ExportQueue.Entry]

    /// A larger file is no state of a bridge.
    static let mostBytes = 256 << 20

    /// As JSON.
    var bytes: [UInt8] {
        let entries: [String: PropertyList] = [
            "version": .int64(1), "realm": .string(realm), "host": .string(origin.host), "user": .string(origin.user),
            "run": .string(counts.run),
            "counts": .array(counts.all.map { .array([.string($0.topic), .uint64($0.count)]) }),
            "places": .array(places.saved.map(\.propertyList)), "queue": .array(queue.map(\.propertyList)),
        ]
        return Array(PropertyListJSON.text(.dictionary(entries)).utf8)
    }

    /// - Returns: nil for what no bridge of this version has written.
    init?(_ bytes: [UInt8]) {
        guard let json = try? JSON(bytes), let entries = try? PropertyListJSON.userInfo(from: json),
            entries["version"]?.unsigned == 1, let realm = entries["realm"]?.text, let host = entries["host"]?.text,
            let user = entries["user"]?.text, let origin = Origin(host: host, user: user),
            let run = entries["run"]?.text, let counts = entries["counts"]?.list, let places = entries["places"]?.list,
            let queue = entries["queue"]?.list
        else { return nil }
        self.realm = realm
        self.origin = origin
        self.counts = TopicCounts(run: run)
        for element in counts {
            guard let pair = element.list, pair.count == 2, let topic = pair[0].text, let count = pair[1].unsigned
            else { return nil }
            self.counts.set(count, of: topic)
        }
        self.places = PlaceCheck()
        for element in places {
            guard let place = PlaceCheck.Saved(element) else { return nil }
            self.places.restore(place)
        }
        self.queue = []
        for element in queue {
            guard let entry = ExportQueue.Entry(element) else { return nil }
            self.queue.append(entry)
        }
    }

    init(realm: String, origin: Origin, counts: TopicCounts, places: PlaceCheck, queue: [ExportQueue.Entry]) {
        self.realm = realm
        self.origin = origin
        self.counts = counts
        self.places = places
        self.queue = queue
    }
}

extension PlaceCheck.Saved {
    fileprivate var propertyList: PropertyList {
        .dictionary([
            "topic": .string(topic), "host": .string(origin.host), "user": .string(origin.user), "name": .string(name),
            "run": .string(place.run), "count": .uint64(place.count),
        ])
    }

    fileprivate init?(_ value: PropertyList) {
        guard case .dictionary(let entries) = value, let topic = entries["topic"]?.text,
            let host = entries["host"]?.text, let user = entries["user"]?.text, let name = entries["name"]?.text,
            let origin = Origin(host: host, user: user), let run = entries["run"]?.text,
            let count = entries["count"]?.unsigned, count > 0
        else { return nil }
        self.init(topic: topic, origin: origin, name: name, place: .init(run: run, count: count))
    }
}

extension ExportQueue.Entry {
    fileprivate var propertyList: PropertyList {
        var entries: [String: PropertyList] = [
            "topic": .string(topic), "name": .string(message.name), "object": .string(message.object),
            "payload": .data(message.payload), "retained": .boolean(message.isRetained),
            "old": .boolean(message.properties.isOldValue),
        ]
        entries["type"] = message.contentType.map { .string($0) }
        entries["expiry"] = message.expiry.map { .int64($0) }
        entries["serial"] = message.properties.serial.map { .uint64($0) }
        entries["time"] = message.properties.time.map { .int64($0) }
        if let place = message.properties.place {
            entries["run"] = .string(place.run)
            entries["count"] = .uint64(place.count)
        }
        return .dictionary(entries)
    }

    fileprivate init?(_ value: PropertyList) {
        guard case .dictionary(let entries) = value, let topic = entries["topic"]?.text,
            let name = entries["name"]?.text, let object = entries["object"]?.text,
            case .data(let payload)? = entries["payload"], case .boolean(let isRetained)? = entries["retained"],
            case .boolean(let isOld)? = entries["old"]
        else { return nil }
        var properties = MessageProperties()
        properties.object = object
        properties.hops = 1
        properties.isOldValue = isOld
        properties.keepsWidths = entries["type"]?.text == Payload.binaryContentType
        properties.serial = entries["serial"]?.unsigned
        properties.time = entries["time"]?.signed
        if let run = entries["run"]?.text, let count = entries["count"]?.unsigned {
            properties.place = .init(run: run, count: count)
        }
        self.init(
            message: OutwardMessage(
                name: name, object: object, payload: payload, contentType: entries["type"]?.text,
                isRetained: isRetained,
                expiry: entries["expiry"]?.signed, properties: properties), topic: topic)
    }
}

extension PropertyList {
    fileprivate var text: String? { if case .string(let text) = self { text } else { nil } }
    fileprivate var list: [PropertyList]? { if case .array(let elements) = self { elements } else { nil } }
    fileprivate var signed: Int64? { if case .int64(let number) = self { number } else { nil } }
    /// JSON has one type of integers; those that fit are read as signed ones.
    fileprivate var unsigned: UInt64? {
        switch self {
        case .int64(let number): UInt64(exactly: number)
        case .uint64(let number): number
        default: nil
        }
    }
}
