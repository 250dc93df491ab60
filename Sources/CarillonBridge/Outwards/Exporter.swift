// SPDX-License-Identifier: Apache-2.0
import CarillonCollections
import CarillonCore
import CarillonMQTT
import CarillonMainLoop
import CarillonWire

/// The direction from the session to the broker. It selects notifications by the configuration, queues them, numbers
/// them, publishes them within an in-flight window, and keeps each until the broker has acknowledged it. It also
/// removes values from the broker that the session no longer has.
///
/// A ``BridgeInstance`` has one exporter and passes all events to it.
final class Exporter {
    /// A message that was sent and is not acknowledged.
    private struct InFlight {
        let id: PacketID
        let entry: ExportQueue.Entry
        let sent: SuspendingClock.Instant
    }

    private let configuration: BridgeConfiguration
    /// The run of this bridge process, as its presence names it.
    private let run: String
    private let environment: BridgeEnvironment
    private let context: MainContext
    private let broker: BrokerLink
    /// Reports losses: their number, name and reason.
    private let lost: (UInt64, String?, LossReason) -> Void
    /// The messages that are not sent.
    private var queue: ExportQueue
    /// The sequence numbers of published messages.
    private(set) var counts: TopicCounts
    /// The unacknowledged messages, in the order in which they were sent.
    private var inFlight: [InFlight] = []
    /// The values that the broker has of this host.
    var values = OwnValues()
    /// The number of messages that the broker has acknowledged.
    var exported: UInt64 = 0
    /// The time that the broker took to acknowledge the last message; nil before the first.
    private(set) var acknowledgement: Duration?
    /// Whether the warning about a missing origin was logged.
    private var hasWarned = false
    /// The values to remove from the broker as soon as the queue is empty.
    private var removals = Removals()
    /// Runs while a suspect waits (``maySendNext()``).
    private var suspectTimer: EventSource?
    /// Called when no message is queued or unacknowledged.
    var onIdle: () -> Void = {}

    /// Creates an exporter with a new run of sequence numbers.
    ///
    /// - Parameter run: the run of the bridge's presence.
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

    /// The number of messages that are not sent.
    var queuedCount: Int { queue.count }
    /// Their approximate size, in bytes.
    var queuedBytes: Int { queue.byteCount }
    /// The number of unacknowledged messages.
    var inFlightCount: Int { inFlight.count }
    /// Whether no message is queued or unacknowledged. Pending removals do not count.
    var isIdle: Bool { queue.count == 0 && inFlight.isEmpty }

    /// Continues with the sequence numbers and messages of an earlier bridge.
    func goOn(with counts: TopicCounts, _ entries: [ExportQueue.Entry]) {
        self.counts = counts
        for entry in entries {
            // A newer value of the same name and object cancels a removal, as long as it was not sent.
            if entry.isRemoval, !entry.wasSent {
                removals.append(ValueKey(entry.message.name, entry.message.object))
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

    /// Queues a notification of the session if the configuration exports its name and it has no origin on another
    /// machine. An imported notification is never exported again, so there are no loops (G2).
    ///
    /// - Returns: whether it sets a value that is exported and did not exist before.
    @discardableResult
    func take(_ notification: ArrivedNotification) -> Bool {
        guard exports(notification.name) else { return false }
        guard let details = notification.details?.decoded(), details[Detail.retained.rawValue] != nil else {
            // The detail `retained` is always present if the service sends details. Without them the origin is unknown.
            if !hasWarned { Log.warning("not exported: the service does not send the origin of notifications") }
            hasWarned = true
            lost(1, notification.name, .refused)
            return false
        }
        guard details[Detail.host.rawValue] == nil, details[Detail.user.rawValue] == nil else { return false }
        let keepsWidths = configuration.binaryNames.contains { $0.matches(notification.name) }
        let message = OutwardMessage(notification, details: details, keepsWidths: keepsWidths, run: run)
        let topic = message.topic(of: configuration.origin, in: configuration.realm)
        // Receivers subscribe to filters for a name, which have to be possible as well.
        guard BridgeTopic.isPossible(name: message.name), BridgeTopic.isPossible(topic) else {
            // The loss of a value that is replayed was reported when the value was posted.
            guard !message.properties.isOldValue else { return false }
            Log.info("\(message.name) can't be exported: its topic has too many levels or bytes for MQTT")
            lost(1, message.name, .noTopic)
            return false
        }
        if message.isRetained {
            removals.remove(ValueKey(message.name, message.object))
            guard values.publish(message, isReplayed: message.properties.isOldValue) else {
                return false
            }
        }
        let entry = ExportQueue.Entry(message: message, topic: topic)
        // A value that never fits counts as refused. Otherwise it would be requested from the service again and again.
        if queue.neverFits(entry) { values.refused(message) }
        lose(queue.append(entry))
        publishToDevice(message, notification)
        pump()
        return message.isValue && !message.properties.isOldValue
    }

    /// Also queues a notification for the topic of devices to which the configuration maps it (G2). Replayed values are
    /// left out.
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

    /// Whether the configuration exports a name.
    private func exports(_ name: String) -> Bool {
        !WantedNames.ownNames.matches(name) && configuration.exports.contains { $0.matches(name) }
    }

    /// Reports queued messages that were dropped because the queue was full.
    private func lose(_ entries: [ExportQueue.Entry]) {
        for entry in entries {
            values.lost(entry.message)
            // A replayed value is no news whose loss has to be reported; it is replayed again later.
            if entry.message.properties.isOldValue { continue }
            // Its number is used up, so that receivers notice the loss as well.
            if entry.message.properties.sequenceNumber == nil { _ = nextSequenceNumber(on: entry.topic) }
            lost(1, entry.message.name, .queueFull)
        }
    }

    /// Returns the next sequence number on a topic.
    private func nextSequenceNumber(on topic: String) -> MessageProperties.SequenceNumber {
        counts.next(on: topic, newRun: environment.makeToken)
    }

    /// Returns the next message to send: from the queue, or, if the queue is empty, the removal of a value.
    private func nextEntry() -> ExportQueue.Entry? {
        if let entry = queue.popFirst() { return entry }
        return removals.popFirst().map(removal)
    }

    /// Returns the message that removes a value from the broker.
    private func removal(of kind: ValueKey) -> ExportQueue.Entry {
        let message = OutwardMessage(removalOf: kind.name.text, kind.object.text)
        return .init(message: message, topic: message.topic(of: configuration.origin, in: configuration.realm))
    }

    /// Sends queued messages, within the in-flight limits of the configuration and the broker.
    func pump() {
        let limit = Int(min(configuration.inFlight, broker.limits?.receiveMaximum ?? .max))
        while broker.isConnected, inFlight.count < (isSuspectNext ? 1 : limit), maySendNext(), var entry = nextEntry() {
            // The sequence number is assigned only now, so that an expired message leaves no hole. A message that has a
            // number from an earlier attempt is sent even if it has expired.
            if entry.message.properties.sequenceNumber == nil {
                guard !entry.message.isExpired(at: environment.time()) else { continue }
                entry.message.properties.sequenceNumber = nextSequenceNumber(on: entry.topic)
            }
            let publication = entry.message.publication(on: entry.topic, now: environment.time())
            do throws(MQTTError) {
                let id = try broker.publish(publication)
                entry.wasSent = true
                inFlight.append(InFlight(id: id, entry: entry, sent: context.now))
            } catch {
                // Without a connection the message waits for the next one.
                guard error.cause != .notConnected else { return queue.prepend(entry) }
                refuse(entry, because: error.description)
            }
        }
        if isIdle { onIdle() }
    }

    /// Handles the broker's acknowledgment or refusal of a message. Other identifiers are ignored.
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

    /// Reports a message that the broker refuses.
    private func refuse(_ entry: ExportQueue.Entry, because reason: String) {
        Log.info("\(entry.message.name) can't be published: \(reason)")
        values.refused(entry.message)
        lost(1, entry.message.name, .refused)
    }

    // MARK: Messages that end the connection

    /// Whether the message in flight, or the next one, is a suspect: it was in flight when a connection ended, and may
    /// be the cause. A suspect is sent alone, to find out.
    private var isSuspectNext: Bool {
        (inFlight.first?.entry.suspicion ?? 0) > 0 || (queue.first?.suspicion ?? 0) > 0
    }

    /// Whether the next message may be sent. A suspect waits until the connection is one second old. If the connection
    /// then ends, none of the other messages that the bridge sends at the beginning is the cause.
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
    /// has ended several connections.
    ///
    /// - Parameter error: nil if the bridge itself has ended the connection.
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

    /// The evidence at which a message that was alone in flight is discarded: two ends with a reason about messages, or
    /// three without a reason.
    private static let maxSuspicion = 6

    /// Returns the evidence against a message, by the error that ended the connection and the time since the message
    /// was sent.
    private static func suspicion(_ error: MQTTError, after time: Duration) -> Int {
        // A fault of test builds (E7).
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

    /// Compares the session's values with the broker's, and schedules the removal of values that the session no longer
    /// has.
    ///
    /// - Parameters:
    ///   - kept: all values of this session.
    ///   - hasLooked: whether the broker has shown its values of this host.
    /// - Returns: the difference, which also says whether the service has to send values again.
    func compare(with kept: Set<ValueKey>, hasLooked: Bool) -> OwnValues.Difference {
        let exported = kept.filter { kind in
            let message = OutwardMessage(removalOf: kind.name.text, kind.object.text)
            return exports(message.name)
                && BridgeTopic.isPossible(message.topic(of: configuration.origin, in: configuration.realm))
        }
        // Only values of exported names, and of topics on which a bridge of this host has published, are removed.
        let difference = values.compare(with: exported, hasLooked: hasLooked) { [self] kind in
            let topic = BridgeTopic(value: kind.name.text, kind.object.text, of: configuration.origin)
            return exports(kind.name.text) || counts.contains(topic.text(in: configuration.realm))
        }
        for kind in difference.gone { removals.append(kind) }
        pump()
        return difference
    }

    /// The messages that the broker has not acknowledged, and the pending removals, in order.
    var unacknowledged: [ExportQueue.Entry] { inFlight.map(\.entry) + queue.all + removals.all.map(removal) }
}

extension ReasonCode {
    /// Whether a broker that ends a connection for this reason complains about a message.
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

/// The queue of values to remove from the broker, each once and in order.
private struct Removals {
    /// The values, in order; it may contain cancelled ones.
    private var order = Deque<ValueKey>()
    /// The values whose removal is not cancelled.
    private var kinds: Set<ValueKey> = []

    mutating func append(_ kind: ValueKey) { if kinds.insert(kind).inserted { order.append(kind) } }

    /// Cancels a removal, because the value exists again.
    mutating func remove(_ kind: ValueKey) { kinds.remove(kind) }

    mutating func popFirst() -> ValueKey? {
        while let kind = order.popFirst() { if kinds.remove(kind) != nil { return kind } }
        return nil
    }

    /// The values, in order.
    var all: [ValueKey] {
        var rest = self
        return Array(AnyIterator { rest.popFirst() })
    }
}

/// The identity of a retained value within a host: its name and object, compared byte for byte.
struct ValueKey: Hashable, Comparable {
    let name: ExactText
    let object: ExactText

    init(_ name: String, _ object: String) {
        self.name = ExactText(name)
        self.object = ExactText(object)
    }

    static func < (left: ValueKey, right: ValueKey) -> Bool {
        (left.name.text, left.object.text) < (right.name.text, right.object.text)
    }
}
