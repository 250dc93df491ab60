// SPDX-License-Identifier: Apache-2.0
import CarillonDBus
import CarillonMainLoop

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// The service's end of a channel's socket pair, a connected Unix stream socket (socketpair(2)). Nothing here blocks.
final class ChannelSocket: ChannelStream {
    private let descriptor: Int32
    /// Closes the descriptor when it is released.
    private let owner: FileDescriptor
    /// Whether a call has found that the other end is closed, so that written bytes reach nobody any more.
    private(set) var isBroken = false
    /// Whether a call has reported that the other end was closed with unread bytes (`ECONNRESET`).
    private var hasMetReset = false

    init(_ owner: FileDescriptor) {
        self.owner = owner
        descriptor = owner.rawValue
    }

    var polled: Int32? { descriptor }
    var ready: PolledSource.Conditions { [] }

    /// The number of descriptors below the process's limit that channels leave free, for connections and files. A new
    /// descriptor gets the lowest free number, so its number shows how many are in use.
    private static let reserve = 64

    /// Makes a connected pair: the service's end, and the end for the client. Returns nil when the process has only
    /// ``reserve`` descriptors left.
    static func makePair() -> (own: any ChannelStream, other: FileDescriptor)? {
        var ends: [Int32] = [-1, -1]
        let type = Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue) | Int32(SOCK_NONBLOCK.rawValue)
        guard socketpair(AF_UNIX, type, 0, &ends) == 0 else { return nil }
        let pair: (own: any ChannelStream, other: FileDescriptor) = (
            ChannelSocket(FileDescriptor(adopting: ends[0])), FileDescriptor(adopting: ends[1])
        )
        var limit = rlimit()
        guard getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0 else { return pair }
        return UInt64(max(ends[0], ends[1])) + UInt64(reserve) < UInt64(limit.rlim_cur) ? pair : nil
    }

    /// Reads the bytes that have arrived.
    ///
    /// - Returns: the number of bytes; 0 when no more will arrive; negative when there are none now.
    func receive(into buffer: UnsafeMutableRawBufferPointer) -> Int {
        while true {
            let count = recv(descriptor, buffer.baseAddress!, buffer.count, Int32(MSG_DONTWAIT))
            if count >= 0 { return count }
            switch errno {
            case EINTR: continue
            case EAGAIN, EWOULDBLOCK: return -1
            default:
                noteError()
                return 0
            }
        }
    }

    /// Writes as many bytes as the socket takes.
    ///
    /// - Returns: the number of bytes.
    func send(_ bytes: UnsafeRawBufferPointer) -> Int {
        var written = 0
        while written < bytes.count, !isBroken {
            let count = sendWithoutSignal(descriptor, bytes.baseAddress! + written, bytes.count - written)
            if count >= 0 {
                written += count
            } else if errno != EINTR {
                if errno == EAGAIN || errno == EWOULDBLOCK { break }
                noteError()
            }
        }
        return written
    }

    /// Takes the error of a read or a write from `errno`.
    private func noteError() {
        isBroken = true
        if errno == ECONNRESET { hasMetReset = true }
    }

    /// Whether the other end was closed with unread bytes. It is found even if no read or write has reported it before.
    var wasReset: Bool {
        if hasMetReset { return true }
        var (error, size) = (Int32(0), socklen_t(MemoryLayout<Int32>.size))
        if getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &error, &size) == 0, error == ECONNRESET {
            (hasMetReset, isBroken) = (true, true)
        }
        return hasMetReset
    }

    /// Whether the other end has unread bytes.
    var isAnythingUnread: Bool {
        var bytes: Int32 = 0
        return ioctl(descriptor, UInt(TIOCOUTQ), &bytes) == 0 && bytes > 0
    }

    /// Prevents the other end from writing. The bytes that it has written can still be read, up to the end.
    func stopReceiving() {
        shutdown(descriptor, Int32(SHUT_RD))
    }

    /// Ends the stream in both directions.
    func end() {
        shutdown(descriptor, Int32(SHUT_RDWR))
    }
}

/// Writes as much as possible without blocking, and without SIGPIPE when the other end is closed. It is outside
/// the class, because `send` inside the class is its method.
private func sendWithoutSignal(_ descriptor: Int32, _ bytes: UnsafeRawPointer, _ count: Int) -> Int {
    send(descriptor, bytes, count, Int32(MSG_NOSIGNAL) | Int32(MSG_DONTWAIT))
}
