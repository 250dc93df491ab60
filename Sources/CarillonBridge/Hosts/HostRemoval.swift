// SPDX-License-Identifier: Apache-2.0
import CarillonCollections
import CarillonMQTT
import CarillonMainLoop

/// The removal of all messages that the broker retains of a host that is gone for good: `carillon bridge forget`.
/// ``BridgeInstance`` creates one for each command. It queries the broker for the messages and publishes an empty
/// retained message on each of their topics, which removes them.
final class HostRemoval {
    /// The outcome of a removal.
    struct Result {
        /// The topics on which nothing is retained any more.
        var removed: [String] = []
        /// The number of removals that the broker refused.
        var refused: UInt64 = 0
        /// The reason of the last refusal.
        var reason = ""
    }

    private enum Phase {
        /// The broker shows the messages that it retains of the host.
        case looking
        /// The retained messages are being removed.
        case removing
        case over
    }

    /// The maximum time for an answer of the broker, in milliseconds.
    private static let timeout: UInt32 = 20_000
    /// The maximum number of unacknowledged removals.
    private static let window = 16
    /// The maximum number of topics of one query. Further messages stay.
    private static let maxTopics = 131_072

    /// The host.
    let origin: Origin
    private let realm: String
    private let broker: BrokerLink
    private let context: MainContext
    private var phase = Phase.looking
    /// The topics on which the broker has shown a message.
    private var topics: Set<String> = []
    /// The topics whose removal was not published yet.
    private var unpublished = Deque<String>()
    /// The unacknowledged removals.
    private var inFlight: [PacketID: String] = [:]
    /// The result so far.
    private var result = Result()
    /// The time limit for the next answer.
    private var timer: EventSource?
    /// The callback; nil when it was called.
    private var done: ((Swift.Result<Result, RoundTripTest.Failure>, _ removed: [String]) -> Void)?
    /// Whether the broker has dropped some of the messages that it was to show.
    private var isIncomplete = false
    /// The number of topics that were removed before the last query.
    private var removedBefore = 0

    /// Begins the removal.
    ///
    /// - Parameter done: called once, with the removed topics, also if the removal has failed.
    init(
        _ origin: Origin, in realm: String, broker: BrokerLink, context: MainContext,
        _ done: @escaping (Swift.Result<Result, RoundTripTest.Failure>, _ removed: [String]) -> Void
    ) {
        self.origin = origin
        self.realm = realm
        self.broker = broker
        self.context = context
        self.done = done
        look()
    }

    /// Queries the broker for the retained messages of the host.
    private func look() {
        phase = .looking
        (topics, removedBefore) = ([], result.removed.count)
        let filters =
            BridgeTopic.filters(of: origin, in: realm)
            + [.online, .status].map { BridgeTopic($0, of: origin).text(in: realm) }
        broker.showRetained(filters, usesCanary: true) { [weak self] answer in self?.shown(answer) }
        wait()
    }

    /// Whether the removal has ended.
    var isOver: Bool { phase == .over }

    /// Restarts the time limit.
    private func wait() {
        timer = .once(milliseconds: Self.timeout, on: context) { [unowned self] in fail("the broker does not answer") }
    }

    /// Handles the end of the query, and begins to remove.
    private func shown(_ answer: RetainedQueries.Answer) {
        guard phase == .looking else { return }
        guard answer.refused.isEmpty, answer.isComplete || !topics.isEmpty else {
            let reason = answer.refused.isEmpty ? "it does not answer, or lacks buffer space" : "it refuses to"
            return fail("the broker does not show its retained messages of \(origin.text): \(reason)")
        }
        isIncomplete = !answer.isComplete
        phase = .removing
        unpublished = Deque(topics.sorted())
        goOn()
    }

    /// Handles a message of the broker during the query. A presence message by which the host is online ends the
    /// removal.
    ///
    /// - Returns: whether the message is one to remove, so that other parts of the bridge ignore it.
    func take(_ publication: Publication) -> Bool {
        guard phase == .looking, publication.isRetained, !publication.payload.isEmpty,
            let topic = BridgeTopic(publication.topic, in: realm), topic.origin == origin
        else { return false }
        if case .online = topic.subject, HostTable.host(in: publication)?.isOnline == true {
            fail("\(origin.text) is online: it removes its values itself")
            return false
        }
        wait()
        if topics.count < Self.maxTopics { topics.insert(publication.topic) }
        return true
    }

    /// Publishes further removals, within the window, or ends.
    private func goOn() {
        while inFlight.count < Self.window, let topic = unpublished.popFirst() {
            do throws(MQTTError) {
                inFlight[try broker.publish(Publication(topic: topic, payload: [], isRetained: true))] = topic
            } catch {
                return fail(error.description)
            }
        }
        guard inFlight.isEmpty else { return wait() }
        // After an incomplete answer the query is repeated as long as it makes progress: the broker has less to show.
        if isIncomplete, result.removed.count > removedBefore { return look() }
        end(.success(result))
    }

    /// Handles the acknowledgment or refusal of a removal. Other identifiers are ignored.
    func acknowledged(_ id: PacketID, _ reason: ReasonCode) {
        guard let topic = inFlight.removeValue(forKey: id) else { return }
        if reason.isFailure {
            result.refused += 1
            result.reason = reason.description
        } else {
            result.removed.append(topic)
        }
        goOn()
    }

    /// Ends the removal with an error, for example because the connection ends.
    func fail(_ reason: String) { end(.failure(.init(reason: reason))) }

    private func end(_ result: Swift.Result<Result, RoundTripTest.Failure>) {
        guard let done else { return }
        phase = .over
        self.done = nil
        timer = nil
        done(result, self.result.removed)
    }
}
