// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop

/// A client of an MQTT 5 broker, driven by a ``MainContext``. It does not poll, and has no thread except during a name
/// lookup.
///
/// ``connect()`` makes one connection, which lasts until ``MQTTClientDelegate/disconnected(_:)`` is called; the client
/// does not reconnect by itself. After the connection the broker keeps the session for ``Settings/sessionExpiry``.
///
/// The client forgets publications that are unacknowledged when the connection ends. It is unknown whether the broker
/// has received them. A program that needs them at the broker publishes them again.
///
/// The client acknowledges a received publication to the broker before the delegate receives it. If the process ends in
/// between, the publication is lost.
///
/// From the first client on, the process ignores SIGPIPE, because libmosquitto sets it so. Otherwise a broker that
/// closes the connection would end the process.
///
/// Threads: all members are used on the thread that runs the context.
public final class MQTTClient {
    /// The settings of a client, which are fixed at its creation. ``MQTTClient/init(_:context:)`` checks them.
    public struct Settings: Sendable {
        /// The host name or the address of the broker.
        public var host: String
        /// The TCP port of the broker; not 0.
        public var port: UInt16
        /// The owner of the session: another client with the same identifier disconnects this one. Not empty.
        public var clientID: String
        /// The keep-alive interval, in seconds: each side gives up a peer that was silent for longer. At least 5; 0 for
        /// never.
        public var keepAlive: UInt16
        /// The time limit for making a connection, in seconds.
        public var connectTimeout: UInt16
        /// The time for which the broker keeps the session after the connection has ended, in seconds. The session
        /// contains the subscriptions and the messages that arrive for them.
        public var sessionExpiry: UInt32
        /// The maximum number of unacknowledged publications from the broker.
        public var receiveMaximum: UInt16
        /// The maximum number of unacknowledged publications to the broker; libmosquitto queues further ones. A maximum
        /// that the broker announces takes precedence, also if it is larger.
        public var sendMaximum: UInt16
        /// The largest packet that the client accepts, in bytes; nil for the limit of MQTT. The broker silently drops
        /// larger publications.
        public var maximumPacketSize: UInt32?
        /// The user name for the broker; nil for none.
        public var userName: String?
        /// The password for the broker; nil for none.
        public var password: String?
        /// The settings of TLS. Nil for an unencrypted connection: every intermediary can then read all data, passwords
        /// included.
        public var tls: TLS?
        /// The last will: the message that the broker publishes when the connection ends without
        /// ``MQTTClient/disconnect(_:)``.
        public var will: Publication?
        /// The delay of the will after the end of the connection, in seconds. The broker does not publish it if the
        /// client has reconnected by then.
        public var willDelay: UInt32 = 0

        public init(
            host: String, port: UInt16, clientID: String, keepAlive: UInt16 = 60, connectTimeout: UInt16 = 30,
            sessionExpiry: UInt32 = 0, receiveMaximum: UInt16 = 64, sendMaximum: UInt16 = 20,
            maximumPacketSize: UInt32? = nil, userName: String? = nil, password: String? = nil, tls: TLS? = nil,
            will: Publication? = nil
        ) {
            self.host = host
            self.port = port
            self.clientID = clientID
            self.keepAlive = keepAlive
            self.connectTimeout = connectTimeout
            self.sessionExpiry = sessionExpiry
            self.receiveMaximum = receiveMaximum
            self.sendMaximum = sendMaximum
            self.maximumPacketSize = maximumPacketSize
            self.userName = userName
            self.password = password
            self.tls = tls
            self.will = will
        }
    }

    /// The settings of TLS 1.2 or later. The broker's certificate has to be valid for the requested host. The files are
    /// in PEM format, and are read again for each connection.
    public struct TLS: Hashable, Sendable {
        /// The certificates of the authorities that may vouch for the broker; nil for the system's.
        public var authorityFile: String?
        /// The client's own certificate, with the intermediate certificates, if the broker requires one.
        public var certificateFile: String?
        /// The key of that certificate, without a passphrase.
        public var keyFile: String?

        public init(authorityFile: String? = nil, certificateFile: String? = nil, keyFile: String? = nil) {
            self.authorityFile = authorityFile
            self.certificateFile = certificateFile
            self.keyFile = keyFile
        }
    }

    /// The settings of each connection.
    public let settings: Settings
    private let context: MainContext
    /// The events for the delegate, of this and earlier connections.
    private let events = EventQueue()
    /// The adapter to libmosquitto for the present or last connection; nil before the first.
    private var driver: ClientDriver?
    /// The threads that look up names.
    private let work: BlockingWork
    /// The value of ``isReadingPaused``, also without a driver.
    private var isPaused = false

    /// Creates a client that is not connected.
    ///
    /// - Throws: ``MQTTError/Cause/settingsInvalid``, ``MQTTError/Cause/textInvalid`` or
    ///   ``MQTTError/Cause/topicInvalid`` for invalid settings.
    public init(_ settings: Settings, context: MainContext) throws(MQTTError) {
        self.settings = settings
        self.context = context
        // Each connection creates a handle of its own. This one is discarded; it reveals invalid settings now.
        _ = try LibraryHandle(settings)
        // The bound is the timeout of a lookup from its beginning. The driver's timer also counts the time for which
        // its lookup waits behind others. A lookup of an abandoned driver still runs, so up to 4 may run at a time.
        work = BlockingWork(
            on: context, priority: .default, bound: UInt32(settings.connectTimeout) * 1_000, width: 4)
    }

    deinit {
        events.delegate = nil
    }

    /// The receiver of events; held weakly.
    public var delegate: (any MQTTClientDelegate)? {
        get { events.delegate }
        set { events.delegate = newValue }
    }

    /// Whether the broker has accepted the connection, and it has not ended.
    public var isConnected: Bool { driver?.state == .connected }

    /// Begins to connect. ``MQTTClientDelegate/connected(sessionPresent:limits:)`` or
    /// ``MQTTClientDelegate/disconnected(_:)`` reports the outcome. The session continues if the broker still has it.
    /// Does not block: a separate thread looks up names.
    ///
    /// - Parameter startsClean: whether the broker is to discard the session, and all messages that wait in it.
    /// - Throws: ``MQTTError/Cause/connected`` if there is a connection or an attempt already; an error for a file that
    ///   can't be read or used. A thrown error is not reported to the delegate.
    public func connect(startsClean: Bool = false) throws(MQTTError) {
        switch driver?.state {
        case nil, .idle, .leaving: break
        case .resolving, .connecting, .connected: throw MQTTError(.connected)
        }
        let next = try ClientDriver(
            settings, startsClean: startsClean, events: events, addresses: driver?.addresses ?? AddressChoice(),
            isReadingPaused: isPaused, work: work, context: context)
        // Late callbacks of the earlier connection must not reach the delegate.
        driver?.abandon()
        driver = next
        try next.connect()
    }

    /// Ends the connection, or the attempt to make one. The delegate is not called for this end; it may still receive
    /// earlier messages. Without a connection the call does nothing.
    ///
    /// - Parameter reason: the reason in the DISCONNECT packet. With ``ReasonCode/disconnectWithWill`` the broker
    ///   publishes the will.
    public func disconnect(_ reason: ReasonCode = .success) { driver?.disconnect(reason) }

    /// Returns the driver of the present or last connection. Its methods throw ``MQTTError/Cause/notConnected`` unless
    /// the broker has accepted the connection.
    ///
    /// - Throws: ``MQTTError/Cause/notConnected`` before the first connection, when there is no driver.
    private func connectedDriver() throws(MQTTError) -> ClientDriver {
        guard let driver else { throw MQTTError(.notConnected) }
        return driver
    }

    /// Publishes a message.
    ///
    /// - Returns: the identifier that ``MQTTClientDelegate/acknowledged(_:_:)`` receives later: when the broker has the
    ///   message, or, with ``QualityOfService/atMostOnce``, when it was written to the socket.
    /// - Throws: ``MQTTError/Cause/notConnected``, ``MQTTError/Cause/packetTooLarge``, ``MQTTError/Cause/textInvalid``,
    ///   ``MQTTError/Cause/topicInvalid``; the message is then discarded.
    public func publish(_ publication: Publication) throws(MQTTError) -> PacketID {
        try connectedDriver().publish(publication)
    }

    /// Subscribes to filters, or changes the options of subscriptions. ``MQTTClientDelegate/subscribed(_:_:)`` reports
    /// the result of each filter, in order, unless the connection ends first.
    ///
    /// - Returns: the identifier that the delegate receives with the results.
    /// - Throws: the errors of ``publish(_:)``.
    public func subscribe(_ filters: [TopicFilter]) throws(MQTTError) -> PacketID {
        try connectedDriver().subscribe(filters)
    }

    /// Ends the subscriptions to filters.
    ///
    /// - Parameter topics: the filters.
    /// - Returns: the identifier that ``MQTTClientDelegate/unsubscribed(_:)`` receives.
    /// - Throws: the errors of ``publish(_:)``.
    public func unsubscribe(_ topics: [String]) throws(MQTTError) -> PacketID {
        try connectedDriver().unsubscribe(topics)
    }

    /// Whether the client does not read the socket, so that the broker keeps the messages for this client
    /// (backpressure). A message that was read just before may still arrive. During a pause neither side notices that
    /// the other is alive, so a pause should be shorter than the keep-alive interval.
    public var isReadingPaused: Bool {
        get { isPaused }
        set {
            isPaused = newValue
            driver?.isReadingPaused = newValue
        }
    }
}

/// The receiver of the events of an ``MQTTClient``. All methods are called on the thread of its context, from the loop,
/// and never inside a call of the client. Each of them may call the client, and release it.
public protocol MQTTClientDelegate: AnyObject {
    /// Called when the broker has accepted the connection.
    ///
    /// - Parameter sessionPresent: whether the broker still had the session, so that all subscriptions stand.
    func connected(sessionPresent: Bool, limits: BrokerLimits)

    /// Called when the connection has ended, or could not be made: once for each call of ``MQTTClient/connect()`` that
    /// returned, unless ``MQTTClient/disconnect(_:)`` was called.
    func disconnected(_ error: MQTTError)

    /// Called for each publication of a subscription, in the order of the broker.
    func received(_ publication: Publication)

    /// Called when the broker has received a publication, or has refused it for good (``ReasonCode/isFailure``).
    func acknowledged(_ id: PacketID, _ reason: ReasonCode)

    /// Called when the broker has answered all packets of a subscription.
    ///
    /// - Parameter reasons: the results of the filters, in order.
    func subscribed(_ id: PacketID, _ reasons: [ReasonCode])

    /// Called when the broker has answered an unsubscription.
    func unsubscribed(_ id: PacketID)
}
