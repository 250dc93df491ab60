// SPDX-License-Identifier: Apache-2.0
import CarillonMQTT
import CarillonMainLoop

/// A message that the bridge sends to itself through the broker: `carillon bridge test`.
final class RoundTripTest {
    struct Failure: Error {
        enum Kind {
            /// It did not come back in time.
            case silence
            /// The broker refused the subscription to the topic.
            case refusal
            /// The test ended for another reason.
            case end
        }

        var kind = Kind.end
        let reason: String
    }

    /// The maximum time of a requested test, in milliseconds.
    static let timeout: UInt32 = 10_000

    private let topic: String
    private let payload: [UInt8]
    private let broker: BrokerLink
    private let context: MainContext
    private var subscription: PacketID?
    private var sent: SuspendingClock.Instant?
    private var timer: EventSource?
    private var done: ((Result<Duration, Failure>) -> Void)?

    /// - Parameters:
    ///   - timeout: the maximum time, in milliseconds.
    ///   - done: receives the time that the message took, or the reason why it did not come back. Called once.
    init(
        topic: String, token: String, timeout: UInt32 = timeout, broker: BrokerLink, context: MainContext,
        _ done: @escaping (Result<Duration, Failure>) -> Void
    ) {
        self.topic = topic
        payload = Array(token.utf8)
        self.broker = broker
        self.context = context
        self.done = done
        subscription = broker.subscribe([TopicFilter(topic, excludesOwn: false)], isTrial: true)
        let seconds = timeout / 1_000
        timer = .once(milliseconds: timeout, on: context) { [unowned self] in
            let words = "the test message did not return within \(seconds) s: the broker's access list has to "
            end(.failure(Failure(kind: .silence, reason: words + "allow reading and writing \(topic)")))
        }
    }

    var isOver: Bool { done == nil }

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

    func received(_ publication: Publication) {
        guard publication.payload == payload, let sent else { return }
        end(.success(context.now - sent))
    }

    func end(_ result: Result<Duration, Failure>) {
        guard let done else { return }
        self.done = nil
        timer = nil
        broker.unsubscribe([topic])
        done(result)
    }
}

extension Duration {
    var microseconds: Int64 {
        components.seconds * 1_000_000 + components.attoseconds / 1_000_000_000_000
    }
}
