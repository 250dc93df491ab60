// SPDX-License-Identifier: Apache-2.0
import CCarillonSystem

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// The Unix sockets of a machine, as its kernel shows them. ``SocketBacklogProbe`` uses the table to find out whether
/// clients have unread messages; tests replace it by a simulation. A socket is identified by its inode number.
///
/// Threads: any, one at a time.
protocol SocketTable: AnyObject, Sendable {
    /// Returns a socket by its inode number; nil when there is none, or it is not of the Unix family.
    subscript(inode: UInt32) -> UnixSocket? { get }

    /// Begins a listing of all sockets; nil where that is not possible.
    func all() -> (any SocketList)?

    /// Begins a listing of the descriptors of a process; nil when they are not visible to this process.
    func descriptors(of processID: UInt32) -> (any DescriptorList)?

    /// Returns the inode number of a socket of this process by its descriptor; nil when the descriptor is not open.
    func inode(of descriptor: Int32) -> UInt32?

    /// The number of system calls so far, without those of listings after their beginning.
    var systemCalls: Int { get }

    /// The processor time that the calling thread has used so far.
    var processorTime: Duration { get }
}

/// A listing of a machine's sockets, some at a time. It may miss a socket, if another one is opened or closed
/// meanwhile.
///
/// Threads: any, one at a time.
protocol SocketList: AnyObject, Sendable {
    /// Returns the next sockets; nil at the end.
    func next() -> [(inode: UInt32, socket: UnixSocket)]?

    /// The number of system calls so far.
    var systemCalls: Int { get }
}

/// A listing of a process's descriptors, some at a time.
///
/// Threads: any, one at a time.
protocol DescriptorList: AnyObject, Sendable {
    /// Returns the inode numbers of the sockets among the next `count` descriptors; nil at the end.
    func nextSockets(among count: Int) -> [UInt32]?

    /// The number of system calls so far.
    var systemCalls: Int { get }
}

/// The state of one Unix socket.
struct UnixSocket {
    /// The inode number of the socket at the other end; nil when the socket is not connected.
    var peer: UInt32?
    /// The address that the socket is bound to: a path, or an abstract name. An accepted socket has the address of the
    /// listening one.
    var name: [UInt8]?
    /// The bytes that have arrived and not been read.
    var unreadBytes: UInt32 = 0
}

/// The Unix sockets of this machine, as `ss -x` shows them: from the kernel's socket monitoring interface,
/// sock_diag(7). No privileges are needed.
///
/// Unchecked: ``SocketBacklogProbe`` asks one question at a time, and makes another table when a thread is stuck in
/// this one.
final class UnixSockets: SocketTable, @unchecked Sendable {
    // Sendable: one thread at a time uses it, and the loop hands it over.
    /// The netlink socket for single lookups. Each listing has its own.
    private let kernel: NetlinkSocket

    /// Opens a netlink socket. Returns nil where that is not possible.
    init?() {
        guard let kernel = NetlinkSocket() else { return nil }
        self.kernel = kernel
    }

    private(set) var systemCalls = 0

    var processorTime: Duration {
        var time = timespec()
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time)
        return .seconds(Int(time.tv_sec)) + .nanoseconds(Int(time.tv_nsec))
    }

    subscript(inode: UInt32) -> UnixSocket? {
        systemCalls += 2
        guard kernel.ask(about: inode) else { return nil }
        // The kernel has written the answer before `send` returned, so this read does not block.
        var found: UnixSocket?
        _ = kernel.read(upTo: 4096) { if $0 == inode { found = $1 } }
        return found
    }

    func all() -> (any SocketList)? {
        systemCalls += 2
        return NetlinkSocket().flatMap { $0.ask(about: nil) ? List($0) : nil }
    }

    /// A listing of the machine's sockets: the answers to one dump request.
    private final class List: SocketList, @unchecked Sendable {
        // Sendable: for the same reason as the table.
        private let kernel: NetlinkSocket
        private var isAtEnd = false
        private(set) var systemCalls = 0

        init(_ kernel: NetlinkSocket) { self.kernel = kernel }

        func next() -> [(inode: UInt32, socket: UnixSocket)]? {
            guard !isAtEnd else { return nil }
            systemCalls += 1
            var sockets: [(inode: UInt32, socket: UnixSocket)] = []
            // The kernel fills at most 32 KiB with one answer to a listing.
            isAtEnd = !kernel.read(upTo: 32 << 10) { sockets.append(($0, $1)) }
            return isAtEnd && sockets.isEmpty ? nil : sockets
        }
    }

    func descriptors(of processID: UInt32) -> (any DescriptorList)? {
        systemCalls += 1
        return Descriptors(of: processID)
    }

    func inode(of descriptor: Int32) -> UInt32? {
        var status = stat()
        systemCalls += 1
        return fstat(descriptor, &status) == 0 ? UInt32(truncatingIfNeeded: status.st_ino) : nil
    }
    /// The descriptors in `/proc/PID/fd`. Unchecked, for the same reason as the table.
    private final class Descriptors: DescriptorList, @unchecked Sendable {
        // Sendable: for the same reason as the table.
        private let path: String
        /// The open directory stream.
        private let directory: OpaquePointer
        private(set) var systemCalls = 0

        init?(of processID: UInt32) {
            path = "/proc/\(processID)/fd"
            guard let directory = opendir(path) else { return nil }
            self.directory = directory
        }

        deinit { closedir(directory) }

        func nextSockets(among count: Int) -> [UInt32]? {
            var inodes: [UInt32] = []
            for number in 0..<count {
                guard let entry = readdir(directory) else { return number == 0 ? nil : inodes }
                let name = withUnsafeBytes(of: &entry.pointee.d_name) { bytes in
                    String(decoding: bytes.prefix { $0 != 0 }, as: UTF8.self)
                }
                systemCalls += 1
                if let inode = Self.inode(behind: "\(path)/\(name)") { inodes.append(inode) }
            }
            return inodes
        }

        /// Returns the inode number in the target of a link, such as `socket:[4711]`; nil for other descriptors.
        private static func inode(behind link: String) -> UInt32? {
            var target = [UInt8](repeating: 0, count: 64)
            let count = target.withUnsafeMutableBytes {
                readlink(link, $0.baseAddress!.assumingMemoryBound(to: CChar.self), $0.count)
            }
            guard count > 0 else { return nil }
            let text = String(decoding: target[..<count], as: UTF8.self)
            guard text.hasPrefix("socket:["), text.hasSuffix("]") else { return nil }
            return UInt32(text.dropFirst(8).dropLast())
        }
    }
}

/// A netlink socket for requests of sock_diag(7).
private final class NetlinkSocket {
    private let descriptor: Int32

    init?() {
        let descriptor = socket(AF_NETLINK, Int32(SOCK_DGRAM.rawValue | SOCK_CLOEXEC.rawValue), NETLINK_SOCK_DIAG)
        guard descriptor >= 0 else { return nil }
        self.descriptor = descriptor
    }

    deinit { close(descriptor) }

    /// The bytes of a request.
    private struct Request {
        var header = nlmsghdr()
        var socket = unix_diag_req()
    }

    /// Sends the request for one socket, or for all if `inode` is nil. Returns false where that is not possible.
    func ask(about inode: UInt32?) -> Bool {
        var request = Request()
        request.header.nlmsg_len = UInt32(MemoryLayout<Request>.size)
        request.header.nlmsg_type = UInt16(SOCK_DIAG_BY_FAMILY)
        request.header.nlmsg_flags = UInt16(inode == nil ? NLM_F_REQUEST | NLM_F_DUMP : NLM_F_REQUEST)
        request.socket.sdiag_family = UInt8(AF_UNIX)
        request.socket.udiag_states = .max
        request.socket.udiag_ino = inode ?? 0
        request.socket.udiag_show = UInt32(UDIAG_SHOW_NAME | UDIAG_SHOW_PEER | UDIAG_SHOW_RQLEN)
        // Any cookie: the inode number alone identifies the socket.
        request.socket.udiag_cookie = (.max, .max)
        let size = MemoryLayout<Request>.size
        return withUnsafeBytes(of: &request) { send(descriptor, $0.baseAddress!, size, 0) } == size
    }

    /// Reads one datagram of the answer, of `size` bytes at most, and calls `body` with the inode number and state of
    /// each socket in it. Returns false at the end of the answer: no datagram is there, or it ends the dump or reports
    /// an error.
    func read(upTo size: Int, _ body: (UInt32, UnixSocket) -> Void) -> Bool {
        withUnsafeTemporaryAllocation(byteCount: size, alignment: 8) { buffer in
            let count = recv(descriptor, buffer.baseAddress!, size, Int32(MSG_DONTWAIT))
            guard count > 0 else { return false }
            var rest = UnsafeRawBufferPointer(rebasing: buffer[..<count])
            while rest.count >= MemoryLayout<nlmsghdr>.size {
                let header = rest.loadUnaligned(as: nlmsghdr.self)
                let length = Int(header.nlmsg_len)
                guard header.nlmsg_type == UInt16(SOCK_DIAG_BY_FAMILY),
                    MemoryLayout<nlmsghdr>.size + MemoryLayout<unix_diag_msg>.size...rest.count ~= length
                else { return false }
                let (inode, socket) = Self.parse(UnsafeRawBufferPointer(rebasing: rest[..<length]))
                body(inode, socket)
                rest = UnsafeRawBufferPointer(rebasing: rest.dropFirst((length + 3) & ~3))
            }
            return true
        }
    }

    /// Parses one netlink message.
    private static func parse(_ answer: UnsafeRawBufferPointer) -> (UInt32, UnixSocket) {
        let headerSize = MemoryLayout<nlmsghdr>.size
        let found = answer.loadUnaligned(fromByteOffset: headerSize, as: unix_diag_msg.self)
        var socket = UnixSocket()
        var offset = headerSize + MemoryLayout<unix_diag_msg>.size
        // Attributes: length, type, bytes, each at a multiple of four.
        while offset + 4 <= answer.count {
            let length = Int(answer.loadUnaligned(fromByteOffset: offset, as: UInt16.self))
            let type = Int32(answer.loadUnaligned(fromByteOffset: offset + 2, as: UInt16.self))
            guard length >= 4, offset + length <= answer.count else { break }
            let bytes = UnsafeRawBufferPointer(rebasing: answer[(offset + 4)..<(offset + length)])
            switch type {
            case Int32(UNIX_DIAG_NAME): socket.name = Array(bytes)
            case Int32(UNIX_DIAG_PEER) where bytes.count >= 4:
                socket.peer = bytes.loadUnaligned(as: UInt32.self)
            case Int32(UNIX_DIAG_RQLEN) where bytes.count >= 4:
                socket.unreadBytes = bytes.loadUnaligned(as: UInt32.self)
            default: break
            }
            offset += (length + 3) & ~3
        }
        return (found.udiag_ino, socket)
    }
}
