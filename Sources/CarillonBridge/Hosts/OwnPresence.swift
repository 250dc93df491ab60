// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonJSON
import CarillonMQTT
import CarillonWire

/// The presence that the bridge publishes of its own host, and the detection of a second bridge with the same realm,
/// host and user (G2). ``PresenceKeeper`` uses it; it does no input and output.
///
/// A message of another run on the topic does not prove that another bridge is alive: a broker may restore an old
/// message after a power failure, and other clients can forge one. The bridge then publishes its presence again, with a
/// challenge, which only a live bridge answers. After an answer the bridge that has asked disconnects.
struct OwnPresence {
    /// The reaction to a message on the topic.
    enum Reaction: Equatable {
        /// No reaction.
        case none
        /// The bridge publishes its presence again.
        ///
        /// - Parameter answer: the challenge of another bridge that it answers; nil for none.
        case correct(answer: String?)
        /// Another bridge is alive, and this one disconnects for a while.
        case disconnectForOther
    }

    /// The content of a presence message. The JSON key `ask` holds the challenge, and `answer` the answered challenge.
    private struct Claim {
        var isOnline = false
        var run: String?
        var challenge: String?
        var answer: String?

        init(_ payload: [UInt8]) {
            guard let json = try? JSON(payload) else { return }
            isOnline = json["online"]?.isTrue == true
            run = json["run"]?.text
            challenge = json["ask"]?.text
            answer = json["answer"]?.text
        }
    }

    /// The run: a token of this process.
    let run: String
    /// The open challenge, which another bridge may answer.
    private(set) var challenge: String?
    /// The token that says that the broker has all values of this host; nil before. It changes each time the broker had
    /// lacked some.
    var valuesToken: String?
    /// Whether the bridge has found on the present connection that the broker has all values. Only then do its messages
    /// contain ``valuesToken``.
    var brokerHasAllValues = false
    /// Whether the broker has shown a presence message of this process on this connection.
    private var hasSeenOwn = false

    init(run: String) {
        self.run = run
    }

    /// Handles a new connection to the broker.
    ///
    /// - Parameter sessionPresent: whether the broker has kept the session, and so probably also the values.
    mutating func connected(sessionPresent: Bool) {
        (hasSeenOwn, brokerHasAllValues) = (false, false)
        if !sessionPresent { valuesToken = nil }
    }

    /// Closes the challenge, because no bridge has answered it in time.
    mutating func closeChallenge() { challenge = nil }

    /// Decides how to react to a message on this host's own topic.
    ///
    /// - Parameter isRetained: whether the broker marks the message as retained. Such a message is old as long as the
    ///   broker has not shown a message of this process. Later it may be new: a broker that sends one message for two
    ///   subscriptions also marks it.
    mutating func judge(_ publication: Publication, isRetained: Bool) -> Reaction {
        let claim = Claim(publication.payload)
        if claim.isOnline, claim.run == run {
            hasSeenOwn = true
            return .none
        }
        // A fault of test builds (E7).
        #if CARILLON_PLANTED
            if PlantedFault.strikes(.ownRunMistaken), claim.isOnline { return .disconnectForOther }
        #endif
        guard !isRetained || hasSeenOwn else { return .none }
        // An offline or unreadable message, or one without a run, is wrong while this bridge is online.
        guard claim.isOnline, let other = claim.run else { return .correct(answer: nil) }
        if let challenge, claim.answer == challenge { return .disconnectForOther }
        guard let asked = claim.challenge else { return .correct(answer: nil) }
        // Two bridges that challenge each other at the same time must not both disconnect: the one with the lower run
        // does not answer.
        return .correct(answer: challenge == nil || run > other ? asked : nil)
    }

    /// Returns the presence message of a host that is online.
    ///
    /// - Parameters:
    ///   - answer: the challenge of another bridge to answer. A message with an answer contains no challenge.
    ///   - next: the challenge to use if none is open; nil for no challenge.
    mutating func announcement(answer: String?, asking next: String?, topic: String) -> Publication {
        guard answer == nil, let next else {
            return Self.message(
                isOnline: true, run: run, valuesToken: brokerHasAllValues ? valuesToken : nil, answer: answer,
                topic: topic)
        }
        // The open challenge is repeated. With a new one, the answer to it would no longer be recognized.
        let challenge = challenge ?? next
        self.challenge = challenge
        return Self.message(
            isOnline: true, run: run, valuesToken: brokerHasAllValues ? valuesToken : nil, challenge: challenge,
            topic: topic)
    }

    /// Returns the presence message of a host that is offline, which is also the last will.
    func offlineMessage(topic: String) -> Publication { Self.message(isOnline: false, run: run, topic: topic) }

    /// Returns a presence message, a retained JSON object. The keys `values` and `ask` hold token and challenge.
    private static func message(
        isOnline: Bool, run: String, valuesToken: String? = nil, challenge: String? = nil, answer: String? = nil,
        topic: String
    ) -> Publication {
        var fields = [
            ("online", isOnline ? "true" : "false"), ("protocol", "1"), ("run", JSON.quoted(run)),
            ("software", JSON.quoted("carillon-bridge \(Wire.softwareVersion)")),
        ]
        if let valuesToken { fields.append(("values", JSON.quoted(valuesToken))) }
        if let challenge { fields.append(("ask", JSON.quoted(challenge))) }
        if let answer { fields.append(("answer", JSON.quoted(answer))) }
        return Publication(
            topic: topic, payload: Array(PropertyListJSON.object(fields).utf8), isRetained: true,
            contentType: "application/json",
            userProperties: [UserProperty(MessageProperties.Key.carillon.rawValue, "1")])
    }
}
