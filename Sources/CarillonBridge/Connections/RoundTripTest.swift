// SPDX-License-Identifier: Apache-2.0
import CarillonMQTT
import CarillonMainLoop

/// One message that the bridge sends to itself through the broker, to measure the round trip or to find out whether
/// messages pass. ``RoundTrips`` creates it. It subscribes to the topic, publishes the message when the broker has
/// granted that, and ends with the arrival or a time limit.
final class RoundTripTest {
    /// The reason why the message did not come back. Other commands to the broker also use it for their errors.
    struct Failure: Error {
        /// The kind of failure.
        enum Kind {
            /// The message did not come back in time.
            case silence
            /// The broker refused the subscription to the topic.
            case refusal
            /// The test ended for another reason.
            case end
        }

        /// The kind of failure.
        var kind = Kind.end
        /// The text for people.
        let reason: String
    }

    /// The time limit of a requested test, in milliseconds.
    static let timeout: UInt32 = 10_000

    private let topic: String
    /// The payload: a random token, by which the message is recognized.
    private let payload: [UInt8]
    private let broker: BrokerLink
    private let context: MainContext
    /// The unanswered or granted subscription; nil if none was sent.
    private var subscription: PacketID?
    /// The time of the publication; nil before.
    private var sent: SuspendingClock.Instant?
    /// The time limit.
    private var timer: EventSource?
    /// The callback; nil when it was called.
    private var done: ((Result<Duration, Failure>) -> Void)?

    /// Subscribes to the topic.
    ///
    /// - Parameters:
    ///   - token: the payload, which no other message has.
    ///   - timeout: the time limit, in milliseconds.
    ///   - done: receives the round-trip time, or the reason why the message did not come back. Called once.
    init(
        topic: String, token: String, timeout: UInt32 = timeout, broker: BrokerLink, context: MainContext,
        _ done: @escaping (Result<Duration, Failure>) -> Void
    ) {
        self.topic = topic
        payload = Array(token.utf8)
        self.broker = broker
        self.context = context
        self.done = done
        // A refusal is reported to the user of the test alone (`isTrial`): no other message needs this topic.
        subscription = broker.subscribe([TopicFilter(topic, excludesOwn: false)], isTrial: true)
        let seconds = timeout / 1_000
        timer = .once(milliseconds: timeout, on: context) { [unowned self] in
            let words = "the test message did not return within \(seconds) s: the broker's access list has to "
            end(.failure(Failure(kind: .silence, reason: words + "allow reading and writing \(topic)")))
        }
    }

    /// Whether the test has ended.
    var isOver: Bool { done == nil }

    /// Handles the broker's answer to a subscription: publishes the message.
    func subscribed(_ id: PacketID, _ reasons: [ReasonCode]) {
        guard id == subscription, !isOver else { return }
        if let reason = reasons.first(where: \.isFailure) {
            let words = "the broker refused the subscription to \(topic): \(reason); see its access list"
            return end(.failure(Failure(kind: .refusal, reason: words)))
        }
        sent = context.now
        do throws(MQTTError) {
            _ = try broker.publish(Publication(topic: topic, payload: payload))
        } catch {
            end(.failure(Failure(reason: error.description)))
        }
    }

    /// Handles a message on the topic.
    func received(_ publication: Publication) {
        guard publication.payload == payload, let sent else { return }
        end(.success(context.now - sent))
    }

    /// Ends the test with a result.
    func end(_ result: Result<Duration, Failure>) {
        guard let done else { return }
        self.done = nil
        timer = nil
        broker.unsubscribe([topic])
        done(result)
    }
}

extension Duration {
    /// The duration in microseconds, rounded toward zero.
    var microseconds: Int64 {
        components.seconds * 1_000_000 + components.attoseconds / 1_000_000_000_000
    }
}
