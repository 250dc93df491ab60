// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonJSON
import CarillonMQTT
import CarillonWire

/// The presence that the bridge publishes of itself, and the detection of a second bridge with the same realm, host and
/// user (G2). No input and output.
///
/// A message of another run on the topic proves nothing: a broker may restore an old message after a power failure, and
/// other clients can forge one. The bridge publishes its presence again, with a challenge. A live bridge answers the
/// challenge. Then the bridge that was asked last stays, and the bridge that asked gives way.
struct OwnPresence {
    enum Reaction: Equatable {
        case none
        /// The bridge publishes its presence again.
        case correct(answer: String?)
        /// Another bridge is alive.
        case giveWay
    }

    /// The content of a message on the topic.
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

    /// The run of this process; a restarted bridge has another one.
    let run: String
    /// The open challenge, which waits for an answer.
    private(set) var challenge: String?
    /// The token that says that the broker has all values of this host. It changes each time that the broker has lacked
    /// some.
    var mark: String?
    /// Whether the broker was found to have all values on this connection.
    var isVouched = false
    /// Whether the broker has shown an announcement of this process on this connection.
    private var hasSeenOwn = false

    init(run: String) {
        self.run = run
    }

    /// Handles a new connection to the broker.
    ///
    /// - Parameter sessionPresent: whether the broker has kept the session, and so perhaps all values.
    mutating func connected(sessionPresent: Bool) {
        (hasSeenOwn, isVouched) = (false, false)
        if !sessionPresent { mark = nil }
    }

    /// Closes the challenge, which no bridge has answered in time.
    mutating func closeChallenge() { challenge = nil }

    /// Judges a message on the bridge's own topic.
    ///
    /// - Parameter isRetained: whether the broker marks the message as retained. Such a message is old until the broker
    ///   has shown the bridge's own. Later it may be new: a broker that sends one message for two subscriptions marks
    ///   that one, too.
    mutating func judge(_ publication: Publication, isRetained: Bool) -> Reaction {
        let claim = Claim(publication.payload)
        if claim.isOnline, claim.run == run {
            hasSeenOwn = true
            return .none
        }
        #if CARILLON_PLANTED
            if PlantedFault.strikes(.ownRunFeared), claim.isOnline { return .giveWay }
        #endif
        guard !isRetained || hasSeenOwn else { return .none }
        guard claim.isOnline, let other = claim.run else { return .correct(answer: nil) }
        if let challenge, claim.answer == challenge { return .giveWay }
        guard let asked = claim.challenge else { return .correct(answer: nil) }
        // Two bridges that ask each other at the same time must not both give way.
        return .correct(answer: challenge == nil || run > other ? asked : nil)
    }

    /// Returns the message to publish.
    ///
    /// - Parameters:
    ///   - answer: the challenge of another bridge to answer; an answer contains no challenge.
    ///   - next: the challenge to use if none is open; nil for no challenge.
    mutating func announcement(answer: String?, asking next: String?, topic: String) -> Publication {
        guard answer == nil, let next else {
            return Self.message(isOnline: true, run: run, mark: isVouched ? mark : nil, answer: answer, topic: topic)
        }
        // A new challenge would make the answer to the open one worthless.
        let challenge = challenge ?? next
        self.challenge = challenge
        return Self.message(isOnline: true, run: run, mark: isVouched ? mark : nil, challenge: challenge, topic: topic)
    }

    func farewell(topic: String) -> Publication { Self.message(isOnline: false, run: run, topic: topic) }

    private static func message(
        isOnline: Bool, run: String, mark: String? = nil, challenge: String? = nil, answer: String? = nil,
        topic: String
    ) -> Publication {
        var fields = [
            ("online", isOnline ? "true" : "false"), ("protocol", "1"), ("run", JSON.quoted(run)),
            ("software", JSON.quoted("carillon-bridge \(Wire.softwareVersion)")),
        ]
        if let mark { fields.append(("values", JSON.quoted(mark))) }
        if let challenge { fields.append(("ask", JSON.quoted(challenge))) }
        if let answer { fields.append(("answer", JSON.quoted(answer))) }
        return Publication(
            topic: topic, payload: Array(PropertyListJSON.object(fields).utf8), isRetained: true,
            contentType: "application/json",
            userProperties: [UserProperty(MessageProperties.Key.carillon.rawValue, "1")])
    }
}
