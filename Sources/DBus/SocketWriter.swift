import CDBus
import Collections
import MainLoop

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// Writes messages to the socket of a connection, in their order, as many with one call as there are.
///
/// libdbus writes a message with a system call each, and with another that fails where the socket is full. So this writes
/// in its stead. What has descriptors with it is left to libdbus, in its turn.
final class SocketWriter: PolledSourceDelegate {
    private enum Portion {
        case bytes([UInt8])
        /// For libdbus.
        case message(Message)
    }

    /// So much is written at once, about.
    private static let portionSize = 64 << 10

    private let connection: OpaquePointer  // DBusConnection; not retained: it outlives the writer
    private let descriptor: Int32
    private var portions = Deque<Portion>()
    /// What comes behind them.
    private var last: [UInt8] = []
    /// Bytes of the first portion, or of the last, that were written.
    private var written = 0
    /// What was not written yet.
    private(set) var byteCount = 0
    private var hasStarted = false
    /// Nobody reads what is written any more.
    private var isBroken = false
    /// Whether libdbus may not have written what it was given.
    private var isLibraryWriting = false
    private var source: PolledSource!
    /// While the socket is full.
    private var tag: PolledSource.Tag?

    /// - Parameters:
    ///   - connection: to which libdbus writes nothing by itself.
    ///   - descriptor: of its socket, which does not block.
    init(_ connection: OpaquePointer, descriptor: Int32, context: MainContext, priority: EventSource.Priority) {
        self.connection = connection
        self.descriptor = descriptor
        source = PolledSource(delegate: self, priority: priority, context: context)
    }

    /// Writes what was put here before, and from now on all.
    func start() {
        hasStarted = true
        flush()
    }

    /// Writes nothing more: the descriptor is about to be closed.
    func stop() { giveUp() }

    /// Whether a portion is full, so that it is time for ``flush()``.
    var isFull: Bool { last.count >= Self.portionSize || !portions.isEmpty }

    /// Puts the bytes of a message at the end.
    ///
    /// - Parameter serial: takes the place of the one in them; nil to leave that.
    func append(_ bytes: UnsafeRawBufferPointer, serial: UInt32? = nil) {
        guard !isBroken else { return }
        if last.count >= Self.portionSize { closeLast() }
        let start = last.count
        last.append(contentsOf: bytes)
        byteCount += bytes.count
        guard let serial else { return }
        last.withUnsafeMutableBytes { last in
            last.storeBytes(of: serial, toByteOffset: start + MarshalledMessage.serialOffset, as: UInt32.self)
        }
    }

    /// Puts a message at the end that libdbus has to write.
    func append(_ message: Message) {
        guard !isBroken else { return }
        if !last.isEmpty { closeLast() }
        portions.append(.message(message))
        byteCount += message.byteCount
    }

    private func closeLast() {
        portions.append(.bytes(last))
        last = []
    }

    /// Writes what the socket takes. The rest follows as the loop turns.
    func flush() {
        guard hasStarted, tag == nil, !last.isEmpty || !portions.isEmpty else { return }
        write()
    }

    private func write() {
        while !isBroken {
            if isLibraryWriting {
                // It goes on as the loop turns.
                guard dbus_connection_has_messages_to_send(connection) == 0 else { break }
                isLibraryWriting = false
            }
            switch portions.first {
            case .bytes(let bytes)?:
                guard write(bytes) else { return }
                portions.popFirst()
            case .message(let message)?:
                portions.popFirst()
                byteCount -= message.byteCount
                isLibraryWriting = true
                check(dbus_connection_send(connection, message.pointer, nil))
            case nil:
                guard !last.isEmpty else { return stopWaiting() }
                guard write(last) else { return }
                if last.capacity > 2 * Self.portionSize { last = [] } else { last.removeAll(keepingCapacity: true) }
            }
        }
        stopWaiting()
    }

    /// Returns whether all of it was written.
    private func write(_ bytes: [UInt8]) -> Bool {
        while written < bytes.count {
            let count = bytes.withUnsafeBytes { bytes in
                send(descriptor, bytes.baseAddress! + written, bytes.count - written, Int32(MSG_NOSIGNAL))
            }
            if count < 0 {
                if errno == EINTR { continue }
                if errno == EAGAIN || errno == EWOULDBLOCK { waitForRoom() } else { giveUp() }
                return false
            }
            written += count
            byteCount -= count
        }
        written = 0
        return true
    }

    /// What was sent to us before is still to be read, and its end tells that the connection has ended.
    private func giveUp() {
        isBroken = true
        portions.removeAll()
        last = []
        byteCount = 0
        stopWaiting()
    }

    // MARK: A full socket

    private func waitForRoom() {
        guard tag == nil else { return }
        tag = source.add(descriptor: descriptor, waitingFor: [.writable, .error, .hangUp])
    }

    private func stopWaiting() {
        guard let waiting = tag else { return }
        source.remove(waiting)
        tag = nil
    }

    /// Before the loop waits: what was gathered leaves, also from a handler that runs a loop of its own.
    func hasPendingWork() -> Bool {
        flush()
        return false
    }

    func dispatch() {
        write()
    }
}
