// SPDX-License-Identifier: Apache-2.0
import CarillonCollections
import CarillonMQTT
import CarillonMainLoop

/// The removal of everything that the broker keeps of a host that is gone for good: `carillon bridge forget`.
final class HostRemoval {
    struct Result {
        /// The topics on which nothing is retained any more.
        var removed: [String] = []
        var refused: UInt64 = 0
        /// The reason of the last refusal.
        var reason = ""
    }

    private enum Phase {
        /// The broker shows the messages that it retains.
        case looking
        /// The retained messages are being removed.
        case removing
        case over
    }

    /// The maximum time for the broker's answer, in milliseconds.
    private static let timeout: UInt32 = 20_000
    /// The maximum number of unacknowledged removals.
    private static let window = 16
    /// The maximum number of topics that are removed together.
    private static let maxTopics = 131_072

    let origin: Origin
    private let realm: String
    private let broker: BrokerLink
    private let context: MainContext
    private var phase = Phase.looking
    private var topics: Set<String> = []
    private var rest = Deque<String>()
    private var inFlight: [PacketID: String] = [:]
    private var result = Result()
    private var timer: EventSource?
    private var done: ((Swift.Result<Result, RoundTripTest.Failure>, _ removed: [String]) -> Void)?
    /// Whether the broker has dropped some of the messages to show; `removedBefore` is the number of topics removed
    /// before it was asked.
    private var isIncomplete = false
    private var removedBefore = 0

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

    private func look() {
        phase = .looking
        (topics, removedBefore) = ([], result.removed.count)
        let filters =
            BridgeTopic.filters(of: origin, in: realm)
            + [.online, .status].map { BridgeTopic($0, of: origin).text(in: realm) }
        broker.showRetained(filters, usesCanary: true) { [weak self] answer in self?.shown(answer) }
        wait()
    }

    var isOver: Bool { phase == .over }

    private func wait() {
        timer = .once(milliseconds: Self.timeout, on: context) { [unowned self] in fail("the broker does not answer") }
    }

    private func shown(_ answer: RetainedQueries.Answer) {
        guard phase == .looking else { return }
        guard answer.refused.isEmpty, answer.isComplete || !topics.isEmpty else {
            let reason = answer.refused.isEmpty ? "it does not answer, or lacks buffer space" : "it refuses to"
            return fail("the broker does not show its retained messages of \(origin.text): \(reason)")
        }
        isIncomplete = !answer.isComplete
        phase = .removing
        rest = Deque(topics.sorted())
        goOn()
    }

    /// - Returns: whether the message is about the host, and concerns no other part of the bridge meanwhile.
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

    private func goOn() {
        while inFlight.count < Self.window, let topic = rest.popFirst() {
            do throws(MQTTError) {
                inFlight[try broker.publish(Publication(topic: topic, payload: [], isRetained: true))] = topic
            } catch {
                return fail(error.description)
            }
        }
        guard inFlight.isEmpty else { return wait() }
        // The broker has space for further messages now.
        if isIncomplete, result.removed.count > removedBefore { return look() }
        end(.success(result))
    }

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

    /// Ends before everything is removed, for example because the connection ends.
    func fail(_ reason: String) { end(.failure(.init(reason: reason))) }

    private func end(_ result: Swift.Result<Result, RoundTripTest.Failure>) {
        guard let done else { return }
        phase = .over
        self.done = nil
        timer = nil
        done(result, self.result.removed)
    }
}
