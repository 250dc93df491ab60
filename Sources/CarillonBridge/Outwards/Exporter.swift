// SPDX-License-Identifier: Apache-2.0
import Collections
import MQTT
import MainLoop
import NotificationCore
import NotificationWire

/// What goes from the session to the broker: chosen, numbered, kept until the broker has confirmed it.
final class Exporter {
    private struct InFlight {
        let entry: ExportQueue.Entry
        let sent: ContinuousClock.Instant
    }

    /// Values that are known to be at the broker, at most.
    private static let mostValues = 65_536

    private let configuration: BridgeConfiguration
    private let broker: BrokerLink
    /// - Parameters: how many, of which name, why.
    private let lost: (UInt64, String?, LossReason) -> Void
    private var queue: ExportQueue
    private(set) var counts: TopicCounts
    private var inFlight: [PacketID: InFlight] = [:]
    /// What this bridge has published to be kept, and what it found that an earlier one had.
    private var values: Set<ValueKind> = []
    /// Ever confirmed by the broker.
    private(set) var exported: UInt64 = 0
    /// How long the broker took to confirm the last one.
    private(set) var acknowledgement: Duration?
    private var hasWarned = false

    init(
        _ configuration: BridgeConfiguration, broker: BrokerLink,
        lost: @escaping (UInt64, String?, LossReason) -> Void
    ) {
        self.configuration = configuration
        self.broker = broker
        self.lost = lost
        queue = ExportQueue(limits: configuration.queue)
        counts = TopicCounts(run: TopicCounts.randomRun())
    }

    var queuedCount: Int { queue.count }
    var queuedBytes: Int { queue.byteCount }
    var inFlightCount: Int { inFlight.count }

    /// Goes on where an earlier process ended.
    func goOn(with counts: TopicCounts, _ entries: [ExportQueue.Entry]) {
        self.counts = counts
        for entry in entries { lose(queue.append(entry)) }
    }

    /// Takes a notification of the session, if it is to go out: its name is in the list, and it is from here. Nothing
    /// that came from outside goes out again, so that nothing goes round (G2).
    func take(_ notification: ArrivedNotification) {
        guard exports(notification.name) else { return }
        guard let details = notification.details?.decoded(), details[Detail.retained.rawValue] != nil else {
            // The service was asked to say where it is from, and did not.
            if !hasWarned { Log.warning("the service does not tell where notifications are from: they stay here") }
            hasWarned = true
            return lost(1, notification.name, .refused)
        }
        guard details[Detail.host.rawValue] == nil, details[Detail.user.rawValue] == nil else { return }
        let keepsWidths = configuration.binaryNames.contains { $0.matches(notification.name) }
        let message = OutwardMessage(notification, details: details, keepsWidths: keepsWidths)
        if message.isRetained, values.count < Self.mostValues {
            values.insert(ValueKind(message.name, message.object))
        }
        append(message)
    }

    private func exports(_ name: String) -> Bool {
        !WantedNames.ownNames.matches(name) && configuration.exports.contains { $0.matches(name) }
    }

    private func append(_ message: OutwardMessage) {
        let topic = message.topic(of: configuration.origin, in: configuration.realm)
        var message = message
        message.properties.place = counts.next(on: topic)
        let entry = ExportQueue.Entry(message: message, topic: topic)
        lose(queue.append(entry))
        pump()
    }

    private func lose(_ entries: [ExportQueue.Entry]) {
        for entry in entries { lost(1, entry.message.name, .queueFull) }
    }

    /// Hands on what waits, as much as may be on its way.
    func pump() {
        let window = min(configuration.inFlight, broker.limits?.receiveMaximum ?? .max)
        while broker.isConnected, inFlight.count < Int(window), let entry = queue.popFirst() {
            guard let publication = entry.message.publication(on: entry.topic, now: WallClock.microseconds()) else {
                continue  // its time was over
            }
            do throws(MQTTError) {
                let id = try broker.publish(publication)
                inFlight[id] = InFlight(entry: entry, sent: .now)
            } catch {
                guard error.cause != .notConnected else { return queue.prepend(entry) }
                Log.info("\(entry.message.name) can't be published: \(error)")
                lost(1, entry.message.name, .refused)
            }
        }
    }

    func acknowledged(_ id: PacketID, _ reason: ReasonCode) {
        guard let sent = inFlight.removeValue(forKey: id) else { return }
        acknowledgement = sent.sent.duration(to: .now)
        if reason.isFailure {
            Log.info("the broker refused \(sent.entry.message.name): \(reason)")
            lost(1, sent.entry.message.name, .refused)
        } else {
            exported += 1
        }
        pump()
    }

    // MARK: Values

    /// An earlier process published this to be kept.
    func found(_ name: String, _ object: String) {
        if values.count < Self.mostValues { values.insert(ValueKind(name, object)) }
    }

    /// Takes away at the broker what is not kept here any more.
    ///
    /// - Parameter kept: all values of this session.
    func compare(with kept: Set<ValueKind>) {
        let gone = values.subtracting(kept)
        guard !gone.isEmpty else { return }
        values.subtract(gone)
        for kind in gone.sorted() where exports(kind.name.text) {
            append(OutwardMessage(removalOf: kind.name.text, kind.object.text))
        }
    }

    /// What the broker has not confirmed, in its order.
    var unconfirmed: [ExportQueue.Entry] {
        inFlight.values.sorted { $0.sent < $1.sent }.map(\.entry) + queue.all
    }
}

/// What a value is the value of.
struct ValueKind: Hashable, Comparable {
    let name: ExactText
    let object: ExactText

    init(_ name: String, _ object: String) {
        self.name = ExactText(name)
        self.object = ExactText(object)
    }

    static func < (left: ValueKind, right: ValueKind) -> Bool {
        (left.name.text, left.object.text) < (right.name.text, right.object.text)
    }
}
