// SPDX-License-Identifier: Apache-2.0
import CCarillonDBus
import CarillonBusNames
import CarillonMainLoop

/// A connection to a message bus, driven by a ``MainContext``.
///
/// Nothing here blocks: the handshake, calls and their replies all happen while the context runs. Threads: all members
/// on the thread that runs the context.
public final class Connection: BusConnection {
    public let context: MainContext
    /// The name that the bus gave this connection; nil before ``hello(completion:)`` completed.
    public private(set) var uniqueName: UniqueName?

    /// Called with every method call and signal that arrives. Returns whether it took the message; a method call that
    /// nobody takes is answered with UnknownMethod.
    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    public var onMessage: ((Message) -> Bool)?

    /// Called with a method call before anything else, while it still lies in the buffer of the socket. Returns whether it
    /// took the call, of which no message is made then.
    public var onArrivingCall: ((ArrivingCall) -> Bool)? {
        get { transport.onArrivingCall }
        set { transport.onArrivingCall = newValue }
    }

    /// Called once when the bus closed the connection. Pending calls have been completed with an error before.
    public var onDisconnect: (() -> Void)?

    private let transport: any MessageTransport
    private var routesPeerCalls = false
    private let pendingCalls: PendingCalls
    /// Calls on the closed connection that the loop has not come to yet.
    private var refusedCalls: [UInt64: EventSource] = [:]
    private var lastRefusedCall: UInt64 = 0

    /// Connects to the bus at `address`, in the syntax of the D-Bus specification.
    ///
    /// - Throws: the error of libdbus, when nothing listens there.
    public convenience init(
        address: String, context: MainContext = .default, priority: EventSource.Priority = .default
    ) throws(BusError) {
        self.init(try SocketTransport(address: address, context: context, priority: priority), context: context)
    }

    /// A connection whose messages `transport`, which is new, carries.
    package init(_ transport: any MessageTransport, context: MainContext) {
        self.transport = transport
        self.context = context
        pendingCalls = PendingCalls(context: context)
        pendingCalls.askForOwner = { [unowned self] name in askForOwner(of: name) }
        transport.onMessage = { [weak self] message in self?.received(message) }
    }

    deinit {
        pendingCalls.close()
    }

    /// The address of the session bus: `DBUS_SESSION_BUS_ADDRESS`, or else the socket `bus` in `XDG_RUNTIME_DIR`.
    public static func sessionBusAddress() throws(BusError) -> String {
        if let address = environmentVariable("DBUS_SESSION_BUS_ADDRESS"), !address.isEmpty { return address }
        if let directory = environmentVariable("XDG_RUNTIME_DIR"), isSocket(directory + "/bus") {
            let escaped = dbus_address_escape_value(directory + "/bus")!
            defer { dbus_free(escaped) }
            return "unix:path=" + String(cString: escaped)
        }
        throw .noServer("there is no session bus: DBUS_SESSION_BUS_ADDRESS is not set and XDG_RUNTIME_DIR has no bus")
    }

    /// The address of the system bus: `DBUS_SYSTEM_BUS_ADDRESS`, or else the socket of the specification.
    public static var systemBusAddress: String {
        if let address = environmentVariable("DBUS_SYSTEM_BUS_ADDRESS"), !address.isEmpty { return address }
        return "unix:path=/var/run/dbus/system_bus_socket"
    }

    /// Registers with the bus, which every connection does once, first.
    ///
    /// - Parameter completion: gets the connection's unique name, or why the bus refused.
    public func hello(completion: @escaping (Result<UniqueName, BusError>) -> Void) {
        call(.busCall("Hello")) { [weak self] result in
            completion(
                result.flatMap { reply in
                    var reader = MessageReader(reply)
                    return Result { () throws(BusError) in try reader.readUniqueName() }
                }.map { name in
                    if let self {
                        self.uniqueName = name
                        self.transport.registered(as: name)
                    }
                    return name
                })
        }
    }

    /// Has method calls of `org.freedesktop.DBus.Peer` come to ``onMessage`` like all others. By default the connection
    /// answers them, however many a caller leaves unread.
    public func routePeerCalls() { routesPeerCalls = true }

    /// Has the connection take the file descriptors that come with answers to its calls. By default, and of all other
    /// messages, they are closed as they arrive. Call before ``hello(completion:)``.
    public func takeDescriptors() { transport.takeDescriptors() }

    public var carriesDescriptors: Bool { transport.carriesDescriptors }

    public var directLine: DirectLine? { transport.directLine }

    /// The most that messages which arrived and have not been given up may take together, in bytes; beyond it nothing is
    /// read from the bus until some have been. One message may be larger. By default 63 MiB.
    public var maxReceivedBytes: Int {
        get { transport.maxReceivedBytes }
        set { transport.maxReceivedBytes = newValue }
    }

    /// Whether nothing that arrives is handed on, replies among it. It waits in the
    /// socket and then in the bus.
    public var isPaused: Bool {
        get { transport.isPaused }
        set { transport.isPaused = newValue }
    }

    /// How many messages one turn of the loop hands on at most.
    package static let messagesPerTurn = SocketReader.messagesPerTurn

    /// The descriptor of its socket, to look at only; nil when it has none.
    public var socket: Int32? { transport.socket }

    /// Bytes that were sent here and that the socket did not take yet.
    public var outgoingBytes: Int { transport.outgoingBytes }

    /// Sends without waiting for an answer. On a closed connection the message is dropped; ``onDisconnect`` tells.
    public func send(_ message: Message) { transport.send(message) }

    public func send(_ message: MarshalledMessage) {
        assert(message.isValid, "libdbus would not take these bytes")
        transport.send(message)
    }

    public func send(
        _ head: MessageHead, serial: UInt32, _ shared: [UInt8], size: Int, rest: (inout MarshalledBytes) -> Void
    ) {
        assert(
            head.message(serial: serial, shared, size: size, rest: rest).isValid, "libdbus would not take these bytes")
        transport.send(head, serial: serial, shared, size: size, rest: rest)
    }

    public func gather(_ body: () -> Void) { transport.gather(body) }

    /// From now on what handlers of messages send leaves together, at the end of a turn of the loop or before it waits:
    /// for who answers many. By default each message leaves at once.
    public func gatherTurns() { transport.gatherTurns() }

    /// Sends a method call; `completion` gets the reply, or the error that came instead, from the loop.
    ///
    /// Only the connection that was called is believed, and the bus where it answers for it (E6). A call to a well-known
    /// name has the bus tell its owner from then on. What is still pending when the connection object goes away is not
    /// completed.
    public func call(
        _ message: Message, timeout: ReplyTimeout,
        completion: @escaping (Result<Message, BusError>) -> Void
    ) {
        guard transport.isConnected else {
            // From the loop as well: a caller that goes on with its next call would never return.
            lastRefusedCall += 1
            let number = lastRefusedCall
            refusedCalls[number] = .once(milliseconds: 0, on: context) { [unowned self] in
                refusedCalls[number] = nil
                completion(.failure(.disconnected("the connection to the bus is closed")))
            }
            return
        }
        let peer = peer(of: message)
        let serial = transport.send(message)
        pendingCalls.add(serial: serial, peer: peer, timeout: timeout, completion: completion)
    }

    #if CARILLON_PLANTED
        /// The fault of that name.
        package static func plantBelief(_ believes: Bool) { PendingCalls.believesStrangers = believes }
    #endif

    /// Replies to calls that were ignored, as they came from others than those who were asked.
    public var forgedReplies: UInt64 { pendingCalls.forged }

    private func peer(of message: Message) -> PendingCalls.Peer {
        guard let destination = message.destination, destination != "org.freedesktop.DBus" else { return .bus }
        if let name = destination.unique { return .connection(name) }
        let name = WellKnownName(unchecked: destination.rawValue)
        return pendingCalls.peer(owning: name) ?? follow(name)
    }

    /// Ahead of the call: what the bus tells about the owner then comes before the owner's reply.
    private func follow(_ name: WellKnownName) -> PendingCalls.Peer {
        let peer = pendingCalls.follow(name)
        // Without room for it the bus is asked when there is a reply of somebody unknown.
        addMatch(OwnerChange.matchRule(for: name)) { _ in }
        askForOwner(of: name)
        return peer
    }

    private func askForOwner(of name: WellKnownName) {
        nameOwner(of: name) { [weak self] result in
            self?.pendingCalls.ownerIs(try? result.get(), of: name)
        }
    }

    private func received(_ message: Message) {
        let isCall = message.kind == .methodCall
        if isCall, !routesPeerCalls, message.hasInterface(ObjectExporter.peer) {
            _ = ObjectExporter.answerWithoutObject(message, from: self)
        } else if !handle(message), isCall, !message.expectsNoReply {
            send(message.errorReply(.unknownMethod("there is no method \(message.member?.rawValue ?? "")")))
        }
    }

    private func handle(_ message: Message) -> Bool {
        switch message.kind {
        case .methodReturn, .error: if pendingCalls.take(message) { return true }
        case .signal:
            // libdbus's own, which has no sender; every bus puts one into what it carries.
            if message.isSignal("org.freedesktop.DBus.Local", "Disconnected"), !message.hasSender {
                pendingCalls.failAll(with: .disconnected("the bus closed the connection"))
                onDisconnect?()
                return true
            }
            if let change = OwnerChange(message), let name = change.name.wellKnown {
                pendingCalls.ownerChanged(name, to: change.newOwner)
            }
        case .methodCall, nil: break
        }
        return onMessage?(message) ?? false
    }
}
