// SPDX-License-Identifier: Apache-2.0
import CCarillonDBus
import CarillonMainLoop

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// A reader of messages from the socket of a connection. It replaces the reader of libdbus after the authentication,
/// for throughput. ``SocketTransport`` uses it.
///
/// It reads up to 64 KiB per system call, and parses only headers (``EncodedMessage``). libdbus reads 4 KiB per system
/// call, and parses and validates each message at once.
///
/// File descriptors are closed on arrival, except those of replies if ``takesDescriptors`` is set.
///
/// Each loop iteration delivers at most ``messagesPerIteration`` messages, so that a flood starves no other source.
final class SocketReader: PolledSourceDelegate {
    /// The maximum number of messages per loop iteration. With one message per iteration each would cost a poll; an
    /// unlimited number would starve timers and other sources.
    static let messagesPerIteration = 32
    /// The maximum number of system calls for reading per loop iteration.
    private static let readsPerIteration = 8
    /// The size of the buffer, in bytes.
    private static let bufferSize = 64 << 10

    /// Called with each method call while its bytes are still in the buffer. Returns whether it took the call, which is
    /// then not delivered to ``onMessage``.
    var onArrivingCall: ((ArrivingCall) -> Bool)?
    /// Called with each message that ``onArrivingCall`` did not take.
    var onMessage: ((Message) -> Void)?
    /// Called before the messages of a loop iteration with false, and after them with true. ``SocketTransport`` batches
    /// the replies between the two.
    var onIteration: ((Bool) -> Void)?
    /// Called once when the peer has closed the socket, reading has failed, or the bytes are no message.
    var onEnd: (() -> Void)?
    /// The maximum total size of delivered messages that are still alive, in bytes; above it nothing is read. The
    /// default is that of libdbus.
    var maxReceivedBytes = 63 << 20
    /// Whether reading and delivery are paused.
    var isPaused = false
    /// Whether descriptors in replies are kept, and not closed on arrival. It is set before the first read.
    var takesDescriptors = false
    /// The received descriptors, in the order of their messages, which may still be incomplete.
    private var descriptors = ReceivedDescriptors()

    private let descriptor: Int32
    private var source: PolledSource!
    /// The registration in the poll; nil while reading is not allowed.
    private var tag: PolledSource.Tag?
    /// The size of the delivered messages that are still alive.
    private let received = ReceivedBytes()
    private var hasStarted = false
    /// Whether reading has ended for good.
    private var hasStopped = false
    /// The buffer, with undelivered bytes from `first` to `end`.
    private let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: bufferSize, alignment: 8)
    private var (first, end) = (0, 0)
    /// The length of the message at `first`, in bytes; nil while its header is incomplete.
    private var nextLength: Int?
    /// An incomplete message larger than the buffer, which is read directly into its final memory.
    private var large: LargeMessage?

    /// A message of known length in memory of that size.
    private final class LargeMessage {
        private(set) var bytes: [UInt8]
        /// The number of bytes received so far.
        private var count: Int

        /// - Parameters:
        ///   - size: The length of the whole message, in bytes.
        ///   - beginning: The bytes received so far.
        init(_ size: Int, beginning: UnsafeRawBufferPointer) {
            // The rest is uninitialized. The message is delivered only when all of it has been received.
            bytes = [UInt8](unsafeUninitializedCapacity: size) { bytes, count in
                UnsafeMutableRawBufferPointer(bytes).copyMemory(from: beginning)
                count = size
            }
            count = beginning.count
        }

        /// The number of bytes that are not received yet.
        var missing: Int { bytes.count - count }

        /// Receives more bytes, and returns their number.
        ///
        /// - Parameter read: Fills the buffer, and returns the number of received bytes; nil if none are available.
        func append(_ read: (UnsafeMutableRawBufferPointer) -> Int?) -> Int? {
            let read = bytes.withUnsafeMutableBytes { read(.init(rebasing: $0[count...])) }
            count += read ?? 0
            return read
        }
    }
    /// The number of invalid messages.
    private var ignored: UInt64 = 0

    /// - Parameter descriptor: The descriptor of a non-blocking socket, before the first read.
    init(descriptor: Int32, context: MainContext, priority: EventSource.Priority) {
        self.descriptor = descriptor
        source = PolledSource(delegate: self, priority: priority, context: context)
    }

    deinit {
        buffer.deallocate()
    }

    /// Allows reading, in the following loop iterations: the bus has authenticated this process.
    func start() {
        hasStarted = true
    }

    /// Stops reading, before the descriptor is closed.
    func stop() {
        hasStopped = true
        poll(false)
    }

    // MARK: Loop iterations

    private var mayRead: Bool { hasStarted && !hasStopped && !isPaused && received.value < maxReceivedBytes }
    /// Whether the next message is complete.
    private var hasMessage: Bool {
        if let large { return large.missing == 0 }
        return nextLength.map { end - first >= $0 } ?? false
    }

    func hasPendingWork() -> Bool {
        poll(mayRead)
        return mayRead && hasMessage
    }

    /// Adds the socket to the poll, or removes it.
    private func poll(_ isWanted: Bool) {
        guard isWanted != (tag != nil) else { return }
        if let tag { source.remove(tag) }
        tag = isWanted ? source.add(descriptor: descriptor, waitingFor: [.readable, .error, .hangUp]) : nil
    }

    func dispatch() {
        onIteration?(false)
        defer { onIteration?(true) }
        var (messages, reads) = (0, 0)
        var hasMore = tag.map { !source.occurred(on: $0).isEmpty } ?? false
        while mayRead {
            if hasMessage {
                guard messages < Self.messagesPerIteration else { return }
                messages += 1
                deliver()
            } else {
                guard hasMore, reads < Self.readsPerIteration else { return }
                reads += 1
                hasMore = read()
            }
        }
    }

    /// Delivers the next message, which is complete. It leaves the buffer before ``onMessage`` is called.
    private func deliver() {
        if let bytes = large?.bytes {
            (large, nextLength) = (nil, nil)
            let (header, isTaken) = bytes.withUnsafeBytes(offer)
            updateNextLength()
            if !isTaken { deliver(bytes, header) }
            return
        }
        let next = UnsafeRawBufferPointer(rebasing: buffer[first..<first + nextLength!])
        let (header, isTaken) = offer(next)
        let bytes = isTaken ? [] : [UInt8](next)
        first += next.count
        updateNextLength()
        if !isTaken { deliver(bytes, header) }
    }

    /// Parses the header of a message, and offers it to ``onArrivingCall`` in place if it is a call. Returns whether
    /// the callback took it.
    private func offer(_ next: UnsafeRawBufferPointer) -> (header: MessageHeader?, isTaken: Bool) {
        let header = MessageHeader(next)
        guard let onArrivingCall, let header, let call = ArrivingCall(next, header) else { return (header, false) }
        return (header, onArrivingCall(call))
    }

    /// Delivers a message to ``onMessage``.
    private func deliver(_ bytes: [UInt8], _ header: MessageHeader?) {
        let taken = takesDescriptors ? descriptors.take(of: bytes) : []
        guard let message = Message(arrived: bytes, header: header, charging: received, descriptors: taken) else {
            return logInvalid()
        }
        onMessage?(message)
    }

    /// Logs an invalid message, at a limited rate, and ignores it. Any sender on the bus may have caused it, so the
    /// connection, which serves all of them, continues.
    private func logInvalid() {
        guard let count = Log.throttle(&ignored) else { return }
        Log.warning("ignored an invalid message (\(count) so far)", ["CARILLON_REASON": "invalid-message"])
    }

    // MARK: Reading

    /// Reads once. Returns whether more bytes may be available now, because the read filled its memory.
    private func read() -> Bool {
        prepareMemory()
        let freeSpace = large?.missing ?? buffer.count - end
        let count = if let large { large.append(receive) } else { receive(into: .init(rebasing: buffer[end...])) }
        guard let count else { return false }
        guard count > 0 else {
            finish()
            return false
        }
        if large == nil {
            end += count
            if nextLength == nil { updateNextLength() }
        }
        return count == freeSpace
    }

    /// Returns the number of received bytes; 0 at the end or on a broken connection, nil if none are available now.
    private func receive(into freeSpace: UnsafeMutableRawBufferPointer) -> Int? {
        while true {
            let count =
                takesDescriptors
                ? descriptors.receive(from: descriptor, into: freeSpace.baseAddress!, count: freeSpace.count)
                : recv(descriptor, freeSpace.baseAddress!, freeSpace.count, Int32(MSG_DONTWAIT))
            guard count < 0 else { return count }
            if errno == EINTR { continue }
            return errno == EAGAIN || errno == EWOULDBLOCK ? nil : 0
        }
    }

    /// Prepares memory for the next read: moves the undelivered bytes to the beginning of the buffer. For a message
    /// larger than the buffer it moves them to memory of the message's size.
    private func prepareMemory() {
        guard large == nil else { return }
        let rest = UnsafeRawBufferPointer(rebasing: buffer[first..<end])
        if let nextLength, nextLength > buffer.count {
            large = LargeMessage(nextLength, beginning: rest)
            (first, end) = (0, 0)
            return
        }
        if first > 0, !rest.isEmpty { buffer.copyMemory(from: rest) }
        (first, end) = (0, rest.count)
    }

    /// Sets ``nextLength`` for the message at `first`. Bytes that are no message end the reading.
    private func updateNextLength() {
        do throws(MessageHeader.Malformed) {
            nextLength = try MessageHeader.byteCount(of: UnsafeRawBufferPointer(rebasing: buffer[first..<end]))
        } catch {
            finish()
        }
    }

    /// Ends the reading, and reports the end once.
    private func finish() {
        guard !hasStopped else { return }
        stop()
        onEnd?()
    }
}
