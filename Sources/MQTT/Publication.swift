// SPDX-License-Identifier: Apache-2.0

/// The delivery guarantee of a publication.
public enum QualityOfService: Int32, Sendable {
    /// The publication is sent once, and may be lost.
    case atMostOnce = 0
    /// The publication is sent until it is acknowledged, and may arrive more than once.
    case atLeastOnce = 1
}

/// A name and a value that accompany a publication. Both are texts of at most 65,535 bytes without control characters.
public struct UserProperty: Hashable, Sendable {
    public let name: String
    public let value: String

    public init(_ name: String, _ value: String) {
        self.name = name
        self.value = value
    }
}

/// A message that is published, or that has arrived.
public struct Publication: Equatable, Sendable {
    /// The topic, whose levels are separated by `/`. No wildcards, no control characters, at most 65,535 bytes.
    public var topic: String
    public var payload: [UInt8]
    public var quality: QualityOfService
    /// In a published message: whether the broker retains it as the topic's value; an empty payload removes that value.
    /// In a received message: whether it is such a value, or, if the subscription keeps the flag, the flag of the
    /// publisher.
    public var isRetained: Bool
    /// The media type of the payload.
    public var contentType: String?
    /// The time after which the broker discards the message, in seconds. In a received message: the remaining seconds.
    public var expiry: UInt32?
    /// The user properties in order; names may occur more than once.
    public var userProperties: [UserProperty]
    /// In a received message: the identifiers of the matching subscriptions. Subscriptions without an identifier are
    /// missing.
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

/// The topics of a subscription, and its options.
public struct TopicFilter: Hashable, Sendable {
    /// The retained messages that the broker sends with a subscription.
    public enum RetainHandling: Hashable, Sendable {
        /// All matching messages, each time.
        case always
        /// All matching messages, if there was no such subscription before.
        case ifNew
        case never
    }

    /// The filter: a topic, in which `+` stands for one level, and `#` at the end for all following levels.
    public var topic: String
    /// The maximum quality of service of deliveries; lower if the publication has a lower one.
    public var quality: QualityOfService
    /// Whether the client's own publications are not sent back to it (No Local).
    public var excludesOwn: Bool
    /// Whether publications arrive with the retain flag of their publisher (Retain As Published).
    public var keepsRetainFlag: Bool
    public var retainHandling: RetainHandling
    /// The identifier that accompanies each publication for this subscription, from 1 to 268,435,455; nil for none.
    /// Without effect if the broker does not support identifiers (``BrokerLimits/identifiersAvailable``).
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

/// The identifier of a publication or a request, and of its answer. It is free again after the answer.
public struct PacketID: RawRepresentable, Hashable, Sendable, CustomStringConvertible {
    public let rawValue: UInt16

    public init(rawValue: UInt16) {
        self.rawValue = rawValue
    }

    public var description: String { "\(rawValue)" }
}
