// SPDX-License-Identifier: Apache-2.0
import CarillonDBus
import CarillonMainLoop

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// A channel's socket, served by a main context beside the socket of the bus.
public final class SocketLine: ChannelLine, PolledSourceDelegate {
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

    public func hasPendingWork() -> Bool { false }

    public func dispatch() {
        if let tag, !source.occurred(on: tag).isEmpty { onReady?() }
    }

    public func read(into room: UnsafeMutableRawBufferPointer) -> LineReading {
        while true {
            // The kernel closes descriptors that arrive with the bytes, because they are not received here.
            let count = recv(socket.rawValue, room.baseAddress!, room.count, Int32(MSG_DONTWAIT))
            if count > 0 { return .bytes(count) }
            guard count < 0 else { return .end }
            if errno == EINTR { continue }
            // If the other side has closed with unread input, the error arrives here after everything that it wrote.
            return errno == EAGAIN || errno == EWOULDBLOCK ? .nothing : .end
        }
    }

    public var writing: any ChannelWriting { SocketWriting(socket: socket) }
    public func endWriting() { _ = shutdown(socket.rawValue, Int32(SHUT_WR)) }
}

private struct SocketWriting: ChannelWriting {
    let socket: FileDescriptor

    func write(_ bytes: UnsafeRawBufferPointer) -> LineWriting {
        while true {
            let count = send(
                socket.rawValue, bytes.baseAddress!, bytes.count, Int32(MSG_NOSIGNAL) | Int32(MSG_DONTWAIT))
            if count >= 0 { return .bytes(count) }
            if errno == EINTR { continue }
            return errno == EAGAIN || errno == EWOULDBLOCK ? .bytes(0) : .broken
        }
    }
}
