// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop

/// A client of an MQTT 5 broker, driven by a ``MainContext``: no thread of its own, and no polling.
///
/// It is connected with ``connect()`` and stays so until ``MQTTClientDelegate/disconnected(_:)`` tells otherwise; it does
/// not connect again by itself. The broker keeps the session for ``Settings/sessionExpiry`` after that. What was published
/// and not acknowledged when the connection ended is forgotten here: the broker may have it or not, and whoever wants it
/// there publishes it again.
///
/// A publication that arrives is acknowledged to the broker before the delegate sees it. So it is lost if the process ends
/// in between.
///
/// From the first client on the process ignores SIGPIPE, as libmosquitto has it: without that a broker that goes away
/// would end the process.
///
/// Threads: all members on the thread that runs the context.
public final class MQTTClient {
    public struct Settings: Sendable {
        /// A name or an address.
        public var host: String
        public var port: UInt16
        /// Whose session it is: another client with the same one throws this one out. Not empty.
        public var clientID: String
        /// Seconds after which the one that has heard nothing gives the other up. 5 at least; 0 for never.
        public var keepAlive: UInt16
        /// For how many seconds a connection that is being made is waited for.
        public var connectTimeout: UInt16
        /// For how many seconds the broker keeps the session, subscriptions and what arrives for them, after the
        /// connection has ended.
        public var sessionExpiry: UInt32
        /// How many publications the broker may have on their way here without an acknowledgement.
        public var receiveMaximum: UInt16
        /// How many are sent without an acknowledgement; what is published beyond it waits here. A broker that says how
        /// many it takes has the last word, also if that is more.
        public var sendMaximum: UInt16
        /// The largest packet that is taken, in bytes. The broker drops larger publications without a word.
        public var maximumPacketSize: UInt32?
        public var userName: String?
        public var password: String?
        /// Nil for none: all that is sent, passwords too, can be read by whoever is in between.
        public var tls: TLS?
        /// What the broker publishes when the connection ends without ``MQTTClient/disconnect(_:)``.
        public var will: Publication?
        /// How many seconds the broker waits before it publishes the will; it does not when the client is back by then.
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

    /// TLS 1.2 or later. The broker has to prove that it is the host that was asked for. The files are PEM, and read anew
    /// with each connection.
    public struct TLS: Hashable, Sendable {
        /// The certificates of those who may vouch for the broker; nil for the system's.
        public var authorityFile: String?
        /// This client's own certificate, with those between it and the authority, if the broker wants one.
        public var certificateFile: String?
        /// The key of that, without a passphrase.
        public var keyFile: String?

        public init(authorityFile: String? = nil, certificateFile: String? = nil, keyFile: String? = nil) {
            self.authorityFile = authorityFile
            self.certificateFile = certificateFile
            self.keyFile = keyFile
        }
    }

    public let settings: Settings
    private let context: MainContext
    private let events = EventQueue()
    /// Of the last connection.
    private var driver: ClientDriver?
    private let work: BlockingWork
    private var isPaused = false

    /// A client that is not connected.
    ///
    /// - Throws: ``MQTTError/Cause/settingsInvalid``, ``MQTTError/Cause/textInvalid`` or ``MQTTError/Cause/topicInvalid``
    ///   for settings that can't be.
    public init(_ settings: Settings, context: MainContext) throws(MQTTError) {
        self.settings = settings
        self.context = context
        // Each connection has another one; what can't be is found now.
        _ = try LibraryHandle(settings)
        // Its bound is for the line behind it. The driver has one for each.
        work = BlockingWork(
            on: context, priority: .default, bound: UInt32(settings.connectTimeout) * 1_000, width: 4)
    }

    deinit {
        events.delegate = nil
    }

    /// Who is told; held weakly.
    public var delegate: (any MQTTClientDelegate)? {
        get { events.delegate }
        set { events.delegate = newValue }
    }

    /// Whether the broker has taken the connection, and it has not ended.
    public var isConnected: Bool { driver?.state == .connected }

    /// Begins to connect; ``MQTTClientDelegate/connected(sessionPresent:limits:)`` or
    /// ``MQTTClientDelegate/disconnected(_:)`` tells how that ended. The session is gone on with, if the broker still has
    /// it. Does not block: names are looked up in a thread of their own.
    ///
    /// - Parameter startsClean: whether the broker is to forget the session, and all that waits in it.
    /// - Throws: a file that can't be read or used, of which the delegate is then told nothing; and
    ///   ``MQTTError/Cause/connected``.
    public func connect(startsClean: Bool = false) throws(MQTTError) {
        switch driver?.state {
        case nil, .idle, .leaving: break
        case .reaching, .connecting, .connected: throw MQTTError(.connected)
        }
        let next = try ClientDriver(
            settings, startsClean: startsClean, events: events, addresses: driver?.addresses ?? AddressChoice(),
            isReadingPaused: isPaused, work: work, context: context)
        driver?.abandon()
        driver = next
        try next.connect()
    }

    /// Ends the connection, or the attempt to make one. The delegate is told nothing of that; it may still get what
    /// arrived before. Harmless without a connection.
    public func disconnect(_ reason: ReasonCode = .success) { driver?.disconnect(reason) }

    private func connectedDriver() throws(MQTTError) -> ClientDriver {
        guard let driver else { throw MQTTError(.notConnected) }
        return driver
    }

    /// Publishes.
    ///
    /// - Returns: what ``MQTTClientDelegate/acknowledged(_:_:)`` will be called with: when the broker has it, or, with
    ///   ``QualityOfService/atMostOnce``, when it was written.
    /// - Throws: ``MQTTError/Cause/notConnected``, ``MQTTError/Cause/packetTooLarge``, ``MQTTError/Cause/textInvalid``,
    ///   ``MQTTError/Cause/topicInvalid``; then nothing is kept of it.
    public func publish(_ publication: Publication) throws(MQTTError) -> PacketID {
        try connectedDriver().publish(publication)
    }

    /// Subscribes, or changes how something is subscribed to. ``MQTTClientDelegate/subscribed(_:_:)`` tells for each
    /// filter, in their order, what became of it, unless the connection ends before.
    ///
    /// - Throws: as ``publish(_:)``.
    public func subscribe(_ filters: [TopicFilter]) throws(MQTTError) -> PacketID {
        try connectedDriver().subscribe(filters)
    }

    /// Ends subscriptions to the filters of these texts.
    ///
    /// - Throws: as ``publish(_:)``.
    public func unsubscribe(_ topics: [String]) throws(MQTTError) -> PacketID {
        try connectedDriver().unsubscribe(topics)
    }

    /// While true, the socket is not read: the broker keeps what it has for this client. What was read just before may
    /// still arrive. Neither side hears the other then, so a pause should be shorter than the keep-alive time.
    public var isReadingPaused: Bool {
        get { isPaused }
        set {
            isPaused = newValue
            driver?.isReadingPaused = newValue
        }
    }
}

/// What a client tells. All on the thread of its context, from the loop, never inside a call of the client; each may call
/// it, and let go of it.
public protocol MQTTClientDelegate: AnyObject {
    /// The broker has taken the connection.
    ///
    /// - Parameter sessionPresent: whether it still had the session, so that all subscriptions stand.
    func connected(sessionPresent: Bool, limits: BrokerLimits)

    /// The connection has ended, or could not be made: once for each call of ``MQTTClient/connect()`` that returned,
    /// unless ``MQTTClient/disconnect(_:)`` was called.
    func disconnected(_ error: MQTTError)

    func received(_ publication: Publication)

    /// The broker has a publication, or refused it, which is final.
    func acknowledged(_ id: PacketID, _ reason: ReasonCode)

    /// - Parameter reasons: of each filter, in their order.
    func subscribed(_ id: PacketID, _ reasons: [ReasonCode])

    func unsubscribed(_ id: PacketID)
}
