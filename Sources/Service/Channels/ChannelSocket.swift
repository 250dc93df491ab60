// SPDX-License-Identifier: Apache-2.0
import CarillonDBus
import CarillonMainLoop

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// The service's end of the socket of a channel. Nothing here waits.
final class ChannelSocket: ChannelStream {
    private let descriptor: Int32
    private let owner: FileDescriptor
    /// Whether nothing that is written arrives any more.
    private(set) var isBroken = false
    private var hasMetReset = false

    init(_ owner: FileDescriptor) {
        self.owner = owner
        descriptor = owner.rawValue
    }

    var polled: Int32? { descriptor }
    var ready: PolledSource.Conditions { [] }

    /// Descriptors that the service keeps for itself.
    private static let reserve = 64

    /// Nil when the process has no descriptors left for it.
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

    /// Reads what is there.
    ///
    /// - Returns: how many bytes; 0 when nothing more will come; less when there is nothing now.
    func receive(into room: UnsafeMutableRawBufferPointer) -> Int {
        while true {
            let count = recv(descriptor, room.baseAddress!, room.count, Int32(MSG_DONTWAIT))
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

    /// Writes what there is room for.
    ///
    /// - Returns: how many bytes.
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

    private func noteError() {
        isBroken = true
        if errno == ECONNRESET { hasMetReset = true }
    }

    /// Whether the other end was closed with something unread in it, also where no call has met that yet.
    var wasReset: Bool {
        if hasMetReset { return true }
        var (error, size) = (Int32(0), socklen_t(MemoryLayout<Int32>.size))
        if getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &error, &size) == 0, error == ECONNRESET {
            (hasMetReset, isBroken) = (true, true)
        }
        return hasMetReset
    }

    /// Whether something that was written lies unread in the other end.
    var isAnythingUnread: Bool {
        var bytes: Int32 = 0
        return ioctl(descriptor, UInt(TIOCOUTQ), &bytes) == 0 && bytes > 0
    }

    /// From now on the other end can't write. What it has written can still be read, up to its end.
    func stopReceiving() {
        shutdown(descriptor, Int32(SHUT_RD))
    }

    /// The same in both directions.
    func end() {
        shutdown(descriptor, Int32(SHUT_RDWR))
    }
}

private func sendWithoutSignal(_ descriptor: Int32, _ bytes: UnsafeRawPointer, _ count: Int) -> Int {
    send(descriptor, bytes, count, Int32(MSG_NOSIGNAL) | Int32(MSG_DONTWAIT))
}
