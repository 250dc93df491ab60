// SPDX-License-Identifier: Apache-2.0
import Collections
import MQTT
import MainLoop
import NotificationCore
import NotificationWire

/// The way from the session to the broker: selects notifications, numbers them, and keeps them until the broker has
/// acknowledged them.
final class Exporter {
    private struct InFlight {
        let id: PacketID
        let entry: ExportQueue.Entry
        let sent: SuspendingClock.Instant
    }

    private let configuration: BridgeConfiguration
    private let environment: BridgeEnvironment
    private let context: MainContext
    private let broker: BrokerLink
    /// - Parameters: count, name, reason.
    private let lost: (UInt64, String?, LossReason) -> Void
    private var queue: ExportQueue
    private(set) var counts: TopicCounts
    /// In the order in which they were sent.
    private var inFlight: [InFlight] = []
    var values = OwnValues()
    /// Messages that the broker has acknowledged.
    var exported: UInt64 = 0
    /// The time that the broker took to acknowledge the last message.
    private(set) var acknowledgement: Duration?
    private var hasWarned = false
    /// Called when nothing waits for the broker any more.
    var onIdle: () -> Void = {}

    init(
        _ configuration: BridgeConfiguration, _ environment: BridgeEnvironment, broker: BrokerLink,
        context: MainContext, lost: @escaping (UInt64, String?, LossReason) -> Void
    ) {
        self.configuration = configuration
        self.environment = environment
        self.context = context
        self.broker = broker
        self.lost = lost
        queue = ExportQueue(limits: configuration.queue)
        counts = TopicCounts(run: environment.makeToken())
    }

    var queuedCount: Int { queue.count }
    var queuedBytes: Int { queue.byteCount }
    var inFlightCount: Int { inFlight.count }
    var isIdle: Bool { queue.count == 0 && inFlight.isEmpty }

    /// Continues where an earlier bridge ended.
    func goOn(with counts: TopicCounts, _ entries: [ExportQueue.Entry]) {
        self.counts = counts
        for entry in entries {
            guard BridgeTopic.isPossible(entry.topic) else {
                lost(1, entry.message.name, .noTopic)
                continue
            }
            lose(queue.restore(entry))
        }
    }

    /// Exports a notification of the session if the configuration allows its name, and if it is not from outside: an
    /// imported one is never exported again, so that there are no loops (G2).
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
        if message.isRetained, !values.publish(message, isReplayed: message.properties.isOldValue) { return }
        append(message)
    }

    private func exports(_ name: String) -> Bool {
        !WantedNames.ownNames.matches(name) && configuration.exports.contains { $0.matches(name) }
    }

    private func append(_ message: OutwardMessage) {
        let topic = message.topic(of: configuration.origin, in: configuration.realm)
        guard BridgeTopic.isPossible(topic) else {
            Log.info("\(message.name) can't be exported: its topic has too many levels or bytes for MQTT")
            return lost(1, message.name, .noTopic)
        }
        var message = message
        message.properties.place = counts.next(on: topic, newRun: environment.makeToken)
        lose(queue.append(ExportQueue.Entry(message: message, topic: topic)))
        pump()
    }

    private func lose(_ entries: [ExportQueue.Entry]) {
        for entry in entries { lost(1, entry.message.name, .queueFull) }
    }

    /// Sends queued messages, within the in-flight limit.
    func pump() {
        let limit = Int(min(configuration.inFlight, broker.limits?.receiveMaximum ?? .max))
        while broker.isConnected, inFlight.count < (isSuspectNext ? 1 : limit), var entry = queue.popFirst() {
            guard let publication = entry.message.publication(on: entry.topic, now: environment.time()) else {
                continue  // its time was over
            }
            do throws(MQTTError) {
                let id = try broker.publish(publication)
                entry.wasSent = true
                inFlight.append(InFlight(id: id, entry: entry, sent: context.now))
            } catch {
                guard error.cause != .notConnected else { return queue.prepend(entry) }
                Log.info("\(entry.message.name) can't be published: \(error)")
                lost(1, entry.message.name, .refused)
            }
        }
        if isIdle { onIdle() }
    }

    func acknowledged(_ id: PacketID, _ reason: ReasonCode) {
        guard let index = inFlight.firstIndex(where: { $0.id == id }) else { return }
        let sent = inFlight.remove(at: index)
        acknowledgement = context.now - sent.sent
        if reason.isFailure {
            Log.info("the broker refused \(sent.entry.message.name): \(reason)")
            values.refused(sent.entry.message)
            lost(1, sent.entry.message.name, .refused)
        } else {
            exported += 1
        }
        pump()
    }

    // MARK: Ends of connections

    /// A message that was in flight at two ends of connections is sent alone, so that it is known whether it is the cause.
    private var isSuspectNext: Bool {
        (inFlight.first?.entry.suspicion ?? 0) > 0 || (queue.first?.suspicion ?? 0) > 0
    }

    /// A connection has ended. Unacknowledged messages return to the head of the queue, except one that ends the connection
    /// again and again.
    func connectionEnded(because error: MQTTError?) {
        let isAlone = inFlight.count == 1
        for sent in inFlight.reversed() {
            var entry = sent.entry
            if let error { entry.suspicion += Self.suspicion(error, after: context.now - sent.sent) }
            guard isAlone, let error, entry.suspicion >= Self.maxSuspicion else {
                queue.prepend(entry)
                continue
            }
            Log.warning("\(entry.message.name) is given up, because it ends the connection to the broker: \(error)")
            lost(1, entry.message.name, .refused)
        }
        inFlight = []
    }

    /// Two ends with a reason, or three without, when the message was alone in flight.
    private static let maxSuspicion = 6

    private static func suspicion(_ error: MQTTError, after time: Duration) -> Int {
        switch error.cause {
        case .ended(let reason): reason.isAboutMessages ? 3 : 0
        // A broker that closes the connection because of a message does it at once.
        case .connectionLost, .system: time < .seconds(1) ? 2 : 0
        default: 0
        }
    }

    // MARK: Values

    /// Removes values from the broker that the session does not keep any more.
    ///
    /// - Parameter kept: all values of this session.
    /// - Returns: whether the service has to send its values again, because the broker lacks some of them.
    func compare(with kept: Set<ValueKind>) -> Bool {
        let exported = kept.filter { kind in
            let message = OutwardMessage(removalOf: kind.name.text, kind.object.text)
            return exports(message.name)
                && BridgeTopic.isPossible(message.topic(of: configuration.origin, in: configuration.realm))
        }
        let (gone, isReplayNeeded) = values.compare(with: exported, isExported: exports)
        for kind in gone { append(OutwardMessage(removalOf: kind.name.text, kind.object.text)) }
        return isReplayNeeded
    }

    /// The messages that the broker has not acknowledged, in order.
    var unacknowledged: [ExportQueue.Entry] { inFlight.map(\.entry) + queue.all }
}

extension ReasonCode {
    /// Whether a broker that ends a connection for this reason means a message, and not the connection.
    fileprivate var isAboutMessages: Bool {
        switch self {
        case .sessionTakenOver, .serverShuttingDown, .serverUnavailable, .serverBusy, .keepAliveTimeout,
            .useAnotherServer, .serverMoved, .connectionRateExceeded, .maximumConnectTime, .banned:
            false
        default: isFailure
        }
    }
}

/// The name and object of a value.
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
