// SPDX-License-Identifier: Apache-2.0
import CCarillonDBus
import CarillonMainLoop

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// Reads messages from the socket of a connection, as many with one call as there are.
///
/// libdbus reads 4 KiB with a system call, and takes apart and checks each message at once. Here only headers are looked at
/// before somebody wants more (``ArrivedMessage``), so reading keeps up with whatever a bus can carry. Descriptors that
/// come along are closed by the kernel, unless somebody takes those of answers (``takesDescriptors``).
///
/// Each turn of the loop hands on at most ``messagesPerTurn`` messages, so that a flood starves no other source.
final class SocketReader: PolledSourceDelegate {
    /// One message a turn would cost a poll per message; a whole flood a turn would starve timers and signals.
    static let messagesPerTurn = 32
    private static let readsPerTurn = 8
    private static let bufferSize = 64 << 10

    /// See ``Connection/onArrivingCall``.
    var onArrivingCall: ((ArrivingCall) -> Bool)?
    /// Gets every other message.
    var onMessage: ((Message) -> Void)?
    /// Called when a turn begins, with false, and when it has ended, with true.
    var onTurn: ((Bool) -> Void)?
    /// Called when nothing more will come, after the last message.
    var onEnd: (() -> Void)?
    /// See ``Connection/maxReceivedBytes``.
    var maxReceivedBytes = 63 << 20
    /// See ``Connection/isPaused``.
    var isPaused = false
    /// See ``Connection/takeDescriptors()``. Set before anything is read.
    var takesDescriptors = false
    /// Those that came, in the order of the messages that they belong to, which may not have come yet.
    private var descriptors = ReceivedDescriptors()

    private let descriptor: Int32
    private var source: PolledSource!
    /// While something may be read.
    private var tag: PolledSource.Tag?
    private let received = ReceivedBytes()
    private var hasStarted = false
    private var isOver = false
    /// What was read and not handed on is from `first` to `end`.
    private let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: bufferSize, alignment: 8)
    private var (first, end) = (0, 0)
    /// Of the message that begins at `first`; nil when that is not known yet.
    private var nextLength: Int?
    /// A message that is larger than the buffer, of which so much was read: it is read to where it stays.
    private var large: LargeMessage?

    private final class LargeMessage {
        private(set) var bytes: [UInt8]
        private var count: Int

        /// - Parameter beginning: what was read of it.
        init(_ size: Int, beginning: UnsafeRawBufferPointer) {
            // All of it is read before anybody looks at it.
            bytes = [UInt8](unsafeUninitializedCapacity: size) { bytes, count in
                UnsafeMutableRawBufferPointer(bytes).copyMemory(from: beginning)
                count = size
            }
            count = beginning.count
        }

        var missing: Int { bytes.count - count }

        /// - Parameter read: puts some there, and returns how many came.
        func append(_ read: (UnsafeMutableRawBufferPointer) -> Int?) -> Int? {
            let read = bytes.withUnsafeMutableBytes { read(.init(rebasing: $0[count...])) }
            count += read ?? 0
            return read
        }
    }
    private var ignored: UInt64 = 0

    /// - Parameter descriptor: of a socket that does not block, and from which nothing was read yet.
    init(descriptor: Int32, context: MainContext, priority: EventSource.Priority) {
        self.descriptor = descriptor
        source = PolledSource(delegate: self, priority: priority, context: context)
    }

    deinit {
        buffer.deallocate()
    }

    /// Begins to read, as the loop turns.
    func start() {
        hasStarted = true
    }

    /// Reads nothing more: the descriptor is about to be closed.
    func stop() {
        isOver = true
        poll(false)
    }

    // MARK: Turns

    private var mayRead: Bool { hasStarted && !isOver && !isPaused && received.value < maxReceivedBytes }
    private var hasMessage: Bool {
        if let large { return large.missing == 0 }
        return nextLength.map { end - first >= $0 } ?? false
    }

    func hasPendingWork() -> Bool {
        poll(mayRead)
        return mayRead && hasMessage
    }

    private func poll(_ isWanted: Bool) {
        guard isWanted != (tag != nil) else { return }
        if let tag { source.remove(tag) }
        tag = isWanted ? source.add(descriptor: descriptor, waitingFor: [.readable, .error, .hangUp]) : nil
    }

    func dispatch() {
        onTurn?(false)
        defer { onTurn?(true) }
        var (messages, reads) = (0, 0)
        var hasMore = tag.map { !source.occurred(on: $0).isEmpty } ?? false
        while mayRead {
            if hasMessage {
                guard messages < Self.messagesPerTurn else { return }
                messages += 1
                handOn()
            } else {
                guard hasMore, reads < Self.readsPerTurn else { return }
                reads += 1
                hasMore = read()
            }
        }
    }

    private func handOn() {
        if let bytes = large?.bytes {
            (large, nextLength) = (nil, nil)
            let (header, isTaken) = bytes.withUnsafeBytes(show)
            lookAtNext()
            if !isTaken { handOn(bytes, header) }
            return
        }
        let next = UnsafeRawBufferPointer(rebasing: buffer[first..<first + nextLength!])
        let (header, isTaken) = show(next)
        let bytes = isTaken ? [] : [UInt8](next)
        first += next.count
        lookAtNext()
        if !isTaken { handOn(bytes, header) }
    }

    /// Shows a message where it lies. Returns whether it was taken so.
    private func show(_ next: UnsafeRawBufferPointer) -> (header: MessageHeader?, isTaken: Bool) {
        let header = MessageHeader(next)
        guard let onArrivingCall, let header, let call = ArrivingCall(next, header) else { return (header, false) }
        return (header, onArrivingCall(call))
    }

    private func handOn(_ bytes: [UInt8], _ header: MessageHeader?) {
        let taken = takesDescriptors ? descriptors.take(of: bytes) : []
        guard let message = Message(arrived: bytes, header: header, charging: received, descriptors: taken) else {
            return noteIgnored()
        }
        onMessage?(message)
    }

    /// It comes through a bus: whoever sent it can't be told, and ending the connection for it would punish all others.
    private func noteIgnored() {
        guard let count = Log.throttle(&ignored) else { return }
        Log.warning("ignored a message that is none (\(count) so far)", ["CARILLON_REASON": "invalid-message"])
    }

    // MARK: Reading

    /// Returns whether there may be more at once.
    private func read() -> Bool {
        makeRoom()
        let room = large?.missing ?? buffer.count - end
        let count = if let large { large.append(receive) } else { receive(into: .init(rebasing: buffer[end...])) }
        guard let count else { return false }
        guard count > 0 else {
            finish()
            return false
        }
        if large == nil {
            end += count
            if nextLength == nil { lookAtNext() }
        }
        return count == room
    }

    /// Returns how many bytes came; 0 at the end, or when the connection is broken, nil when there are none now.
    private func receive(into room: UnsafeMutableRawBufferPointer) -> Int? {
        while true {
            let count =
                takesDescriptors
                ? descriptors.receive(from: descriptor, into: room.baseAddress!, count: room.count)
                : recv(descriptor, room.baseAddress!, room.count, Int32(MSG_DONTWAIT))
            guard count < 0 else { return count }
            if errno == EINTR { continue }
            return errno == EAGAIN || errno == EWOULDBLOCK ? nil : 0
        }
    }

    /// Moves what there is of the next message to the beginning of where all of it has room.
    private func makeRoom() {
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

    private func lookAtNext() {
        do throws(MessageHeader.Malformed) {
            nextLength = try MessageHeader.byteCount(of: UnsafeRawBufferPointer(rebasing: buffer[first..<end]))
        } catch {
            finish()
        }
    }

    private func finish() {
        guard !isOver else { return }
        stop()
        onEnd?()
    }
}
