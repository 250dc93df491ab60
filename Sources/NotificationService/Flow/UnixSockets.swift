// SPDX-License-Identifier: Apache-2.0
import CSystem

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// The unix sockets of a machine, as its kernel tells them.
///
/// Threads: any, one at a time.
protocol SocketTable: AnyObject, Sendable {
    /// A socket by its inode; nil when there is none, or it is of another family.
    subscript(inode: UInt32) -> UnixSocket? { get }

    /// Begins to look through the descriptors of a process; nil when they can't be seen.
    func descriptors(of processID: UInt32) -> (any DescriptorList)?

    /// The inode of an open descriptor of this process; nil when that is no socket.
    func inode(of descriptor: Int32) -> UInt32?

    /// How many system calls all of that took so far.
    var systemCalls: Int { get }
}

/// The descriptors of a process, some at a time.
///
/// Threads: any, one at a time.
protocol DescriptorList: AnyObject, Sendable {
    /// The inodes of the sockets among the next `count` descriptors; nil at the end.
    func nextSockets(among count: Int) -> [UInt32]?

    /// How many system calls that took so far.
    var systemCalls: Int { get }
}

struct UnixSocket {
    /// The socket at the other end; nil when there is none.
    var peer: UInt32?
    /// The name that it is bound to; a socket that was accepted has the name of the one that listened.
    var name: [UInt8]?
    /// Bytes that arrived and were not read.
    var unreadBytes: UInt32 = 0
}

/// Those of this machine, as `ss -x` shows them: sock_diag(7). No privileges are needed.
///
/// Unchecked: ``ReadingWitness`` asks one question at a time, and takes another table where a thread is stuck in this one.
final class UnixSockets: SocketTable, @unchecked Sendable {
    // Sendable: one thread at a time uses it, and the loop hands it over.
    private let descriptor: Int32
    private(set) var systemCalls = 0

    /// Nil where the kernel does not tell.
    init?() {
        let descriptor = socket(AF_NETLINK, Int32(SOCK_DGRAM.rawValue | SOCK_CLOEXEC.rawValue), NETLINK_SOCK_DIAG)
        guard descriptor >= 0 else { return nil }
        self.descriptor = descriptor
    }

    deinit { close(descriptor) }

    subscript(inode: UInt32) -> UnixSocket? {
        var request = Request()
        request.header.nlmsg_len = UInt32(MemoryLayout<Request>.size)
        request.header.nlmsg_type = UInt16(SOCK_DIAG_BY_FAMILY)
        request.header.nlmsg_flags = UInt16(NLM_F_REQUEST)
        request.socket.sdiag_family = UInt8(AF_UNIX)
        request.socket.udiag_states = .max
        request.socket.udiag_ino = inode
        request.socket.udiag_show = UInt32(UDIAG_SHOW_NAME | UDIAG_SHOW_PEER | UDIAG_SHOW_RQLEN)
        request.socket.udiag_cookie = (.max, .max)
        let size = MemoryLayout<Request>.size
        systemCalls += 2
        guard withUnsafeBytes(of: &request, { send(descriptor, $0.baseAddress!, size, 0) }) == size else { return nil }
        // The kernel answers while it takes the request.
        var answer = [UInt8](repeating: 0, count: 4096)
        let count = recv(descriptor, &answer, answer.count, Int32(MSG_DONTWAIT))
        guard count > 0 else { return nil }
        return answer[..<count].withUnsafeBytes { Self.parse($0, inode: inode) }
    }

    private struct Request {
        var header = nlmsghdr()
        var socket = unix_diag_req()
    }

    private static func parse(_ answer: UnsafeRawBufferPointer, inode: UInt32) -> UnixSocket? {
        let headerSize = MemoryLayout<nlmsghdr>.size
        guard answer.count >= headerSize + MemoryLayout<unix_diag_msg>.size else { return nil }
        let header = answer.loadUnaligned(as: nlmsghdr.self)
        let isWhole = Int(header.nlmsg_len) <= answer.count
        guard isWhole, header.nlmsg_type == UInt16(SOCK_DIAG_BY_FAMILY) else { return nil }
        let found = answer.loadUnaligned(fromByteOffset: headerSize, as: unix_diag_msg.self)
        guard found.udiag_ino == inode else { return nil }
        var socket = UnixSocket()
        var offset = headerSize + MemoryLayout<unix_diag_msg>.size
        // Attributes: length, type, bytes, each at a multiple of four.
        while offset + 4 <= Int(header.nlmsg_len) {
            let length = Int(answer.loadUnaligned(fromByteOffset: offset, as: UInt16.self))
            let type = Int32(answer.loadUnaligned(fromByteOffset: offset + 2, as: UInt16.self))
            guard length >= 4, offset + length <= Int(header.nlmsg_len) else { break }
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
        return socket
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

    /// Those in `/proc/PID/fd`. Unchecked, for the same reason as the table.
    private final class Descriptors: DescriptorList, @unchecked Sendable {
        // Sendable: as the table.
        private let path: String
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

        /// The inode of a link such as `socket:[4711]`.
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
