// SPDX-License-Identifier: Apache-2.0
import CCarillonDBus
import CarillonCollections
import CarillonMainLoop

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
        case bytes(Chunk)
        /// Of a message to many, the part that they have in common.
        case shared([UInt8])
        /// For libdbus.
        case message(Message)
    }

    /// So much is written at once, about.
    private static let portionSize = 64 << 10
    /// What messages to many have in common is copied for each of them up to this size, and written from where it lies
    /// when it is larger. Measured, copying 4 KiB with its message took 0.7 µs and a system call for it 7; 64 KiB took 11
    /// both ways, 256 KiB 36 and 31. From there on a socket that is full keeps it once, and not for each.
    static let maxCopied = 64 << 10

    private let connection: OpaquePointer  // DBusConnection; not retained: it outlives the writer
    private let descriptor: Int32
    private var portions = Deque<Portion>()
    /// Whether there are any.
    private var hasPortions = false
    /// What comes behind them.
    private var last = Chunk()
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
    /// Through which others write to the same socket.
    private var line: DirectLine?

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
    func stop() {
        line?.close()
        giveUp()
    }

    /// Lets others write to the same socket, from any thread. What has descriptors with it ends that.
    func share() -> DirectLine {
        if let line { return line }
        let line = DirectLine(descriptor: descriptor, isBusy: !hasStarted || hasRest)
        self.line = line
        return line
    }

    private var hasRest: Bool { byteCount > 0 || isLibraryWriting }

    /// With what libdbus has to write, which is asked only then: it locks for that.
    var outgoingBytes: Int { byteCount + (isLibraryWriting ? Int(dbus_connection_get_outgoing_size(connection)) : 0) }

    /// Whether a portion is full, so that it is time for ``flush()``.
    var isFull: Bool { hasPortions || last.count >= Self.portionSize }

    /// Puts the bytes of a message at the end.
    ///
    /// - Parameter serial: takes the place of the one in them; nil to leave that.
    func append(_ bytes: UnsafeRawBufferPointer, serial: UInt32? = nil) {
        guard !isBroken else { return }
        append(atMost: bytes.count) { message in
            message.append(raw: bytes)
            if let serial { message.set(serial, at: MarshalledMessage.serialOffset) }
        }
    }

    /// Puts a message at the end that is laid out there.
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

    /// Puts what `body` appends at the end.
    ///
    /// - Parameter most: as many bytes as that may be.
    private func append(atMost most: Int, _ body: (inout MarshalledBytes) -> Void) {
        if last.count >= Self.portionSize { closeLast() }
        let chunk = last
        let count = MarshalledBytes.lay(into: chunk.room(for: most), body)
        chunk.count += count
        byteCount += count
    }

    /// Puts a message at the end that libdbus has to write.
    func append(_ message: Message) {
        guard !isBroken else { return }
        // libdbus knows of no others.
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

    /// Writes what the socket takes. The rest follows as the loop turns.
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
                // It goes on as the loop turns.
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

    /// Returns whether all of it was written.
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

    /// What was sent to us before is still to be read, and its end tells that the connection has ended.
    private func giveUp() {
        isBroken = true
        portions.removeAll()
        hasPortions = false
        last = Chunk()
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

/// Messages one behind the other, to be written together.
private final class Chunk {
    private var memory = UnsafeMutableRawBufferPointer(start: nil, count: 0)
    var count = 0

    deinit {
        memory.deallocate()
    }

    var bytes: UnsafeRawBufferPointer { UnsafeRawBufferPointer(rebasing: memory[..<count]) }

    /// Where so many more fit, behind what is there.
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

    /// - Parameter capacity: more memory than that is given back.
    func empty(keeping capacity: Int) {
        count = 0
        guard memory.count > capacity else { return }
        memory.deallocate()
        memory = UnsafeMutableRawBufferPointer(start: nil, count: 0)
    }

    private static let leastCapacity = 4096
}
