import BusNames
import CDBus
import MainLoop

/// A connection's messages over a socket: libdbus opens it, proves who we are, and reads; ``SocketWriter`` writes.
final class SocketTransport: MessageTransport {
    var onMessage: ((Message) -> Void)?
    private let pointer: OpaquePointer  // DBusConnection
    private let driver: ConnectionDriver
    private let priority: EventSource.Priority
    private let context: MainContext
    private var isRegistered = false
    /// Nil as long as libdbus writes.
    private var writer: SocketWriter?
    private var lastSerial: UInt32 = 0
    /// The upper half of the numbers is for those who number their messages themselves.
    private static let firstForeignSerial: UInt32 = 1 << 31
    /// How many are at it to send more, besides a turn of the loop.
    private var gatherers = 0
    private var isInTurn = false

    /// Connects to the bus at `address`.
    ///
    /// - Throws: the error of libdbus, when nothing listens there.
    init(address: String, context: MainContext, priority: EventSource.Priority) throws(BusError) {
        guard !address.utf8.contains(0) else { throw .invalidArgs("the bus address holds a NUL character") }
        let opened = try throwingBusError { dbus_connection_open_private(address, $0) }
        guard let opened else { throw .noServer("could not connect to \(address)") }
        pointer = opened
        self.context = context
        self.priority = priority
        driver = ConnectionDriver.attach(pointer, to: context, priority: priority)
        // By default libdbus calls exit() when a bus connection ends; how the program ends is the program's decision.
        dbus_connection_set_exit_on_disconnect(pointer, 0)
        // What libdbus would answer by itself it would write by itself.
        dbus_connection_set_route_peer_messages(pointer, 1)
        let box = Unmanaged.passRetained(WeakTransport(self)).toOpaque()
        check(dbus_connection_add_filter(pointer, filterMessage, box, releaseWeakTransport))
    }

    deinit {
        driver.onTurn = nil
        writer?.flush()
        dbus_connection_close(pointer)
        ConnectionDriver.detach(pointer)
        dbus_connection_unref(pointer)
    }

    var isConnected: Bool { dbus_connection_get_is_connected(pointer) != 0 }

    func send(_ message: Message) -> UInt32 {
        guard let writer = takeOver() else {
            var serial: UInt32 = 0
            check(dbus_connection_send(pointer, message.pointer, &serial))
            if serial < Self.firstForeignSerial { lastSerial = serial }
            return serial
        }
        let serial = message.numbered(nextSerial)
        if message.hasDescriptors {
            writer.append(message)
        } else {
            message.withMarshalledBytes { writer.append($0) }
        }
        appended(to: writer)
        return serial
    }

    func send(_ message: MarshalledMessage) {
        guard let writer = takeOver() else { return _ = send(Message(message)) }
        let serial = message.serial == 0 ? nextSerial() : nil
        message.bytes.withUnsafeBytes { writer.append($0, serial: serial) }
        appended(to: writer)
    }

    func gatherTurns() {
        driver.onTurn = { [unowned self] isEnd in
            isInTurn = !isEnd
            flushIfNobodyGathers()
        }
    }

    func gather(_ body: () -> Void) {
        gatherers += 1
        body()
        gatherers -= 1
        flushIfNobodyGathers()
    }

    private func flushIfNobodyGathers() {
        if gatherers == 0, !isInTurn { writer?.flush() }
    }

    private func appended(to writer: SocketWriter) {
        if writer.isFull { writer.flush() } else { flushIfNobodyGathers() }
    }

    /// Who writes; nil while libdbus has something to write that was sent before we were registered.
    private func takeOver() -> SocketWriter? {
        if let writer { return writer }
        guard isRegistered, let socket, dbus_connection_has_messages_to_send(pointer) == 0 else { return nil }
        writer = SocketWriter(pointer, descriptor: socket, context: context, priority: priority)
        return writer
    }

    private func nextSerial() -> UInt32 {
        lastSerial = lastSerial < Self.firstForeignSerial - 1 ? lastSerial + 1 : 1
        return lastSerial
    }

    func registered(as name: UniqueName) {
        dbus_bus_set_unique_name(pointer, name.rawValue)
        isRegistered = true
    }

    var mostReceivedBytes: Int {
        get { dbus_connection_get_max_received_size(pointer) }
        set {
            dbus_connection_set_max_received_size(pointer, newValue)
            driver.lookWhetherToRead()
        }
    }

    var isPaused: Bool {
        get { driver.isPaused }
        set { driver.isPaused = newValue }
    }

    var socket: Int32? {
        var descriptor: Int32 = -1
        return dbus_connection_get_unix_fd(pointer, &descriptor) != 0 ? descriptor : nil
    }

    var outgoingBytes: Int { (writer?.byteCount ?? 0) + dbus_connection_get_outgoing_size(pointer) }
}

private final class WeakTransport {
    weak var transport: SocketTransport?

    init(_ transport: SocketTransport) {
        self.transport = transport
    }
}

private func filterMessage(
    _: OpaquePointer?, _ message: OpaquePointer?, _ data: UnsafeMutableRawPointer?
) -> DBusHandlerResult {
    let box = Unmanaged<WeakTransport>.fromOpaque(data!).takeUnretainedValue()
    box.transport?.onMessage?(Message(retaining: message!))
    return DBUS_HANDLER_RESULT_HANDLED
}

private func releaseWeakTransport(_ data: UnsafeMutableRawPointer?) {
    Unmanaged<WeakTransport>.fromOpaque(data!).release()
}
