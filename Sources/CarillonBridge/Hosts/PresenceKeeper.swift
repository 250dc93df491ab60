// SPDX-License-Identifier: Apache-2.0
import CarillonMQTT
import CarillonMainLoop

/// The publisher of this host's presence at the broker. It publishes the presence on each connection, and again after a
/// message that contradicts it. If a second bridge with the same realm, host and user is alive, it disconnects this
/// bridge for a while (``OwnPresence``).
final class PresenceKeeper {
    /// The time for which a challenge to another bridge stays open, in milliseconds.
    private static let patience: UInt32 = 10_000
    /// The minimum time between two corrections, in milliseconds.
    private static let calm: UInt32 = 1_000

    /// The rules and their state.
    private var presence: OwnPresence
    private let topic: String
    private let environment: BridgeEnvironment
    private let broker: BrokerLink
    private let context: MainContext
    /// Whether this bridge has published its presence before.
    private var hasBeenPresent = false
    /// Runs for the minimum time after a correction.
    private var correctionTimer: EventSource?
    /// Runs while a challenge is open.
    private var challengeTimer: EventSource?
    /// The correction to make after the timer, with the challenge to answer; nil for no correction.
    private var dueCorrection: String??

    /// Creates a publisher that begins with ``connected(sessionPresent:)``.
    ///
    /// - Parameter topic: the topic of the presence.
    init(
        _ presence: OwnPresence, on topic: String, _ environment: BridgeEnvironment, broker: BrokerLink,
        context: MainContext
    ) {
        self.presence = presence
        self.topic = topic
        self.environment = environment
        self.broker = broker
        self.context = context
    }

    /// The presence message of a host that is offline.
    var offlineMessage: Publication { presence.offlineMessage(topic: topic) }

    /// Publishes the presence on a new connection.
    func connected(sessionPresent: Bool) {
        // With the retain-as-published option a message that was retained before would look like a new one.
        let own = TopicFilter(topic, excludesOwn: false, keepsRetainFlag: false, retainHandling: .always)
        _ = broker.subscribe([own])
        presence.connected(sessionPresent: sessionPresent)
        presence.closeChallenge()
        // A bridge that was connected before challenges a bridge that has replaced it meanwhile. A new bridge
        // challenges none, and so replaces the other.
        announce(answer: nil, asks: hasBeenPresent)
    }

    /// Announces to other hosts that the broker has all values of this host.
    ///
    /// - Parameter again: whether the broker had lacked some, so that the token changes.
    func announceValues(again: Bool) {
        if presence.valuesToken == nil || again { presence.valuesToken = environment.makeToken() }
        guard !presence.brokerHasAllValues || again else { return }
        presence.brokerHasAllValues = true
        announce(answer: nil, asks: false)
    }

    /// Stops corrections, because the connection has ended or the crossing drains.
    func stop() {
        (correctionTimer, challengeTimer) = (nil, nil)
        dueCorrection = nil
    }

    /// Handles a message on the topic.
    func take(_ publication: Publication) {
        switch presence.judge(publication, isRetained: publication.isRetained) {
        case .none: break
        case .disconnectForOther: broker.disconnectForOther()
        case .correct(let answer):
            // The rate of corrections is limited, regardless of the number of messages.
            guard correctionTimer == nil else {
                return dueCorrection = .some(answer ?? dueCorrection.flatMap(\.self))
            }
            correct(answer: answer)
        }
    }

    /// Publishes the presence again, and limits the rate.
    private func correct(answer: String?) {
        announce(answer: answer, asks: true)
        correctionTimer = .once(milliseconds: Self.calm, on: context) { [unowned self] in
            correctionTimer = nil
            if let answer = dueCorrection.take() { correct(answer: answer) }
        }
    }

    /// Publishes the presence.
    ///
    /// - Parameters:
    ///   - answer: the challenge of another bridge to answer; nil for none.
    ///   - asks: whether to challenge other bridges.
    private func announce(answer: String?, asks: Bool) {
        guard broker.isConnected else { return }
        hasBeenPresent = true
        let next = asks ? environment.makeToken() : nil
        if asks, presence.challenge == nil {
            challengeTimer = .once(milliseconds: Self.patience, on: context) { [unowned self] in
                challengeTimer = nil
                presence.closeChallenge()
            }
        }
        do throws(MQTTError) {
            _ = try broker.publish(presence.announcement(answer: answer, asking: next, topic: topic))
        } catch {
            Log.warning("the presence of this host can't be published: \(error)")
        }
    }
}
