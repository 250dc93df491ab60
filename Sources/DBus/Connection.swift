// SPDX-License-Identifier: Apache-2.0
import CCarillonDBus
import CarillonBusNames
import CarillonMainLoop

/// A connection to a message bus, driven by a ``MainContext``. The service, the client libraries and the command each
/// use one or more.
///
/// It numbers and sends messages, matches replies with calls, and passes all other received messages to ``onMessage``.
/// A ``MessageTransport`` does the input and output: a socket, or the simulated bus of tests.
///
/// No member blocks: authentication, calls and their replies happen while the context runs. Threads: all members on the
/// thread that runs the context.
public final class Connection: BusConnection {
    public let context: MainContext
    /// The unique name of this connection; nil before ``hello(completion:)`` completes.
    public private(set) var uniqueName: UniqueName?

    /// Called with each received method call and signal. Returns whether it handled the message; an unhandled method
    /// call is answered with UnknownMethod.
    // Release builds omit the run-time check for overlapping accesses, which costs time with each message.
    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    public var onMessage: ((Message) -> Bool)?

    /// Called with each method call before ``onMessage``, while the call is still in the receive buffer. Returns
    /// whether the callback is responsible for the call; then no message object is created, and ``onMessage`` is not
    /// called.
    public var onArrivingCall: ((ArrivingCall) -> Bool)? {
        get { transport.onArrivingCall }
        set { transport.onArrivingCall = newValue }
    }

    /// Called once when the bus has closed the connection. Pending calls have been completed with an error by then.
    public var onDisconnect: (() -> Void)?

    private let transport: any MessageTransport
    /// Whether ``onMessage`` receives calls of `org.freedesktop.DBus.Peer`.
    private var routesPeerCalls = false
    private let pendingCalls: PendingCalls
    /// Calls that were made after the connection closed, by number. A timer of the loop completes each with an error.
    private var refusedCalls: [UInt64: EventSource] = [:]
    private var lastRefusedCall: UInt64 = 0

    /// Connects to the bus at `address`, in the syntax of the D-Bus specification.
    ///
    /// - Parameter priority: The priority of reading and writing among the sources of the context.
    /// - Throws: The error of libdbus if no bus listens there.
    public convenience init(
        address: String, context: MainContext = .default, priority: EventSource.Priority = .default
    ) throws(BusError) {
        self.init(try SocketTransport(address: address, context: context, priority: priority), context: context)
    }

    /// Creates a connection over a new `transport`.
    package init(_ transport: any MessageTransport, context: MainContext) {
        self.transport = transport
        self.context = context
        pendingCalls = PendingCalls(context: context)
        pendingCalls.requestOwner = { [unowned self] name in requestOwner(of: name) }
        transport.onMessage = { [weak self] message in self?.received(message) }
    }

    deinit {
        pendingCalls.close()
    }

    /// Returns the address of the session bus: `DBUS_SESSION_BUS_ADDRESS`, or else the socket `bus` in
    /// `XDG_RUNTIME_DIR`.
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

    /// Registers with the bus. Each connection does so once, before all other calls.
    ///
    /// - Parameter completion: Receives the connection's unique name, or the error of the bus.
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

    /// Delivers method calls of `org.freedesktop.DBus.Peer` to ``onMessage``. By default the connection answers them
    /// itself, even if the caller leaves the replies unread.
    public func routePeerCalls() { routesPeerCalls = true }

    /// Accepts file descriptors in replies to this connection's calls. By default, and in all other messages, they are
    /// closed on arrival. Call it before ``hello(completion:)``.
    public func takeDescriptors() { transport.takeDescriptors() }

    /// Whether received messages can carry file descriptors; known when ``hello(completion:)`` has completed.
    public var carriesDescriptors: Bool { transport.carriesDescriptors }

    /// The socket for sends from other threads, which the client library's outbox uses; nil if the transport is no Unix
    /// socket.
    public var directSender: DirectSender? { transport.directSender }

    /// The maximum total size of received messages that are still alive, in bytes. Above it the connection reads
    /// nothing until messages are released. A single message may be larger. Default: 63 MiB, as in libdbus.
    public var maxReceivedBytes: Int {
        get { transport.maxReceivedBytes }
        set { transport.maxReceivedBytes = newValue }
    }

    /// Whether delivery of received messages, including replies, is paused. They stay in the socket, and when it is
    /// full in the bus.
    public var isPaused: Bool {
        get { transport.isPaused }
        set { transport.isPaused = newValue }
    }

    /// The maximum number of messages delivered per loop iteration.
    package static let messagesPerIteration = SocketReader.messagesPerIteration

    /// The socket's descriptor, for inspection only; nil without a socket.
    public var socket: Int32? { transport.socket }

    /// The number of sent bytes that the socket has not accepted yet.
    public var outgoingBytes: Int { transport.outgoingBytes }

    /// Sends a message without waiting for a reply. A closed connection drops it, and reports the closure through
    /// ``onDisconnect``.
    public func send(_ message: Message) { transport.send(message) }

    /// Sends an encoded message without waiting for a reply. Debug builds check its bytes.
    public func send(_ message: MarshalledMessage) {
        assert(message.isValid, "libdbus rejects these bytes")
        transport.send(message)
    }

    /// Sends one of many similar messages, whose parameters ``MessageBus/send(_:serial:_:size:rest:)`` describes. Debug
    /// builds check its bytes.
    public func send(
        _ head: EncodedHeader, serial: UInt32, _ shared: [UInt8], size: Int, rest: (inout MarshalledBytes) -> Void
    ) {
        assert(
            head.message(serial: serial, shared, size: size, rest: rest).isValid, "libdbus rejects these bytes")
        transport.send(head, serial: serial, shared, size: size, rest: rest)
    }

    /// Batches the messages that `body` sends: they are written together, at its end or at the end of a batched loop
    /// iteration.
    public func batchSends(_ body: () -> Void) { transport.batchSends(body) }

    /// Batches, from now on, the messages that handlers of received messages send: for a service that answers many
    /// calls. A batch is written at the end of a loop iteration or before the loop waits. By default each message is
    /// written at once.
    public func batchIterations() { transport.batchIterations() }

    /// Sends a method call; `completion` receives the reply or the error, always from the loop.
    ///
    /// A reply counts only if it comes from the called connection, or from the bus on its behalf (E6). For a well-known
    /// name the called connection is the owner of the name. The first call to a name therefore subscribes to changes of
    /// its owner.
    ///
    /// Calls that are pending when the connection object is released are not completed.
    public func call(
        _ message: Message, timeout: ReplyTimeout,
        completion: @escaping (Result<Message, BusError>) -> Void
    ) {
        guard transport.isConnected else {
            // The error is delivered from the loop, too. Otherwise a caller that issues its next call in the completion
            // would recurse without end.
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
        /// Plants the fault `unverified-sender`, which the simulation has to find: replies of any sender count.
        package static func plantAnySender(_ believes: Bool) { PendingCalls.acceptsAnySender = believes }
    #endif

    /// The number of ignored replies from senders other than the called peer.
    public var forgedReplies: UInt64 { pendingCalls.forged }

    /// Returns the expected sender of the reply to a call.
    private func peer(of message: Message) -> PendingCalls.Peer {
        guard let destination = message.destination, destination != "org.freedesktop.DBus" else { return .bus }
        if let name = destination.unique { return .connection(name) }
        let name = WellKnownName(unchecked: destination.rawValue)
        return pendingCalls.peer(owning: name) ?? follow(name)
    }

    /// Subscribes to the owner of a name before the call is sent. The bus sends in order, so it announces an owner
    /// before that owner's reply arrives.
    private func follow(_ name: WellKnownName) -> PendingCalls.Peer {
        let peer = pendingCalls.follow(name)
        // A refusal by the bus needs no handling: a reply of an unknown sender makes this connection request the owner.
        addMatch(OwnerChange.matchRule(for: name)) { _ in }
        requestOwner(of: name)
        return peer
    }

    /// Requests the owner of a name from the bus, and passes the answer to the pending calls.
    private func requestOwner(of name: WellKnownName) {
        nameOwner(of: name) { [weak self] result in
            self?.pendingCalls.ownerReported(try? result.get(), of: name)
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

    /// Returns whether the message was a reply to a pending call, or was handled by ``onMessage``.
    private func handle(_ message: Message) -> Bool {
        switch message.kind {
        case .methodReturn, .error: if pendingCalls.take(message) { return true }
        case .signal:
            // This signal of libdbus has no sender; each bus sets a sender on the messages that it forwards.
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
