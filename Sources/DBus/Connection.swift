import BusNames
import CDBus
import MainLoop

/// A connection to a message bus, driven by a ``MainContext``.
///
/// Nothing here blocks: the handshake, calls and their replies all happen while the context runs. Threads: all members
/// on the thread that runs the context.
public final class Connection: BusConnection {
    public let context: MainContext
    /// The name that the bus gave this connection; nil before ``hello(completion:)`` completed.
    public private(set) var uniqueName: UniqueName?

    /// Called with every method call and signal that arrives. Returns whether it took the message; a method call that
    /// nobody takes is answered with UnknownMethod by libdbus.
    public var onMessage: ((Message) -> Bool)?

    /// Called once when the bus closed the connection. Pending calls have been completed with an error before.
    public var onDisconnect: (() -> Void)?

    private let pointer: OpaquePointer  // DBusConnection
    private let pendingCalls: PendingCalls
    /// Calls on the closed connection that the loop has not come to yet.
    private var refusedCalls: [UInt64: EventSource] = [:]
    private var lastRefusedCall: UInt64 = 0

    /// Connects to the bus at `address`, in the syntax of the D-Bus specification.
    ///
    /// - Throws: the error of libdbus, when nothing listens there.
    public init(address: String, context: MainContext = .default, priority: EventSource.Priority = .default)
        throws(BusError)
    {
        guard !address.utf8.contains(0) else { throw .invalidArgs("the bus address holds a NUL character") }
        let opened = try throwingBusError { dbus_connection_open_private(address, $0) }
        guard let opened else { throw .noServer("could not connect to \(address)") }
        pointer = opened
        self.context = context
        pendingCalls = PendingCalls(context: context)
        // By default libdbus calls exit() when a bus connection ends; how the program ends is the program's decision.
        dbus_connection_set_exit_on_disconnect(pointer, 0)
        let box = Unmanaged.passRetained(WeakConnection(self)).toOpaque()
        check(dbus_connection_add_filter(pointer, filterMessage, box, releaseWeakConnection))
        ConnectionDriver.attach(pointer, to: context, priority: priority)
        pendingCalls.askForOwner = { [unowned self] name in askForOwner(of: name) }
    }

    deinit {
        pendingCalls.close()
        dbus_connection_close(pointer)
        ConnectionDriver.detach(pointer)
        dbus_connection_unref(pointer)
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
                        dbus_bus_set_unique_name(self.pointer, name.rawValue)
                    }
                    return name
                })
        }
    }

    /// Has method calls of `org.freedesktop.DBus.Peer` come to ``onMessage`` like all others. By default libdbus answers
    /// them, however many a caller leaves unread.
    public func routePeerCalls() {
        dbus_connection_set_route_peer_messages(pointer, 1)
    }

    /// The most that messages which arrived and have not been given up may take together, in bytes; beyond it nothing is
    /// read from the bus until some have been. One message may be larger. libdbus's own bound is 63 MiB.
    public var mostReceivedBytes: Int {
        get { dbus_connection_get_max_received_size(pointer) }
        set { dbus_connection_set_max_received_size(pointer, newValue) }
    }

    /// The descriptor of its socket, to look at only; nil when it has none.
    public var socket: Int32? {
        var descriptor: Int32 = -1
        return dbus_connection_get_unix_fd(pointer, &descriptor) != 0 ? descriptor : nil
    }

    /// Bytes that were sent here and that the socket did not take yet.
    public var outgoingBytes: Int { dbus_connection_get_outgoing_size(pointer) }

    /// Sends without waiting for an answer. On a closed connection the message is dropped; ``onDisconnect`` tells.
    public func send(_ message: Message) {
        check(dbus_connection_send(pointer, message.pointer, nil))
    }

    /// Sends a method call; `completion` gets the reply, or the error that came instead, from the loop.
    ///
    /// Only the connection that was called is believed, and the bus where it answers for it (E6). A call to a well-known
    /// name has the bus tell its owner from then on. What is still pending when the connection object goes away is not
    /// completed.
    public func call(
        _ message: Message, timeout: ReplyTimeout,
        completion: @escaping (Result<Message, BusError>) -> Void
    ) {
        guard dbus_connection_get_is_connected(pointer) != 0 else {
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
        var serial: UInt32 = 0
        check(dbus_connection_send(pointer, message.pointer, &serial))
        pendingCalls.add(serial: serial, peer: peer, timeout: timeout, completion: completion)
    }

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
        addMatch(OwnerChange.matchRule(for: name)) { [weak self] result in
            if case .failure = result { self?.pendingCalls.changesAreNotTold(of: name) }
        }
        askForOwner(of: name)
        return peer
    }

    private func askForOwner(of name: WellKnownName) {
        nameOwner(of: name) { [weak self] result in
            self?.pendingCalls.ownerChanged(name, to: try? result.get())
        }
    }

    fileprivate func handle(_ message: Message) -> Bool {
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

private final class WeakConnection {
    weak var connection: Connection?

    init(_ connection: Connection) {
        self.connection = connection
    }
}

private func filterMessage(
    _: OpaquePointer?, _ message: OpaquePointer?, _ data: UnsafeMutableRawPointer?
) -> DBusHandlerResult {
    let box = Unmanaged<WeakConnection>.fromOpaque(data!).takeUnretainedValue()
    let handled = box.connection?.handle(Message(retaining: message!)) ?? false
    return handled ? DBUS_HANDLER_RESULT_HANDLED : DBUS_HANDLER_RESULT_NOT_YET_HANDLED
}

private func releaseWeakConnection(_ data: UnsafeMutableRawPointer?) {
    Unmanaged<WeakConnection>.fromOpaque(data!).release()
}
