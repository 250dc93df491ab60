// SPDX-License-Identifier: Apache-2.0
import CarillonCollections
import CarillonCore
import CarillonJSON
import CarillonMQTT
import CarillonWire

/// The state that a bridge hands over at a reload, and saves at its end for the next process of its session
/// (``StateStore``). With it no message is lost or repeated.
package struct SavedState {
    /// The realm in which the bridge has published. In another realm most of the state has no meaning.
    var realm: String
    /// The machine and user under which the bridge has published.
    var origin: Origin
    /// The counters of published messages, one for each topic.
    var counts: TopicCounts
    /// The last sequence number of each imported topic, and the numbers that are missing.
    var places: [SequenceTracker.Saved]
    /// Messages to the broker that it has not acknowledged, in order.
    var queue: [ExportQueue.Entry]
    /// Messages from the broker that are acknowledged to it and not posted in the session, in order.
    var inbox: [InwardMessage] = []
    /// Values of other hosts that end with their posters, and whether the session has them.
    var bound: [BoundValues.Value] = []
    /// The filters to which the broker's session was subscribed.
    struct Subscriptions: Equatable {
        /// The broker's host and port.
        var broker = ""
        var filters: Set<String> = []
    }

    /// The subscriptions at the broker.
    var subscriptions = Subscriptions()
    /// The names that could be imported. The values of names that the next configuration does not import are removed.
    var imports: [NamePattern] = []
    /// The hosts with values on topics that no bridge uses.
    var irregular = IrregularHosts()
    /// The time since when each absent host is absent, in microseconds since 1970.
    var absences: [Origin: Int64] = [:]
    /// Whether values may be missing, so that the next bridge requests all values from the broker again.
    var mustFetchValues = false
    /// The losses that are not announced, or whose announcement is unconfirmed.
    var losses: [LossLedger.Entry: UInt64] = [:]

    /// The maximum size of a saved state, in bytes; above that of the largest queue, 1 GiB, in base64.
    static let maxBytes = 2 << 30 - 1

    /// Returns the state as JSON.
    ///
    /// - Parameter now: microseconds since 1970 in UTC.
    package func bytes(now: Int64) -> [UInt8] {
        let entries: [String: PropertyList] = [
            "version": .int64(1), "realm": .string(realm), "host": .string(origin.host), "user": .string(origin.user),
            "run": .string(counts.run),
            "counts": .array(counts.all.map { .array([.string($0.topic), .uint64($0.count)]) }),
            "places": .array(places.map(\.propertyList)), "queue": .array(queue.map(\.propertyList)),
            "inbox": .array(inbox.map { $0.propertyList(now: now) }),
            "bound": .array(
                bound.map { .array([$0.message.propertyList(now: now), .boolean($0.isHere)]) }),
            "subscriptions": .dictionary([
                "broker": .string(subscriptions.broker),
                "filters": .array(subscriptions.filters.sorted().map { .string($0) }),
            ]),
            "imports": .array(imports.map { .string($0.description) }),
            "irregular": .array(irregular.origins.map { .array([.string($0.host), .string($0.user)]) }),
            "absences": .array(
                absences.sorted { $0.key.text < $1.key.text }.map {
                    .array([.string($0.key.host), .string($0.key.user), .int64($0.value)])
                }),
            // Values are in doubt (`doubtful`) if some may be missing, so that the next bridge must fetch them.
            "doubtful": .boolean(mustFetchValues),
            "losses": .array(losses.map { $0.key.propertyList(count: $0.value) }),
        ]
        return Array(PropertyListJSON.text(.dictionary(entries)).utf8)
    }

    /// Reads a state.
    ///
    /// - Parameter now: microseconds since 1970 in UTC.
    /// - Returns: nil for bytes that no bridge of this version has written.
    package init?(_ bytes: [UInt8], now: Int64) {
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
            else {
                // With a lost counter, numbers would be used twice, and receivers would drop these messages as
                // duplicates. A new run makes all numbers new.
                self.counts = TopicCounts(run: String(UInt64.random(in: .min ... .max), radix: 36))
                break
            }
            self.counts.set(count, of: topic)
        }
        // In the other lists an unreadable element is left out.
        self.places = []
        for element in places {
            if let sequenceNumber = SequenceTracker.Saved(element) { self.places.append(sequenceNumber) }
        }
        self.queue = []
        for element in queue {
            if let entry = ExportQueue.Entry(element) { self.queue.append(entry) }
        }
        // Earlier versions did not write the following entries.
        for element in entries["inbox"]?.list ?? [] {
            if let message = InwardMessage(element, now: now) { inbox.append(message) }
        }
        for element in entries["bound"]?.list ?? [] {
            guard let pair = element.list, pair.count == 2, let message = InwardMessage(pair[0], now: now) else {
                continue
            }
            bound.append(.init(message: message, isHere: pair[1] == .boolean(true), now: now))
        }
        if case .dictionary(let saved)? = entries["subscriptions"], let broker = saved["broker"]?.text {
            subscriptions = .init(broker: broker, filters: Set((saved["filters"]?.list ?? []).compactMap(\.text)))
        }
        imports = (entries["imports"]?.list ?? []).compactMap(\.text).compactMap(NamePattern.init)
        for element in entries["irregular"]?.list ?? [] {
            guard let pair = element.list, pair.count == 2, let host = pair[0].text, let user = pair[1].text,
                let origin = Origin(host: host, user: user)
            else { continue }
            irregular.insert(origin)
        }
        for element in entries["absences"]?.list ?? [] {
            guard let parts = element.list, parts.count == 3, let host = parts[0].text, let user = parts[1].text,
                let origin = Origin(host: host, user: user), let time = parts[2].signed, time >= 0
            else { continue }
            absences[origin] = time
        }
        mustFetchValues = entries["doubtful"] == .boolean(true)
        for element in entries["losses"]?.list ?? [] {
            if let (entry, count) = LossLedger.Entry.saved(element) { losses[entry] = count }
        }
    }

    /// Creates a state from its main parts; the other parts are empty.
    init(
        realm: String, origin: Origin, counts: TopicCounts, places: [SequenceTracker.Saved], queue: [ExportQueue.Entry],
        inbox: [InwardMessage] = [], bound: [BoundValues.Value] = [], losses: [LossLedger.Entry: UInt64] = [:]
    ) {
        self.realm = realm
        self.origin = origin
        self.counts = counts
        self.places = places
        self.queue = queue
        self.inbox = inbox
        self.bound = bound
        self.losses = losses
    }
}

/// The state of a topic's sequence numbers as a property list. These keys are not plain:
///
/// | key | meaning |
/// |---|---|
/// | `count` | the highest sequence number of `run` |
/// | `value` | the number of the last message that set or removed the topic's value; 0 for none |
/// | `gone` | ``isGone``: the session lacks that value, although no message has removed it |
/// | `holes` | the ranges of missing numbers below `count` |
extension SequenceTracker.Saved {
    fileprivate var propertyList: PropertyList {
        .dictionary([
            "topic": .string(topic), "host": .string(origin.host), "user": .string(origin.user), "name": .string(name),
            "run": .string(sequenceNumber.run), "count": .uint64(sequenceNumber.count), "gone": .boolean(isGone),
            // A state of an earlier version has no `value`. The last message then counts as the last value, so that the
            // broker's copy of the value is a duplicate.
            "value": .uint64(value ?? sequenceNumber.count),
            "holes": .array(holes.map { .array([.uint64($0.lowerBound), .uint64($0.upperBound)]) }),
        ])
    }

    fileprivate init?(_ value: PropertyList) {
        guard case .dictionary(let entries) = value, let topic = entries["topic"]?.text,
            let host = entries["host"]?.text, let user = entries["user"]?.text, let name = entries["name"]?.text,
            let origin = Origin(host: host, user: user), let run = entries["run"]?.text,
            let count = entries["count"]?.unsigned, count > 0
        else { return nil }
        var holes: [ClosedRange<UInt64>] = []
        for element in entries["holes"]?.list ?? [] {
            guard let bounds = element.list, bounds.count == 2, let first = bounds[0].unsigned,
                let last = bounds[1].unsigned, first > 0, first <= last, last < count
            else { return nil }
            holes.append(first...last)
        }
        self.init(
            topic: topic, origin: origin, name: name, sequenceNumber: .init(run: run, count: count), holes: holes,
            value: entries["value"]?.unsigned, isGone: entries["gone"] == .boolean(true))
    }
}

/// A message to the broker as a property list. Some keys are those of the MQTT user properties
/// (``MessageProperties/Key``), and differ from the names of the Swift properties:
///
/// | key | property |
/// |---|---|
/// | `old` | ``MessageProperties/isOldValue``: the value existed before, and is sent again |
/// | `sent` | ``wasSent``: the message was sent on an earlier connection, and may have arrived |
/// | `while` | ``MessageProperties/boundTo``: the run of the bridge with which the value ends |
/// | `all-sessions` | ``MessageProperties/identity``: the identity of a post for all sessions of the machine |
/// | `count`, `run` | ``MessageProperties/sequenceNumber`` |
extension ExportQueue.Entry {
    fileprivate var propertyList: PropertyList {
        var entries: [String: PropertyList] = [
            "topic": .string(topic), "name": .string(message.name), "object": .string(message.object),
            "payload": .data(message.payload), "retained": .boolean(message.isRetained),
            "old": .boolean(message.properties.isOldValue), "sent": .boolean(wasSent),
        ]
        entries["type"] = message.contentType.map { .string($0) }
        entries["expiry"] = message.expiry.map { .int64($0) }
        entries["serial"] = message.properties.serial.map { .uint64($0) }
        entries["while"] = message.properties.boundTo.map { .string($0) }
        entries["all-sessions"] = message.properties.identity.map { .string($0) }
        entries["time"] = message.properties.time.map { .int64($0) }
        if let sequenceNumber = message.properties.sequenceNumber {
            entries["run"] = .string(sequenceNumber.run)
            entries["count"] = .uint64(sequenceNumber.count)
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
        // A bridge exports only notifications of its own session, so it is the first bridge that the message passes.
        properties.hops = 1
        properties.isOldValue = isOld
        // The bridge writes CBOR only for names whose integers keep their widths, so the content type says it.
        properties.keepsWidths = entries["type"]?.text == Payload.binaryContentType
        properties.serial = entries["serial"]?.unsigned
        properties.boundTo = entries["while"]?.text
        properties.identity = entries["all-sessions"]?.text
        properties.time = entries["time"]?.signed
        if let run = entries["run"]?.text, let count = entries["count"]?.unsigned {
            properties.sequenceNumber = .init(run: run, count: count)
        }
        self.init(
            message: OutwardMessage(
                name: name, object: object, payload: payload, contentType: entries["type"]?.text,
                isRetained: isRetained,
                expiry: entries["expiry"]?.signed, properties: properties), topic: topic,
            wasSent: entries["sent"] == .boolean(true))
    }
}

/// A message from the broker as a property list.
extension InwardMessage {
    /// Returns the publication as it arrived, with the time of its expiry instead of the remaining seconds. Its realm
    /// may differ from the bridge's realm.
    ///
    /// The key `anew` stands for ``mayBeOld``: the message may show an old value anew. Such a value is posted only if
    /// the session does not have it.
    fileprivate func propertyList(now: Int64) -> PropertyList {
        var entries: [String: PropertyList] = [
            "topic": .string(publication.topic), "payload": .data(publication.payload),
            "retained": .boolean(publication.isRetained), "anew": .boolean(mayBeOld),
            "properties": .array(publication.userProperties.map { .array([.string($0.name), .string($0.value)]) }),
        ]
        entries["type"] = publication.contentType.map { .string($0) }
        entries["expiry"] = expiry(at: now).map { .int64($0) }
        return .dictionary(entries)
    }

    /// Reads a message; nil for an unreadable or expired one.
    fileprivate init?(_ value: PropertyList, now: Int64) {
        guard case .dictionary(let entries) = value, let topic = entries["topic"]?.text,
            case .data(let payload)? = entries["payload"], case .boolean(let isRetained)? = entries["retained"],
            case .boolean(let isAnew)? = entries["anew"], let properties = entries["properties"]?.list,
            let realm = BridgeTopic.realm(of: topic), let parsed = BridgeTopic(topic, in: realm)
        else { return nil }
        var seconds: UInt32?
        if let expiry = entries["expiry"]?.signed {
            guard expiry > now else { return nil }
            seconds = UInt32(clamping: expiry.subtractingReportingOverflow(now).partialValue / 1_000_000)
        }
        var publication = Publication(
            topic: topic, payload: payload, isRetained: isRetained, contentType: entries["type"]?.text, expiry: seconds)
        for element in properties {
            guard let pair = element.list, pair.count == 2, let name = pair[0].text, let text = pair[1].text else {
                return nil
            }
            publication.userProperties.append(UserProperty(name, text))
        }
        switch parsed.subject {
        case .notification, .value: break
        case .online, .status, .test: return nil
        }
        guard let message = try? InwardMessage(publication, on: parsed) else { return nil }
        self = message.marked(anew: isAnew)
    }
}

/// A loss as a property list.
extension LossLedger.Entry {
    fileprivate func propertyList(count: UInt64) -> PropertyList {
        var entries: [String: PropertyList] = [
            "host": .string(origin.host), "user": .string(origin.user), "reason": .string(reason.rawValue),
            "count": .uint64(count),
        ]
        entries["name"] = name.map { .string($0.text) }
        return .dictionary(entries)
    }

    fileprivate static func saved(_ value: PropertyList) -> (LossLedger.Entry, UInt64)? {
        guard case .dictionary(let entries) = value, let host = entries["host"]?.text,
            let user = entries["user"]?.text, let origin = Origin(host: host, user: user),
            let reason = entries["reason"]?.text.flatMap(LossReason.init(rawValue:)),
            let count = entries["count"]?.unsigned
        else { return nil }
        return (.init(origin: origin, name: entries["name"]?.text.map(ExactText.init), reason: reason), count)
    }
}

/// The values of one type; nil for any other type.
extension PropertyList {
    fileprivate var text: String? { if case .string(let text) = self { text } else { nil } }
    fileprivate var list: [PropertyList]? { if case .array(let elements) = self { elements } else { nil } }
    fileprivate var signed: Int64? { if case .int64(let number) = self { number } else { nil } }
    /// The unsigned number. JSON has one integer type, so a small one is read as signed.
    fileprivate var unsigned: UInt64? {
        switch self {
        case .int64(let number): UInt64(exactly: number)
        case .uint64(let number): number
        default: nil
        }
    }
}
