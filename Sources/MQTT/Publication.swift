// SPDX-License-Identifier: Apache-2.0

/// The delivery guarantee of a publication (QoS). Level 2 of MQTT, exactly once, is not used.
public enum QualityOfService: Int32, Sendable {
    /// The publication is sent once, and may be lost.
    case atMostOnce = 0
    /// The publication is sent until it is acknowledged, and may arrive more than once.
    case atLeastOnce = 1
}

/// A user property of MQTT 5: a name and a value that accompany a publication. Both are texts of at most 65,535 bytes
/// without control characters.
public struct UserProperty: Hashable, Sendable {
    public let name: String
    public let value: String

    public init(_ name: String, _ value: String) {
        self.name = name
        self.value = value
    }
}

/// A message of MQTT (PUBLISH), to publish or received.
public struct Publication: Equatable, Sendable {
    /// The topic, whose levels are separated by `/`. It has no wildcards and no control characters, and at most 65,535
    /// bytes.
    public var topic: String
    /// The content of the message.
    public var payload: [UInt8]
    /// The delivery guarantee. In a received message: the guarantee between broker and client.
    public var quality: QualityOfService
    /// In a message to publish: whether the broker retains it as the topic's value; an empty payload removes that
    /// value. In a received message: whether it was retained before the subscription. If the subscription keeps the
    /// flag (``TopicFilter/keepsRetainFlag``), it is instead the flag of the publisher.
    public var isRetained: Bool
    /// The media type of the payload; nil for none.
    public var contentType: String?
    /// The time after which the broker discards the message, in seconds; nil for never. In a received message: the
    /// remaining seconds.
    public var expiry: UInt32?
    /// The user properties in order; names may occur more than once.
    public var userProperties: [UserProperty]
    /// In a received message: the identifiers of the matching subscriptions (``TopicFilter/identifier``). A
    /// subscription without an identifier adds none.
    public var subscriptions: [UInt32]

    public init(
        topic: String, payload: [UInt8], quality: QualityOfService = .atLeastOnce, isRetained: Bool = false,
        contentType: String? = nil, expiry: UInt32? = nil, userProperties: [UserProperty] = [],
        subscriptions: [UInt32] = []
    ) {
        self.topic = topic
        self.payload = payload
        self.quality = quality
        self.isRetained = isRetained
        self.contentType = contentType
        self.expiry = expiry
        self.userProperties = userProperties
        self.subscriptions = subscriptions
    }
}

/// A filter of a subscription, with its options.
public struct TopicFilter: Hashable, Sendable {
    /// The retained messages that the broker sends at the beginning of a subscription.
    public enum RetainHandling: Hashable, Sendable {
        /// All matching messages, each time.
        case always
        /// All matching messages, if there was no such subscription before.
        case ifNew
        /// No retained messages.
        case never
    }

    /// The filter: a topic in which `+` stands for one level, and `#` at the end for all following levels.
    public var topic: String
    /// The maximum quality of service of its messages. A message that was published with a lower one arrives with that.
    public var quality: QualityOfService
    /// Whether the broker does not send the client's own publications back to it (No Local).
    public var excludesOwn: Bool
    /// Whether messages arrive with the retain flag of their publisher (Retain As Published). Otherwise the flag marks
    /// messages that were retained before the subscription.
    public var keepsRetainFlag: Bool
    /// The retained messages that arrive with the subscription.
    public var retainHandling: RetainHandling
    /// The identifier that accompanies each message of this subscription (``Publication/subscriptions``), from 1 to
    /// 268,435,455; nil for none. It has no effect if the broker does not support identifiers
    /// (``BrokerLimits/identifiersAvailable``).
    public var identifier: UInt32?

    public init(
        _ topic: String, quality: QualityOfService = .atLeastOnce, excludesOwn: Bool = true,
        keepsRetainFlag: Bool = true, retainHandling: RetainHandling = .ifNew, identifier: UInt32? = nil
    ) {
        self.topic = topic
        self.quality = quality
        self.excludesOwn = excludesOwn
        self.keepsRetainFlag = keepsRetainFlag
        self.retainHandling = retainHandling
        self.identifier = identifier
    }
}

/// The packet identifier of MQTT: it links a publication or a request with the broker's answer. It may be reused after
/// the answer.
public struct PacketID: RawRepresentable, Hashable, Sendable, CustomStringConvertible {
    public let rawValue: UInt16

    public init(rawValue: UInt16) {
        self.rawValue = rawValue
    }

    public var description: String { "\(rawValue)" }
}
