// SPDX-License-Identifier: Apache-2.0

/// The limits that a broker announced when it accepted the connection, from the properties of its CONNACK packet. The
/// defaults are those of MQTT 5 for a property that is absent. This module applies
/// ``maximumPacketSize`` and ``keepAlive``; the others inform its user.
public struct BrokerLimits: Equatable, Sendable {
    /// The maximum number of unacknowledged publications to the broker.
    public var receiveMaximum: UInt16
    /// The largest packet that the broker accepts, in bytes, header included; nil for the limit of MQTT itself.
    public var maximumPacketSize: UInt32?
    /// The highest quality of service that the broker accepts for publications.
    public var maximumQuality: QualityOfService
    /// Whether the broker retains messages.
    public var retainAvailable: Bool
    /// Whether filters may have wildcards.
    public var wildcardsAvailable: Bool
    /// Whether publications carry the identifiers of their subscriptions.
    public var identifiersAvailable: Bool
    /// The keep-alive interval that the broker requires, in seconds; nil for the requested one.
    public var keepAlive: UInt16?
    /// The time for which the broker keeps the session, in seconds; nil for the requested one.
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
