// SPDX-License-Identifier: Apache-2.0

/// A reason code of MQTT 5, section 2.4: the broker's result of a request, or the reason for ending a connection. Codes
/// without a comment have the meaning of their text in ``description``.
public struct ReasonCode: RawRepresentable, Hashable, Sendable {
    public let rawValue: UInt8

    public init(rawValue: UInt8) {
        self.rawValue = rawValue
    }

    /// Success. In the answer to a subscription: granted, at most once. In a disconnection: a normal one.
    public static let success = ReasonCode(rawValue: 0x00)
    /// The subscription is granted, at least once.
    public static let grantedAtLeastOnce = ReasonCode(rawValue: 0x01)
    /// In a disconnection: the broker is to publish the will all the same.
    public static let disconnectWithWill = ReasonCode(rawValue: 0x04)
    public static let noMatchingSubscribers = ReasonCode(rawValue: 0x10)
    public static let noSubscriptionExisted = ReasonCode(rawValue: 0x11)
    public static let unspecified = ReasonCode(rawValue: 0x80)
    public static let malformedPacket = ReasonCode(rawValue: 0x81)
    public static let protocolError = ReasonCode(rawValue: 0x82)
    public static let implementationSpecific = ReasonCode(rawValue: 0x83)
    public static let unsupportedProtocolVersion = ReasonCode(rawValue: 0x84)
    public static let clientIDInvalid = ReasonCode(rawValue: 0x85)
    public static let badCredentials = ReasonCode(rawValue: 0x86)
    public static let notAuthorized = ReasonCode(rawValue: 0x87)
    public static let serverUnavailable = ReasonCode(rawValue: 0x88)
    public static let serverBusy = ReasonCode(rawValue: 0x89)
    public static let banned = ReasonCode(rawValue: 0x8A)
    public static let serverShuttingDown = ReasonCode(rawValue: 0x8B)
    public static let badAuthenticationMethod = ReasonCode(rawValue: 0x8C)
    public static let keepAliveTimeout = ReasonCode(rawValue: 0x8D)
    /// Another client has connected with the same identifier.
    public static let sessionTakenOver = ReasonCode(rawValue: 0x8E)
    public static let topicFilterInvalid = ReasonCode(rawValue: 0x8F)
    public static let topicNameInvalid = ReasonCode(rawValue: 0x90)
    public static let packetIDInUse = ReasonCode(rawValue: 0x91)
    public static let packetIDNotFound = ReasonCode(rawValue: 0x92)
    public static let receiveMaximumExceeded = ReasonCode(rawValue: 0x93)
    public static let topicAliasInvalid = ReasonCode(rawValue: 0x94)
    public static let packetTooLarge = ReasonCode(rawValue: 0x95)
    public static let messageRateTooHigh = ReasonCode(rawValue: 0x96)
    public static let quotaExceeded = ReasonCode(rawValue: 0x97)
    public static let administrativeAction = ReasonCode(rawValue: 0x98)
    public static let payloadFormatInvalid = ReasonCode(rawValue: 0x99)
    public static let retainNotSupported = ReasonCode(rawValue: 0x9A)
    public static let qualityNotSupported = ReasonCode(rawValue: 0x9B)
    public static let useAnotherServer = ReasonCode(rawValue: 0x9C)
    public static let serverMoved = ReasonCode(rawValue: 0x9D)
    public static let sharedSubscriptionsNotSupported = ReasonCode(rawValue: 0x9E)
    public static let connectionRateExceeded = ReasonCode(rawValue: 0x9F)
    public static let maximumConnectTime = ReasonCode(rawValue: 0xA0)
    public static let subscriptionIDsNotSupported = ReasonCode(rawValue: 0xA1)
    public static let wildcardsNotSupported = ReasonCode(rawValue: 0xA2)

    /// Whether the request was refused.
    public var isFailure: Bool { rawValue >= 0x80 }
}

/// The text for people, without a full stop; the number of an unknown code.
extension ReasonCode: CustomStringConvertible {
    public var description: String {
        if let words = Self.words[rawValue] { return words }
        let digits = String(rawValue, radix: 16, uppercase: true)
        return "reason 0x\(digits.count == 1 ? "0" : "")\(digits)"
    }

    private static let words: [UInt8: String] = [
        0x00: "success",
        0x01: "granted, at least once",
        0x02: "granted, exactly once",
        0x04: "disconnected, with the will",
        0x10: "no matching subscribers",
        0x11: "no subscription existed",
        0x80: "unspecified error",
        0x81: "malformed packet",
        0x82: "protocol error",
        0x83: "implementation-specific error",
        0x84: "the broker does not speak MQTT 5",
        0x85: "the client identifier is not valid",
        0x86: "bad user name or password",
        0x87: "not authorized",
        0x88: "the broker is unavailable",
        0x89: "the broker is busy",
        0x8A: "banned",
        0x8B: "the broker is shutting down",
        0x8C: "bad authentication method",
        0x8D: "no packet arrived within the keep-alive time",
        0x8E: "another client has taken over the session",
        0x8F: "the topic filter is not valid",
        0x90: "the topic name is not valid",
        0x91: "the packet identifier is in use",
        0x92: "the packet identifier is not known",
        0x93: "the receive maximum was exceeded",
        0x94: "the topic alias is not valid",
        0x95: "the packet is too large",
        0x96: "the message rate is too high",
        0x97: "a quota is exceeded",
        0x98: "administrative action",
        0x99: "the payload does not have the declared format",
        0x9A: "the broker does not retain messages",
        0x9B: "the broker does not offer this quality of service",
        0x9C: "use another broker for now",
        0x9D: "the broker has moved",
        0x9E: "the broker does not support shared subscriptions",
        0x9F: "the connection rate is too high",
        0xA0: "the maximum connect time has ended",
        0xA1: "the broker does not support subscription identifiers",
        0xA2: "the broker does not support wildcard subscriptions",
    ]
}
