// SPDX-License-Identifier: Apache-2.0
import CCarillonDBus
import CarillonCollections
import CarillonMainLoop

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// A writer of messages to the socket of a connection, in order and with as many messages per system call as available.
///
/// libdbus needs one system call per message, and a failing one on a full socket, so this writer replaces it. Messages
/// with descriptors are still written by libdbus, in order.
final class SocketWriter: PolledSourceDelegate {
    private enum Portion {
        case bytes(Chunk)
        /// The shared part of a message to many receivers.
        case shared([UInt8])
        /// A message for libdbus.
        case message(Message)
    }

    /// The approximate number of bytes per write.
    private static let portionSize = 64 << 10
    /// The maximum size of shared bytes that are copied for each receiver; larger ones are written in place. In
    /// measurements, copying 4 KiB with its message took 0.7 µs, and a system call for it 7 µs. 64 KiB took 11 µs both
    /// ways; 256 KiB took 36 µs copied and 31 µs in place. Above this size a full socket holds the bytes once, instead
    /// of once per receiver.
    static let maxCopied = 64 << 10

    private let connection: OpaquePointer  // DBusConnection; not retained: it outlives the writer
    private let descriptor: Int32
    private var portions = Deque<Portion>()
    /// Whether `portions` has elements.
    private var hasPortions = false
    /// The chunk behind the portions.
    private var last = Chunk()
    /// The number of bytes already written of the first portion, or of `last`.
    private var written = 0
    /// The number of unwritten bytes.
    private(set) var byteCount = 0
    private var hasStarted = false
    /// Whether the peer has stopped reading.
    private var isBroken = false
    /// Whether libdbus may have unwritten bytes.
    private var isLibraryWriting = false
    private var source: PolledSource!
    /// The registration in the poll, while the socket is full.
    private var tag: PolledSource.Tag?
    /// The send path of other threads to the same socket.
    private var line: DirectSender?

    /// - Parameters:
    ///   - connection: A connection to which libdbus writes nothing by itself.
    ///   - descriptor: The descriptor of its non-blocking socket.
    init(_ connection: OpaquePointer, descriptor: Int32, context: MainContext, priority: EventSource.Priority) {
        self.connection = connection
        self.descriptor = descriptor
        source = PolledSource(delegate: self, priority: priority, context: context)
    }

    /// Writes the bytes queued before, and from now on all others.
    func start() {
        hasStarted = true
        flush()
    }

    /// Stops writing, before the descriptor is closed.
    func stop() {
        line?.close()
        giveUp()
    }

    /// Allows sends from any thread to the same socket. A message with descriptors ends that.
    func share() -> DirectSender {
        if let line { return line }
        let line = DirectSender(descriptor: descriptor, isBusy: !hasStarted || hasRest)
        self.line = line
        return line
    }

    private var hasRest: Bool { byteCount > 0 || isLibraryWriting }

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

    /// Appends a message, encoded in place.
    func append(
        _ head: MessageHead, serial: UInt32, _ shared: [UInt8], size: Int, rest: (inout MarshalledBytes) -> Void
    ) {
        guard !isBroken else { return }
        guard shared.count > Self.maxCopied else {
            return append(atMost: head.bytes.count + shared.count + size) { message in
                head.lay(&message, serial: serial, shared, rest)
            }
        }
        let end = MarshalledBytes.make(atMost: size, behind: head.bytes.count + shared.count, rest)
        append(atMost: head.bytes.count) { $0.append(head, serial: serial, bodyLength: shared.count + end.count) }
        closeLast()
        portions.append(.shared(shared))
        byteCount += shared.count
        end.withUnsafeBytes { end in append(atMost: end.count) { $0.append(raw: end) } }
    }

    /// Appends the bytes from `body`.
    ///
    /// - Parameter most: The maximum number of bytes.
    private func append(atMost most: Int, _ body: (inout MarshalledBytes) -> Void) {
        if last.count >= Self.portionSize { closeLast() }
        let chunk = last
        let count = MarshalledBytes.lay(into: chunk.room(for: most), body)
        chunk.count += count
        byteCount += count
    }

    /// Appends a message that libdbus has to write.
    func append(_ message: Message) {
        guard !isBroken else { return }
        // libdbus does not know of writes by other threads.
        line?.close()
        if last.count > 0 { closeLast() }
        portions.append(.message(message))
        hasPortions = true
        byteCount += message.byteCount
    }

    private func closeLast() {
        portions.append(.bytes(last))
        hasPortions = true
        last = Chunk()
    }

    /// Writes the bytes that the socket accepts. The rest follows in later loop iterations.
    func flush() {
        guard hasStarted, tag == nil, hasPortions || last.count > 0 else { return }
        write()
    }

    private func write() {
        guard let line else { return writeAll() }
        line.write {
            writeAll()
            return hasRest
        }
    }

    private func writeAll() {
        while !isBroken {
            if isLibraryWriting {
                // It continues in later loop iterations.
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
                if errno == EAGAIN || errno == EWOULDBLOCK { waitForRoom() } else { giveUp() }
                return false
            }
            written += count
            byteCount -= count
        }
        written = 0
        return true
    }

    /// Gives up writing. Received messages are still read, and the end of the input reports the end of the connection.
    private func giveUp() {
        isBroken = true
        portions.removeAll()
        hasPortions = false
        last = Chunk()
        byteCount = 0
        stopWaiting()
    }

    // MARK: Full socket

    private func waitForRoom() {
        guard tag == nil else { return }
        tag = source.add(descriptor: descriptor, waitingFor: [.writable, .error, .hangUp])
    }

    private func stopWaiting() {
        guard let waiting = tag else { return }
        source.remove(waiting)
        tag = nil
    }

    /// Flushes batched messages before the loop waits, also in a handler that runs a nested loop.
    func hasPendingWork() -> Bool {
        flush()
        return false
    }

    func dispatch() {
        write()
    }
}

/// A buffer of consecutive messages that are written together.
private final class Chunk {
    private var memory = UnsafeMutableRawBufferPointer(start: nil, count: 0)
    var count = 0

    deinit {
        memory.deallocate()
    }

    var bytes: UnsafeRawBufferPointer { UnsafeRawBufferPointer(rebasing: memory[..<count]) }

    /// Returns memory for `more` bytes behind the existing ones.
    func room(for more: Int) -> UnsafeMutableRawBufferPointer {
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

    /// - Parameter capacity: The maximum capacity in bytes that is kept; a larger buffer is released.
    func empty(keeping capacity: Int) {
        count = 0
        guard memory.count > capacity else { return }
        memory.deallocate()
        memory = UnsafeMutableRawBufferPointer(start: nil, count: 0)
    }

    private static let leastCapacity = 4096
}
