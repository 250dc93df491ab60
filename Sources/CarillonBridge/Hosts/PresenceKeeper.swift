// SPDX-License-Identifier: Apache-2.0
import CarillonMQTT
import CarillonMainLoop

/// The publisher of this host's presence at the broker. It publishes the presence on each connection, corrects false
/// messages on its topic, and gives way to a second bridge with the same realm, host and user (``OwnPresence``).
final class PresenceKeeper {
    /// The maximum time for another bridge's answer to a challenge, in milliseconds.
    private static let patience: UInt32 = 10_000
    /// The minimum time between two corrections, in milliseconds.
    private static let calm: UInt32 = 1_000

    private var presence: OwnPresence
    private let topic: String
    private let environment: BridgeEnvironment
    private let broker: BrokerLink
    private let context: MainContext
    /// Whether this bridge has announced its presence on an earlier connection.
    private var hasBeenPresent = false
    private var correctionTimer: EventSource?
    private var challengeTimer: EventSource?
    /// A correction that waits for the timer, with the challenge to answer.
    private var dueCorrection: String??

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

    var farewell: Publication { presence.farewell(topic: topic) }

    func connected(sessionPresent: Bool) {
        // Without the retain-as-published option, which would make a retained message indistinguishable from a new one.
        let own = TopicFilter(topic, excludesOwn: false, keepsRetainFlag: false, retainHandling: .always)
        _ = broker.subscribe([own])
        presence.connected(sessionPresent: sessionPresent)
        presence.closeChallenge()
        // A bridge that returns after another one has taken its place challenges that one; a new bridge takes the
        // place.
        announce(answer: nil, asks: hasBeenPresent)
    }

    /// Announces that the broker has all values of this host.
    ///
    /// - Parameter again: whether the broker has lacked some.
    func tellValues(again: Bool) {
        if presence.mark == nil || again { presence.mark = environment.makeToken() }
        guard !presence.isVouched || again else { return }
        presence.isVouched = true
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
        case .giveWay: broker.giveWay()
        case .correct(let answer):
            // At most one correction each second, regardless of the number of messages.
            guard correctionTimer == nil else {
                return dueCorrection = .some(answer ?? dueCorrection.flatMap(\.self))
            }
            correct(answer: answer)
        }
    }

    private func correct(answer: String?) {
        announce(answer: answer, asks: true)
        correctionTimer = .once(milliseconds: Self.calm, on: context) { [unowned self] in
            correctionTimer = nil
            if let answer = dueCorrection.take() { correct(answer: answer) }
        }
    }

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
