// SPDX-License-Identifier: Apache-2.0
import CarillonCollections
import CarillonCore
import CarillonMQTT
import CarillonMainLoop
import CarillonWire

/// The path from the session to the broker: selects notifications, numbers them, and keeps them until the broker has
/// acknowledged them.
final class Exporter {
    private struct InFlight {
        let id: PacketID
        let entry: ExportQueue.Entry
        let sent: SuspendingClock.Instant
    }

    private let configuration: BridgeConfiguration
    /// The run of the bridge's presence.
    private let run: String
    private let environment: BridgeEnvironment
    private let context: MainContext
    private let broker: BrokerLink
    /// - Parameters: count, name, reason.
    private let lost: (UInt64, String?, LossReason) -> Void
    private var queue: ExportQueue
    private(set) var counts: TopicCounts
    /// The unacknowledged messages, in the order in which they were sent.
    private var inFlight: [InFlight] = []
    var values = OwnValues()
    /// Messages that the broker has acknowledged.
    var exported: UInt64 = 0
    /// The time that the broker took to acknowledge the last message.
    private(set) var acknowledgement: Duration?
    private var hasWarned = false
    /// The values to remove from the broker, when the queue is empty.
    private var removals = Removals()
    private var suspectTimer: EventSource?
    /// Called when no message waits for the broker.
    var onIdle: () -> Void = {}

    init(
        _ configuration: BridgeConfiguration, _ environment: BridgeEnvironment, run: String, broker: BrokerLink,
        context: MainContext, lost: @escaping (UInt64, String?, LossReason) -> Void
    ) {
        self.configuration = configuration
        self.run = run
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
            if entry.isRemoval, !entry.wasSent {
                removals.append(ValueKind(entry.message.name, entry.message.object))
                continue
            }
            guard BridgeTopic.isPossible(entry.topic) else {
                lost(1, entry.message.name, .noTopic)
                continue
            }
            values.restore(entry.message)
            lose(queue.restore(entry))
        }
    }

    /// Exports a notification of the session if the configuration allows its name, and if it has no outside origin. An
    /// imported notification is never exported again, so that there are no loops (G2).
    ///
    /// - Returns: whether it is a new value that is exported.
    @discardableResult
    func take(_ notification: ArrivedNotification) -> Bool {
        guard exports(notification.name) else { return false }
        guard let details = notification.details?.decoded(), details[Detail.retained.rawValue] != nil else {
            // The service was asked for the origin, and did not send it.
            if !hasWarned { Log.warning("not exported: the service does not send the origin of notifications") }
            hasWarned = true
            lost(1, notification.name, .refused)
            return false
        }
        guard details[Detail.host.rawValue] == nil, details[Detail.user.rawValue] == nil else { return false }
        let keepsWidths = configuration.binaryNames.contains { $0.matches(notification.name) }
        let message = OutwardMessage(notification, details: details, keepsWidths: keepsWidths, run: run)
        let topic = message.topic(of: configuration.origin, in: configuration.realm)
        // Receivers subscribe to names, so the name is checked besides the topic.
        guard BridgeTopic.isPossible(name: message.name), BridgeTopic.isPossible(topic) else {
            // The loss of a replayed value was announced when the value was posted.
            guard !message.properties.isOldValue else { return false }
            Log.info("\(message.name) can't be exported: its topic has too many levels or bytes for MQTT")
            lost(1, message.name, .noTopic)
            return false
        }
        if message.isRetained {
            removals.remove(ValueKind(message.name, message.object))
            guard values.publish(message, isReplayed: message.properties.isOldValue) else {
                return false
            }
        }
        let entry = ExportQueue.Entry(message: message, topic: topic)
        // A value that never fits would be requested again and again.
        if queue.neverFits(entry) { values.refused(message) }
        lose(queue.append(entry))
        publishToDevice(message, notification)
        pump()
        return message.isValue && !message.properties.isOldValue
    }

    /// Publishes a notification on the topic to which the configuration maps it (G2). A value that existed before is no
    /// news.
    private func publishToDevice(_ message: OutwardMessage, _ notification: ArrivedNotification) {
        guard !message.properties.isOldValue else { return }
        switch configuration.map.target(of: message.name, message.object) {
        case .none: break
        case .topic(let topic):
            let message = OutwardMessage(toDevice: message, notification.userInfo.decoded())
            lose(queue.append(ExportQueue.Entry(message: message, topic: topic)))
        case .impossible:
            Log.info("\(message.name) is not mapped to a topic: its object can't replace the wildcards")
            lost(1, message.name, .noTopic)
        }
    }

    private func exports(_ name: String) -> Bool {
        !WantedNames.ownNames.matches(name) && configuration.exports.contains { $0.matches(name) }
    }

    private func lose(_ entries: [ExportQueue.Entry]) {
        for entry in entries {
            values.lost(entry.message)
            // A value that existed before is sent again.
            if entry.message.properties.isOldValue { continue }
            // Its number is missing at the receivers, so that they also announce the loss.
            if entry.message.properties.place == nil { _ = nextPlace(on: entry.topic) }
            lost(1, entry.message.name, .queueFull)
        }
    }

    private func nextPlace(on topic: String) -> MessageProperties.Place {
        counts.next(on: topic, newRun: environment.makeToken)
    }

    /// Returns the next message to send: from the queue, or, if the queue is empty, the removal of a value.
    private func nextEntry() -> ExportQueue.Entry? {
        if let entry = queue.popFirst() { return entry }
        return removals.popFirst().map(removal)
    }

    private func removal(of kind: ValueKind) -> ExportQueue.Entry {
        let message = OutwardMessage(removalOf: kind.name.text, kind.object.text)
        return .init(message: message, topic: message.topic(of: configuration.origin, in: configuration.realm))
    }

    /// Sends queued messages, within the in-flight limit.
    func pump() {
        let limit = Int(min(configuration.inFlight, broker.limits?.receiveMaximum ?? .max))
        while broker.isConnected, inFlight.count < (isSuspectNext ? 1 : limit), maySendNext(), var entry = nextEntry() {
            // The number is given at the sending: an unsent message leaves no hole. A message that has a number is sent
            // even after its lifetime.
            if entry.message.properties.place == nil {
                guard !entry.message.isExpired(at: environment.time()) else { continue }
                entry.message.properties.place = nextPlace(on: entry.topic)
            }
            let publication = entry.message.publication(on: entry.topic, now: environment.time())
            do throws(MQTTError) {
                let id = try broker.publish(publication)
                entry.wasSent = true
                inFlight.append(InFlight(id: id, entry: entry, sent: context.now))
            } catch {
                guard error.cause != .notConnected else { return queue.prepend(entry) }
                refuse(entry, because: error.description)
            }
        }
        if isIdle { onIdle() }
    }

    func acknowledged(_ id: PacketID, _ reason: ReasonCode) {
        guard let index = inFlight.firstIndex(where: { $0.id == id }) else { return }
        let sent = inFlight.remove(at: index)
        acknowledgement = context.now - sent.sent
        if reason.isFailure {
            refuse(sent.entry, because: reason.description)
        } else {
            exported += 1
        }
        pump()
    }

    private func refuse(_ entry: ExportQueue.Entry, because reason: String) {
        Log.info("\(entry.message.name) can't be published: \(reason)")
        values.refused(entry.message)
        lost(1, entry.message.name, .refused)
    }

    // MARK: Ends of connections

    /// Whether the next message was in flight when a connection ended, and may be the cause. It is sent alone, to find
    /// out.
    private var isSuspectNext: Bool {
        (inFlight.first?.entry.suspicion ?? 0) > 0 || (queue.first?.suspicion ?? 0) > 0
    }

    /// Returns whether the next message may be sent. A suspect waits until the connection has lasted for one second.
    /// Then no other message that the bridge sends at the beginning is the cause of its end.
    private func maySendNext() -> Bool {
        guard isSuspectNext, let since = broker.connectedAt, context.now - since < .seconds(1) else { return true }
        if suspectTimer == nil {
            suspectTimer = .once(milliseconds: 1_000, on: context) { [unowned self] in
                suspectTimer = nil
                pump()
            }
        }
        return false
    }

    /// Handles the end of a connection. Unacknowledged messages return to the head of the queue, except a message that
    /// ends the connection again and again.
    func connectionEnded(because error: MQTTError?) {
        let isAlone = inFlight.count == 1
        suspectTimer = nil
        for sent in inFlight.reversed() {
            var entry = sent.entry
            if let error { entry.suspicion += Self.suspicion(error, after: context.now - sent.sent) }
            guard isAlone, let error, entry.suspicion >= Self.maxSuspicion else {
                queue.prepend(entry)
                continue
            }
            Log.warning("\(entry.message.name) is discarded, because it ends the connection to the broker")
            refuse(entry, because: error.description)
        }
        inFlight = []
    }

    /// The evidence at which a message that was alone in flight is given up: two ends with a reason, or three without.
    private static let maxSuspicion = 6

    private static func suspicion(_ error: MQTTError, after time: Duration) -> Int {
        #if CARILLON_PLANTED
            if PlantedFault.strikes(.topicUnchecked) { return 0 }
        #endif
        return switch error.cause {
        case .ended(let reason) where reason.isAboutMessages: 3
        case .ended(let reason) where reason.isAboutConnection: 0
        // A broker that closes the connection because of a message does it at once.
        case .ended, .connectionLost, .system: time < .seconds(1) ? 2 : 0
        default: 0
        }
    }

    // MARK: Values

    /// Removes values from the broker that the session does not keep any more.
    ///
    /// - Parameter kept: all values of this session.
    func compare(with kept: Set<ValueKind>, hasLooked: Bool) -> OwnValues.Difference {
        let exported = kept.filter { kind in
            let message = OutwardMessage(removalOf: kind.name.text, kind.object.text)
            return exports(message.name)
                && BridgeTopic.isPossible(message.topic(of: configuration.origin, in: configuration.realm))
        }
        let difference = values.compare(with: exported, hasLooked: hasLooked) { [self] kind in
            let topic = BridgeTopic(value: kind.name.text, kind.object.text, of: configuration.origin)
            return exports(kind.name.text) || counts.contains(topic.text(in: configuration.realm))
        }
        for kind in difference.gone { removals.append(kind) }
        pump()
        return difference
    }

    /// The unacknowledged messages, in order.
    var unacknowledged: [ExportQueue.Entry] { inFlight.map(\.entry) + queue.all + removals.all.map(removal) }
}

extension ReasonCode {
    /// Whether a broker that ends a connection for this reason means a message, and not the connection.
    fileprivate var isAboutMessages: Bool {
        switch self {
        case .malformedPacket, .protocolError, .implementationSpecific, .notAuthorized, .topicNameInvalid,
            .topicAliasInvalid, .packetTooLarge, .payloadFormatInvalid, .retainNotSupported, .qualityNotSupported:
            true
        default: false
        }
    }

    /// Whether the reason certainly has nothing to do with a message.
    fileprivate var isAboutConnection: Bool {
        switch self {
        case .serverShuttingDown, .serverBusy, .serverUnavailable, .keepAliveTimeout, .sessionTakenOver, .serverMoved,
            .useAnotherServer, .connectionRateExceeded, .maximumConnectTime, .administrativeAction, .banned:
            true
        default: false
        }
    }
}

/// The queue of values to remove, each once and in order.
private struct Removals {
    private var line = Deque<ValueKind>()
    private var kinds: Set<ValueKind> = []

    mutating func append(_ kind: ValueKind) { if kinds.insert(kind).inserted { line.append(kind) } }

    /// Cancels a removal, because the value exists again.
    mutating func remove(_ kind: ValueKind) { kinds.remove(kind) }

    mutating func popFirst() -> ValueKind? {
        while let kind = line.popFirst() { if kinds.remove(kind) != nil { return kind } }
        return nil
    }

    var all: [ValueKind] {
        var rest = self
        return Array(AnyIterator { rest.popFirst() })
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
