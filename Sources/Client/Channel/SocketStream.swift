// SPDX-License-Identifier: Apache-2.0
import CarillonDBus
import CarillonMainLoop

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// The byte stream of a channel over a Unix socket, which a main context polls together with the socket of the bus.
public final class SocketStream: ClientStream, PolledSourceDelegate {
    public var onReady: (() -> Void)?
    public var isReading = false { didSet { if isReading != oldValue { poll() } } }
    public var isWaitingForSpace = false { didSet { if isWaitingForSpace != oldValue { poll() } } }
    private let socket: FileDescriptor
    private var source: PolledSource!
    private var tag: PolledSource.Tag?

    /// - Parameter socket: a stream socket, blocking or not.
    public init(_ socket: FileDescriptor, context: MainContext) {
        self.socket = socket
        source = PolledSource(delegate: self, priority: .default, context: context)
    }

    deinit {
        if let tag { source.remove(tag) }
    }

    /// Updates the polled conditions. A socket without an awaited condition leaves the poll set, because the poll would
    /// otherwise report its end again and again.
    private func poll() {
        if let tag { source.remove(tag) }
        tag = nil
        guard isReading || isWaitingForSpace else { return }
        var conditions: PolledSource.Conditions = [.error, .hangUp]
        if isReading { conditions.insert(.readable) }
        if isWaitingForSpace { conditions.insert(.writable) }
        tag = source.add(descriptor: socket.rawValue, waitingFor: conditions)
    }

    /// No input is buffered here, so only the polled socket makes this source ready.
    public func hasPendingWork() -> Bool { false }

    public func dispatch() {
        if let tag, !source.occurred(on: tag).isEmpty { onReady?() }
    }

    public func read(into buffer: UnsafeMutableRawBufferPointer) -> StreamReadResult {
        while true {
            // Descriptors that a peer attaches to the bytes are closed by the kernel, because `recv` does not accept
            // them.
            let count = recv(socket.rawValue, buffer.baseAddress!, buffer.count, Int32(MSG_DONTWAIT))
            if count > 0 { return .bytes(count) }
            guard count < 0 else { return .end }
            if errno == EINTR { continue }
            // Another error means the end: the other side has closed with unread input. The kernel reports it after all
            // bytes that the other side wrote.
            return errno == EAGAIN || errno == EWOULDBLOCK ? .nothing : .end
        }
    }

    public var writing: any ChannelWriting { SocketWriting(socket: socket) }
    public func endWriting() { _ = shutdown(socket.rawValue, Int32(SHUT_WR)) }
}

/// The writing end of the socket. It reports a full send buffer as zero written bytes.
private struct SocketWriting: ChannelWriting {
    let socket: FileDescriptor

    func write(_ bytes: UnsafeRawBufferPointer) -> StreamWriteResult {
        while true {
            let count = send(
                socket.rawValue, bytes.baseAddress!, bytes.count, Int32(MSG_NOSIGNAL) | Int32(MSG_DONTWAIT))
            if count >= 0 { return .bytes(count) }
            if errno == EINTR { continue }
            return errno == EAGAIN || errno == EWOULDBLOCK ? .bytes(0) : .broken
        }
    }
}
