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
    /// Calls without a reply so far, by their number. libdbus leaves them to their timeouts when the bus goes away.
    private var pendingCalls: [UInt64: PendingCall] = [:]
    /// Calls on the closed connection that the loop has not come to yet.
    private var refusedCalls: [UInt64: EventSource] = [:]
    private var lastCall: UInt64 = 0

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
        // By default libdbus calls exit() when a bus connection ends; how the program ends is the program's decision.
        dbus_connection_set_exit_on_disconnect(pointer, 0)
        let box = Unmanaged.passRetained(WeakConnection(self)).toOpaque()
        check(dbus_connection_add_filter(pointer, filterMessage, box, releaseWeakConnection))
        ConnectionDriver.attach(pointer, to: context, priority: priority)
    }

    deinit {
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

    /// Bytes that were sent here and that the socket did not take yet.
    public var outgoingBytes: Int { dbus_connection_get_outgoing_size(pointer) }

    /// Sends without waiting for an answer. On a closed connection the message is dropped; ``onDisconnect`` tells.
    public func send(_ message: Message) {
        check(dbus_connection_send(pointer, message.pointer, nil))
    }

    public func send(_ message: Message, whenWritten: @escaping () -> Void) {
        // libdbus keeps a message until it is written, and gives it up when the connection is closed.
        message.whenGivenUp { [weak self] in
            if let self, dbus_connection_get_is_connected(pointer) != 0 { whenWritten() }
        }
        send(message)
    }

    /// Sends a method call; `completion` gets the reply, or the error that came instead, from the loop.
    ///
    /// What is still pending when the connection object goes away is not completed.
    public func call(
        _ message: Message, timeout: ReplyTimeout,
        completion: @escaping (Result<Message, BusError>) -> Void
    ) {
        var pending: OpaquePointer?
        check(dbus_connection_send_with_reply(pointer, message.pointer, &pending, timeout.dbus))
        lastCall += 1
        guard let pending else {
            // From the loop as well: a caller that goes on with its next call would never return.
            let number = lastCall
            refusedCalls[number] = .once(milliseconds: 0, on: context) { [unowned self] in
                refusedCalls[number] = nil
                completion(.failure(.disconnected("the connection to the bus is closed")))
            }
            return
        }
        let call = PendingCall(pending, number: lastCall, of: self, completion: completion)
        pendingCalls[call.number] = call
        let box = Unmanaged.passRetained(WeakPendingCall(call)).toOpaque()
        check(dbus_pending_call_set_notify(pending, completeCall, box, releaseWeakPendingCall))
    }

    fileprivate func forget(_ call: PendingCall) {
        pendingCalls[call.number] = nil
    }

    fileprivate func handle(_ message: Message) -> Bool {
        if message.isSignal("org.freedesktop.DBus.Local", "Disconnected"), message.sender == nil {
            for call in pendingCalls.values.sorted(by: { $0.number < $1.number }) { call.fail() }
            onDisconnect?()
            return true
        }
        return onMessage?(message) ?? false
    }
}

extension ReplyTimeout {
    fileprivate var dbus: Int32 {
        switch self {
        case .standard: cdbus_timeout_use_default
        case .milliseconds(let milliseconds): milliseconds
        case .never: cdbus_timeout_infinite
        }
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

/// A call that waits for its reply. The connection owns it, so it is completed once, and only while that lives: the
/// replies of several calls can be in hand when the completion of one gives the connection up.
private final class PendingCall {
    let number: UInt64
    private let pointer: OpaquePointer  // DBusPendingCall
    private unowned let connection: Connection
    private let completion: (Result<Message, BusError>) -> Void

    /// Takes over the caller's reference to `pointer`.
    init(
        _ pointer: OpaquePointer, number: UInt64, of connection: Connection,
        completion: @escaping (Result<Message, BusError>) -> Void
    ) {
        self.pointer = pointer
        self.number = number
        self.connection = connection
        self.completion = completion
    }

    deinit {
        dbus_pending_call_unref(pointer)
    }

    func complete(_ result: Result<Message, BusError>) {
        connection.forget(self)
        completion(result)
    }

    /// The bus closed the connection: no reply will come.
    func fail() {
        dbus_pending_call_cancel(pointer)
        complete(.failure(.disconnected("the bus closed the connection")))
    }
}

private final class WeakPendingCall {
    weak var call: PendingCall?

    init(_ call: PendingCall) {
        self.call = call
    }
}

private func completeCall(_ pending: OpaquePointer?, _ data: UnsafeMutableRawPointer?) {
    guard let reply = dbus_pending_call_steal_reply(pending) else { return }
    let message = Message(adopting: reply)
    let call = Unmanaged<WeakPendingCall>.fromOpaque(data!).takeUnretainedValue().call
    if let error = message.error {
        call?.complete(.failure(error))
    } else {
        call?.complete(.success(message))
    }
}

private func releaseWeakPendingCall(_ data: UnsafeMutableRawPointer?) {
    Unmanaged<WeakPendingCall>.fromOpaque(data!).release()
}
