// SPDX-License-Identifier: Apache-2.0
import CCarillonDBus
import CarillonBusNames
import CarillonMainLoop

/// The transport of a ``Connection`` over a socket of a real bus. libdbus opens the socket and authenticates, by means
/// of ``ConnectionDriver``; then ``SocketReader`` reads and ``SocketWriter`` writes.
///
/// It also assigns serials, and flushes the writer after each message or after each batch of messages. A *batch* is a
/// group of messages that are written together, to save system calls (``batchSends(_:)``, ``batchIterations()``).
final class SocketTransport: MessageTransport {
    var onMessage: ((Message) -> Void)?
    var onArrivingCall: ((ArrivingCall) -> Bool)? {
        get { reader.onArrivingCall }
        set { reader.onArrivingCall = newValue }
    }
    private let pointer: OpaquePointer  // DBusConnection
    private let driver: ConnectionDriver
    private let reader: SocketReader
    private let writer: SocketWriter
    /// The last serial that this transport assigned, from 1 to the end of the lower half.
    private var lastSerial: UInt32 = 0
    /// The first serial of the upper half, which is reserved for senders that assign serials themselves, such as
    /// ``DirectSender``.
    static let firstForeignSerial: UInt32 = 1 << 31
    /// The number of running, possibly nested, calls of ``batchSends(_:)``.
    private var runningBatches = 0
    /// Whether the reader is delivering the messages of a loop iteration and ``batchIterations()`` was called. Messages
    /// that are sent meanwhile, such as the replies, are written together at the end of the iteration.
    private var isInIteration = false

    /// Connects to the bus at `address`.
    ///
    /// - Throws: The error of libdbus if no bus listens there.
    init(address: String, context: MainContext, priority: EventSource.Priority) throws(BusError) {
        guard !address.utf8.contains(0) else { throw .invalidArgs("the bus address holds a NUL character") }
        let opened = try throwingBusError { dbus_connection_open_private(address, $0) }
        guard let opened else { throw .noServer("could not connect to \(address)") }
        var descriptor: Int32 = -1
        guard dbus_connection_get_socket(opened, &descriptor) != 0 else {
            dbus_connection_close(opened)
            dbus_connection_unref(opened)
            throw .noServer("the connection to \(address) has no socket")
        }
        pointer = opened
        driver = ConnectionDriver.attach(pointer, to: context, priority: priority)
        reader = SocketReader(descriptor: descriptor, context: context, priority: priority)
        writer = SocketWriter(opened, descriptor: descriptor, context: context, priority: priority)
        // By default libdbus calls exit() at the end of a bus connection; that decision belongs to the program.
        dbus_connection_set_exit_on_disconnect(pointer, 0)
        let box = Unmanaged.passRetained(WeakTransport(self)).toOpaque()
        check(dbus_connection_add_filter(pointer, filterMessage, box, releaseWeakTransport))
        driver.onAuthenticated = { [unowned self] in
            reader.start()
            writer.start()
        }
        driver.onClosing = { [unowned self] in stop() }
        reader.onMessage = { [unowned self] message in onMessage?(message) }
        // libdbus then creates its last message, `Disconnected`, which reaches the filter above.
        reader.onEnd = { [unowned self] in dbus_connection_close(pointer) }
    }

    deinit {
        // This object may be released within an iteration of the reader, which must not call it any more.
        reader.onIteration = nil
        writer.flush()
        stop()
        driver.onClosing = nil
        dbus_connection_close(pointer)
        ConnectionDriver.detach(pointer)
        dbus_connection_unref(pointer)
    }

    /// Stops all I/O before the descriptor is closed, as its number may be reused.
    private func stop() {
        reader.stop()
        writer.stop()
    }

    var isConnected: Bool { dbus_connection_get_is_connected(pointer) != 0 }

    func send(_ message: Message) -> UInt32 {
        let serial = message.numbered(nextSerial)
        if message.hasDescriptors {
            writer.append(message)
        } else {
            message.withMarshalledBytes { writer.append($0) }
        }
        appended()
        return serial
    }

    func send(_ message: MarshalledMessage) {
        let serial = message.serial == 0 ? nextSerial() : nil
        message.bytes.withUnsafeBytes { writer.append($0, serial: serial) }
        appended()
    }

    /// Sends one of many similar messages, such as one notification to several clients. `shared` is the encoded
    /// beginning of the arguments, which is the same for all receivers. `rest` appends the arguments that differ, with
    /// at most `size` bytes.
    func send(
        _ head: EncodedHeader, serial: UInt32, _ shared: [UInt8], size: Int, rest: (inout MarshalledBytes) -> Void
    ) {
        writer.append(head, serial: serial, shared, size: size, rest: rest)
        appended()
    }

    /// Batches the messages that are sent while the reader delivers messages. ``SocketReader/onIteration`` reports the
    /// beginning (false) and the end (true) of each delivery; the flush follows at the end.
    func batchIterations() {
        reader.onIteration = { [unowned self] isEnd in
            isInIteration = !isEnd
            flushUnlessBatched()
        }
    }

    func batchSends(_ body: () -> Void) {
        runningBatches += 1
        body()
        runningBatches -= 1
        flushUnlessBatched()
    }

    /// Makes the reader keep the file descriptors in replies; otherwise it closes all received descriptors.
    func takeDescriptors() { reader.takesDescriptors = true }

    var carriesDescriptors: Bool { dbus_connection_can_send_type(pointer, Int32(TypeCode.unixFD.rawValue)) != 0 }

    /// The object through which the outbox of the client library sends small posts from any thread, without waking the
    /// connection's thread. It exists only for a Unix socket, which accepts a small write completely or not at all. A
    /// TCP socket may accept a part of a message, and another thread's message would then follow that part.
    private(set) lazy var directSender: DirectSender? = {
        guard let socket, isUnixSocket(socket) else { return nil }
        return writer.share()
    }()

    /// Writes the queued messages unless they belong to a batch.
    private func flushUnlessBatched() {
        if runningBatches == 0, !isInIteration { writer.flush() }
    }

    /// Decides about a flush after a message was queued: a full buffer is written even within a batch.
    private func appended() {
        if writer.isFull { writer.flush() } else { flushUnlessBatched() }
    }

    private func nextSerial() -> UInt32 {
        lastSerial = lastSerial < Self.firstForeignSerial - 1 ? lastSerial + 1 : 1
        return lastSerial
    }

    /// The maximum total size of received messages that are still alive, in bytes; above it nothing is read.
    var maxReceivedBytes: Int {
        get { reader.maxReceivedBytes }
        set { reader.maxReceivedBytes = newValue }
    }

    /// Whether nothing is read and delivered for now.
    var isPaused: Bool {
        get { reader.isPaused }
        set { reader.isPaused = newValue }
    }

    var socket: Int32? {
        var descriptor: Int32 = -1
        return dbus_connection_get_unix_fd(pointer, &descriptor) != 0 ? descriptor : nil
    }

    var outgoingBytes: Int { writer.outgoingBytes }
}

/// A weak reference to the transport as the user data of a libdbus callback, which may outlive it.
private final class WeakTransport {
    weak var transport: SocketTransport?

    init(_ transport: SocketTransport) {
        self.transport = transport
    }
}

/// The message filter of the libdbus connection. After the authentication libdbus reads nothing, so the only message
/// here is its own `Disconnected` signal at the end of the connection.
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
