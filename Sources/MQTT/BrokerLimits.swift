// SPDX-License-Identifier: Apache-2.0

/// What a broker said, when it took the connection, that it can do and keeps to.
public struct BrokerLimits: Equatable, Sendable {
    /// How many publications may be on their way to it without an acknowledgement.
    public var receiveMaximum: UInt16
    /// The largest packet that it takes, in bytes, header included; nil for that of MQTT itself.
    public var maximumPacketSize: UInt32?
    public var maximumQuality: QualityOfService
    /// Whether it keeps values.
    public var retainAvailable: Bool
    /// Whether filters may have wildcards.
    public var wildcardsAvailable: Bool
    /// Whether publications come with the identifiers of their subscriptions.
    public var identifiersAvailable: Bool
    /// The keep-alive time in seconds that it wants instead of the one that it was told.
    public var keepAlive: UInt16?
    /// For how many seconds it keeps the session, instead of those that it was told.
    public var sessionExpiry: UInt32?

    public init(
        receiveMaximum: UInt16 = .max, maximumPacketSize: UInt32? = nil,
        maximumQuality: QualityOfService = .atLeastOnce, retainAvailable: Bool = true, wildcardsAvailable: Bool = true,
        identifiersAvailable: Bool = true,
        keepAlive: UInt16? = nil, sessionExpiry: UInt32? = nil
    ) {
        self.receiveMaximum = receiveMaximum
        self.maximumPacketSize = maximumPacketSize
        self.maximumQuality = maximumQuality
        self.retainAvailable = retainAvailable
        self.wildcardsAvailable = wildcardsAvailable
        self.identifiersAvailable = identifiersAvailable
        self.keepAlive = keepAlive
        self.sessionExpiry = sessionExpiry
    }
}
