// SPDX-License-Identifier: Apache-2.0
import CCarillonDBus
import CarillonCollections
import CarillonMainLoop

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// The output buffer of a connection: it queues encoded messages, and writes them to the socket in order, many per
/// system call. ``SocketTransport`` uses it.
///
/// libdbus needs one system call per message, and a failing one on a full socket, so this writer replaces it. libdbus
/// still writes messages with descriptors, in their place among the others.
///
/// Messages are encoded into the last buffer, a ``Chunk``. A chunk of about 64 KiB is closed and becomes a portion of
/// the queue. On a full socket the writer waits in the loop until the socket is writable.
final class SocketWriter: PolledSourceDelegate {
    /// An element of the queue before the last chunk.
    private enum Portion {
        case bytes(Chunk)
        /// The common part of a message to many receivers, in memory that the messages share.
        case shared([UInt8])
        /// A message with descriptors, for libdbus.
        case message(Message)
    }

    /// The size at which a chunk is closed and due to be written, in bytes.
    private static let portionSize = 64 << 10
    /// The maximum size of shared bytes that are copied into the chunk for each receiver, in bytes. Larger ones are
    /// written from their shared memory, with a system call of their own. They also exist only once in the queues of
    /// full sockets.
    ///
    /// In measurements both ways took 11 µs for 64 KiB. For 4 KiB the copy took 0.7 µs and the system call 7 µs; for
    /// 256 KiB they took 36 µs and 31 µs.
    static let maxCopied = 64 << 10

    private let connection: OpaquePointer  // DBusConnection; not retained: it outlives the writer
    private let descriptor: Int32
    /// The queue of complete portions, which precede `last`.
    private var portions = Deque<Portion>()
    /// Whether `portions` has elements, kept apart since each message tests it.
    private var hasPortions = false
    /// The chunk to which messages are appended.
    private var last = Chunk()
    /// The number of bytes already written of the first portion, or of `last`.
    private var written = 0
    /// The number of unwritten bytes.
    private(set) var byteCount = 0
    /// Whether the bus has authenticated this process.
    private var hasStarted = false
    /// Whether the peer has closed the socket, or this writer was stopped.
    private var isBroken = false
    /// Whether libdbus may have unwritten bytes.
    private var isLibraryWriting = false
    private var source: PolledSource!
    /// The registration in the poll; nil unless the socket is full.
    private var tag: PolledSource.Tag?
    /// The object through which other threads send to the same socket; nil if none do.
    private var directSender: DirectSender?

    /// - Parameters:
    ///   - connection: A connection to which libdbus writes nothing by itself.
    ///   - descriptor: The descriptor of its non-blocking socket.
    init(_ connection: OpaquePointer, descriptor: Int32, context: MainContext, priority: EventSource.Priority) {
        self.connection = connection
        self.descriptor = descriptor
        source = PolledSource(delegate: self, priority: priority, context: context)
    }

    /// Allows writing after the authentication, and writes the messages queued before.
    func start() {
        hasStarted = true
        flush()
    }

    /// Stops writing, before the descriptor is closed.
    func stop() {
        directSender?.close()
        discardOutput()
    }

    /// Allows sends from any thread to the same socket. The first message with descriptors ends that, since libdbus
    /// does not lock its writes against those of other threads.
    func share() -> DirectSender {
        if let directSender { return directSender }
        let directSender = DirectSender(descriptor: descriptor, isBusy: !hasStarted || hasUnwrittenBytes)
        self.directSender = directSender
        return directSender
    }

    /// Whether messages wait to be written, so that other threads must not write.
    private var hasUnwrittenBytes: Bool { byteCount > 0 || isLibraryWriting }

    /// The number of unwritten bytes, including those of libdbus, which is queried only if necessary since it takes a
    /// lock.
    var outgoingBytes: Int { byteCount + (isLibraryWriting ? Int(dbus_connection_get_outgoing_size(connection)) : 0) }

    /// Whether a portion is full, so that ``flush()`` is due.
    var isFull: Bool { hasPortions || last.count >= Self.portionSize }

    /// Appends the bytes of a message.
    ///
    /// - Parameter serial: Replaces the serial in the bytes; nil keeps it.
    func append(_ bytes: UnsafeRawBufferPointer, serial: UInt32? = nil) {
        guard !isBroken else { return }
        append(atMost: bytes.count) { message in
            message.append(raw: bytes)
            if let serial { message.set(serial, at: MarshalledMessage.serialOffset) }
        }
    }

    /// Appends a message, encoded in place. Large shared bytes are not copied: they become a portion of their own
    /// between the header and the remaining arguments. The parameters are those of
    /// ``MessageBus/send(_:serial:_:size:rest:)``.
    func append(
        _ head: EncodedHeader, serial: UInt32, _ shared: [UInt8], size: Int, rest: (inout MarshalledBytes) -> Void
    ) {
        guard !isBroken else { return }
        guard shared.count > Self.maxCopied else {
            return append(atMost: head.bytes.count + shared.count + size) { message in
                head.marshal(&message, serial: serial, shared, rest)
            }
        }
        let end = MarshalledBytes.make(atMost: size, behind: head.bytes.count + shared.count, rest)
        append(atMost: head.bytes.count) { $0.append(head, serial: serial, bodyLength: shared.count + end.count) }
        closeLast()
        portions.append(.shared(shared))
        byteCount += shared.count
        end.withUnsafeBytes { end in append(atMost: end.count) { $0.append(raw: end) } }
    }

    /// Appends the bytes that `body` encodes.
    ///
    /// - Parameter capacity: The maximum number of these bytes.
    private func append(atMost capacity: Int, _ body: (inout MarshalledBytes) -> Void) {
        if last.count >= Self.portionSize { closeLast() }
        let chunk = last
        let count = MarshalledBytes.marshal(in: chunk.freeSpace(for: capacity), body)
        chunk.count += count
        byteCount += count
    }

    /// Appends a message that libdbus has to write.
    func append(_ message: Message) {
        guard !isBroken else { return }
        // libdbus does not know of writes by other threads.
        directSender?.close()
        if last.count > 0 { closeLast() }
        portions.append(.message(message))
        hasPortions = true
        byteCount += message.byteCount
    }

    /// Moves the last chunk to the queue of portions, and starts a new one.
    private func closeLast() {
        portions.append(.bytes(last))
        hasPortions = true
        last = Chunk()
    }

    /// Writes the bytes that the socket accepts now. Later loop iterations write the other bytes. Nothing is written
    /// while the socket is known to be full.
    func flush() {
        guard hasStarted, tag == nil, hasPortions || last.count > 0 else { return }
        write()
    }

    /// Writes, and excludes other threads meanwhile.
    private func write() {
        guard let directSender else { return writeAll() }
        directSender.write {
            writeAll()
            return hasUnwrittenBytes
        }
    }

    /// Writes portion by portion until the socket is full, libdbus has to write, or nothing is left.
    private func writeAll() {
        while !isBroken {
            if isLibraryWriting {
                // libdbus has to finish first. It continues in later loop iterations.
                guard dbus_connection_has_messages_to_send(connection) == 0 else { break }
                isLibraryWriting = false
            }
            switch portions.first {
            case .bytes(let chunk)?:
                guard write(chunk.bytes) else { return }
                dropFirst()
            case .shared(let bytes)?:
                guard bytes.withUnsafeBytes({ write($0) }) else { return }
                dropFirst()
            case .message(let message)?:
                dropFirst()
                byteCount -= message.byteCount
                isLibraryWriting = true
                check(dbus_connection_send(connection, message.pointer, nil))
            case nil:
                guard last.count > 0 else { return stopWaiting() }
                guard write(last.bytes) else { return }
                // A chunk doubles its memory as it grows, so a chunk of the usual size has at most twice that.
                last.empty(keeping: 2 * Self.portionSize)
            }
        }
        stopWaiting()
    }

    private func dropFirst() {
        portions.popFirst()
        hasPortions = !portions.isEmpty
    }

    /// Writes bytes. Returns whether all of them were written.
    private func write(_ bytes: UnsafeRawBufferPointer) -> Bool {
        while written < bytes.count {
            let count = send(
                descriptor, bytes.baseAddress! + written, bytes.count - written, Int32(MSG_NOSIGNAL))
            if count < 0 {
                if errno == EINTR { continue }
                if errno == EAGAIN || errno == EWOULDBLOCK { waitUntilWritable() } else { discardOutput() }
                return false
            }
            written += count
            byteCount -= count
        }
        written = 0
        return true
    }

    /// Ends all writing, and discards the queue. The reader still delivers received messages; the end of its input
    /// reports the end of the connection.
    private func discardOutput() {
        isBroken = true
        portions.removeAll()
        hasPortions = false
        last = Chunk()
        byteCount = 0
        stopWaiting()
    }

    // MARK: Full socket

    /// Registers for the event that the socket is writable.
    private func waitUntilWritable() {
        guard tag == nil else { return }
        tag = source.add(descriptor: descriptor, waitingFor: [.writable, .error, .hangUp])
    }

    private func stopWaiting() {
        guard let waiting = tag else { return }
        source.remove(waiting)
        tag = nil
    }

    /// Flushes batched messages before the loop waits, also if a handler runs a nested loop within its batch.
    func hasPendingWork() -> Bool {
        flush()
        return false
    }

    func dispatch() {
        write()
    }
}

/// A growing buffer of consecutive encoded messages that are written together.
private final class Chunk {
    private var memory = UnsafeMutableRawBufferPointer(start: nil, count: 0)
    /// The number of bytes in use.
    var count = 0

    deinit {
        memory.deallocate()
    }

    var bytes: UnsafeRawBufferPointer { UnsafeRawBufferPointer(rebasing: memory[..<count]) }

    /// Returns memory for at least `more` bytes behind the existing ones.
    func freeSpace(for more: Int) -> UnsafeMutableRawBufferPointer {
        if memory.count - count < more { grow(by: more) }
        return UnsafeMutableRawBufferPointer(rebasing: memory[count...])
    }

    private func grow(by more: Int) {
        let other = UnsafeMutableRawBufferPointer.allocate(
            byteCount: max(count + more, 2 * memory.count, Self.leastCapacity), alignment: 8)
        other.copyMemory(from: bytes)
        memory.deallocate()
        memory = other
    }

    /// Removes all bytes.
    ///
    /// - Parameter capacity: The maximum capacity, in bytes, that is kept; the memory of a larger buffer is released.
    func empty(keeping capacity: Int) {
        count = 0
        guard memory.count > capacity else { return }
        memory.deallocate()
        memory = UnsafeMutableRawBufferPointer(start: nil, count: 0)
    }

    /// The minimum size of the memory, in bytes.
    private static let leastCapacity = 4096
}
