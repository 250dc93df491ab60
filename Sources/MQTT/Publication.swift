// SPDX-License-Identifier: Apache-2.0

/// How sure a publication is to arrive.
public enum QualityOfService: Int32, Sendable {
    /// It is sent once, and may be lost.
    case atMostOnce = 0
    /// It is sent until somebody acknowledges it, and may arrive more than once.
    case atLeastOnce = 1
}

/// A name and a value that travel with a publication. Both are texts of at most 65,535 bytes without control characters.
public struct UserProperty: Hashable, Sendable {
    public let name: String
    public let value: String

    public init(_ name: String, _ value: String) {
        self.name = name
        self.value = value
    }
}

/// What is published, and what arrives.
public struct Publication: Equatable, Sendable {
    /// Where to; levels are parted by `/`. No wildcards, no control characters, at most 65,535 bytes.
    public var topic: String
    public var payload: [UInt8]
    public var quality: QualityOfService
    /// Published: whether the broker keeps it as the topic's value; with an empty payload it forgets that. Arrived:
    /// whether it is such a value, or, where the subscription keeps the flag, how it was published.
    public var isRetained: Bool
    /// What the payload is, as a media type.
    public var contentType: String?
    /// After how many seconds the broker gives it up. Arrived: how many are left.
    public var expiry: UInt32?
    /// In their order; names may come more than once.
    public var userProperties: [UserProperty]
    /// Arrived: the identifiers of the subscriptions that it is for; none of those without one.
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

/// Which topics are subscribed to, and how.
public struct TopicFilter: Hashable, Sendable {
    /// Which of the values that the broker keeps come with a subscription.
    public enum RetainHandling: Hashable, Sendable {
        /// All that match, each time.
        case always
        /// All that match, if there was no such subscription before.
        case ifNew
        case never
    }

    /// A topic, in which `+` stands for a level and `#` at the end for all that follow.
    public var topic: String
    /// The most that is delivered with; less where the publication has less.
    public var quality: QualityOfService
    /// Whether what this client publishes does not come back to it (No Local).
    public var excludesOwn: Bool
    /// Whether publications arrive with the flag that they were published with (Retain As Published).
    public var keepsRetainFlag: Bool
    public var retainHandling: RetainHandling
    /// Comes with each publication for this subscription, from 1 to 268,435,455; nil for none. Of no effect with a broker that
    /// has none (``BrokerLimits/identifiersAvailable``).
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

/// The number by which a publication, or a request, is answered. It is free again when that has come.
public struct PacketID: RawRepresentable, Hashable, Sendable, CustomStringConvertible {
    public let rawValue: UInt16

    public init(rawValue: UInt16) {
        self.rawValue = rawValue
    }

    public var description: String { "\(rawValue)" }
}
