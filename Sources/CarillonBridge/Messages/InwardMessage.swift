// SPDX-License-Identifier: Apache-2.0
import CarillonCollections
import CarillonCore
import CarillonMQTT
import CarillonWire

/// A message from the broker, parsed and not trusted: any client of the broker may have sent it. ``InwardGate`` creates
/// it, and ``InwardPosts`` posts it in the session.
struct InwardMessage {
    /// The effect of the message.
    enum Content {
        /// A notification to post.
        case notification(userInfo: [String: PropertyList])
        /// The retained value of the name and object is to be removed.
        case removal
    }

    /// The host that published it, by its topic.
    let origin: Origin
    let name: String
    /// The object; empty for none.
    let object: String
    /// The effect of the message.
    private(set) var content: Content
    /// Whether it sets or removes a retained value.
    let isRetainedValue: Bool
    /// The lifetime from the arrival, in seconds; nil for no end.
    private(set) var expiresAfter: UInt32?
    /// The time at which it was queued, in microseconds since 1970; nil before.
    private(set) var waitsSince: Int64?
    /// The properties that its bridge has added.
    let properties: MessageProperties
    /// The message as it arrived, for the saved state.
    private(set) var publication: Publication
    /// Whether it is a value that may have existed before. It is posted only if the session does not have it.
    private(set) var mayBeOld: Bool

    /// The reason why a message is refused.
    enum Refusal: Error, Equatable {
        /// It went through too many bridges, so it may be in a loop.
        case tooManyHops
        /// A property or the payload can't be read; the text is the reason, for people.
        case undecodable(String)
    }

    /// The maximum number of bridges through which a message may have passed.
    static let maxHops = 4

    /// Parses a message.
    ///
    /// - Parameter topic: the parsed topic of `publication`; a topic of a notification or a value.
    /// - Throws: the reason why the message is refused.
    init(_ publication: Publication, on topic: BridgeTopic) throws(Refusal) {
        guard let properties = MessageProperties(publication.userProperties) else {
            throw .undecodable("a user property has an invalid value")
        }
        guard properties.hops <= Self.maxHops else { throw .tooManyHops }
        switch topic.subject {
        case .notification(let name): (self.name, object) = (name, properties.object)
        case .value(let name, let object): (self.name, self.object) = (name, object)
        case .online, .status, .test: preconditionFailure("not of a notification")
        }
        origin = topic.origin
        self.publication = publication
        self.properties = properties
        isRetainedValue = publication.isRetained
        // A remaining lifetime of 0 is a part of the last second, and counts as one second.
        expiresAfter = publication.expiry.map { max($0, 1) }
        mayBeOld = properties.isOldValue
        if publication.isRetained, publication.payload.isEmpty {
            content = .removal
            return
        }
        do throws(Payload.Malformed) {
            content = .notification(
                userInfo: try Payload.userInfo(
                    publication.payload, contentType: publication.contentType, keepsWidths: properties.keepsWidths))
        } catch {
            throw .undecodable(error.reason)
        }
    }

    /// Returns the message with a remaining lifetime from now.
    func expiring(after seconds: UInt32) -> InwardMessage {
        var message = self
        message.expiresAfter = seconds
        message.publication.expiry = seconds
        message.waitsSince = nil
        return message
    }

    /// Returns the message as it is queued; from now on its lifetime is counted here.
    ///
    /// - Parameter now: microseconds since 1970.
    func waiting(since now: Int64) -> InwardMessage {
        var message = self
        message.waitsSince = waitsSince ?? now
        return message
    }

    /// Returns its expiry time, in microseconds since 1970; nil for never.
    func expiry(at now: Int64) -> Int64? { expiresAfter.map { (waitsSince ?? now) + Int64($0) * 1_000_000 } }

    /// Returns the remaining seconds of its lifetime; nil for no end.
    func secondsLeft(at now: Int64) -> UInt32? {
        expiry(at: now).map { UInt32(clamping: ($0 - now + 999_999) / 1_000_000) }
    }

    /// The identity of a retained value: its host, name and object.
    struct HostValueKey: Hashable {
        let origin: Origin
        let kind: ValueKey
    }

    /// The identity of the value that a retained message sets or removes.
    var value: HostValueKey { HostValueKey(origin: origin, kind: ValueKey(name, object)) }

    /// A message that removes the value which this message sets.
    var removal: InwardMessage {
        var message = self
        message.content = .removal
        message.publication.payload = []
        message.publication.expiry = nil
        (message.expiresAfter, message.waitsSince, message.mayBeOld) = (nil, nil, false)
        return message
    }

    /// Whether it arrived on the topic on which a bridge would publish the value. A plain client may use another topic
    /// for the same name and object.
    func isOnTopicOfBridge(in realm: String) -> Bool {
        ExactText.matches(publication.topic, BridgeTopic(value: name, object, of: origin).text(in: realm))
    }

    /// The approximate size in memory, in bytes.
    var byteCount: Int {
        publication.userProperties.reduce(publication.topic.utf8.count + publication.payload.count + 512) {
            $0 + $1.name.utf8.count + $1.value.utf8.count
        }
    }

    /// Whether a value of the service is this value with this content. Name, object, lifetime, user and host are
    /// compared.
    func isRetainedValue(as value: RetainedValueInfo, _ userInfo: [String: PropertyList], now: Int64) -> Bool {
        let expiry: Int64? = if case .int64(let time)? = value.details[Detail.expiry.rawValue] { time } else { nil }
        return Lifetime.isSame(expiry, self.expiry(at: now)) && ExactText(value.name) == ExactText(name)
            && ExactText(value.object) == ExactText(object)
            && value.userInfo == userInfo
            && Self.matches(value.details[Detail.host.rawValue], origin.host)
            && Self.matches(value.details[Detail.user.rawValue], origin.user)
    }

    /// Whether a detail of the service is this text, byte for byte.
    private static func matches(_ value: PropertyList?, _ text: String) -> Bool {
        if case .string(let value) = value { ExactText(value) == ExactText(text) } else { false }
    }

    /// Returns the message, marked as a value that may be shown anew, that is, may have existed before (``mayBeOld``).
    /// A mark that it has already stays.
    ///
    /// - Parameter isAnew: whether to set the mark.
    func marked(anew isAnew: Bool) -> InwardMessage {
        var message = self
        message.mayBeOld = mayBeOld || isAnew
        return message
    }
}
