// SPDX-License-Identifier: Apache-2.0
import CarillonMQTT
import CarillonMainLoop

/// Keeps the presence of this host at the broker true: publishes it on each connection, corrects false messages on its topic,
/// and gives way to a second bridge of the same realm, host and user (``OwnPresence``).
final class PresenceKeeper {
    /// The maximum for another bridge to answer a challenge, in milliseconds.
    private static let patience: UInt32 = 10_000
    /// The minimum between two corrections, in milliseconds.
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
    /// A correction that waits for the timer, with the challenge that it answers.
    private var dueCorrection: String??

    /// - Parameter topic: that of the presence.
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
        // Without the flag as published: with it a message that the broker had kept could not be told from a new one.
        let own = TopicFilter(topic, excludesOwn: false, keepsRetainFlag: false, retainHandling: .always)
        _ = broker.subscribe([own])
        presence.connected(sessionPresent: sessionPresent)
        presence.closeChallenge()
        // A bridge that comes back while another one has taken its place asks for it; a new one takes the place.
        announce(answer: nil, asks: hasBeenPresent)
    }

    /// The broker has all values of this host.
    ///
    /// - Parameter again: whether it has lacked some.
    func tellValues(again: Bool) {
        if presence.mark == nil || again { presence.mark = environment.makeToken() }
        guard !presence.isVouched || again else { return }
        presence.isVouched = true
        announce(answer: nil, asks: false)
    }

    /// The connection has ended, or the bridge corrects nothing any more.
    func stop() {
        (correctionTimer, challengeTimer) = (nil, nil)
        dueCorrection = nil
    }

    /// Takes a message on the topic.
    func take(_ publication: Publication) {
        switch presence.judge(publication, isRetained: publication.isRetained) {
        case .none: break
        case .giveWay: broker.giveWay()
        case .correct(let answer):
            // At most one each second, however many come.
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
