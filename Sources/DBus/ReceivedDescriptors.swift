// SPDX-License-Identifier: Apache-2.0
import CCarillonDBus
import CarillonCollections

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// A queue of file descriptors that were received over a socket and not yet assigned to a message. ``SocketReader``
/// uses it if the connection accepts descriptors.
///
/// The kernel delivers descriptors at the latest with the first bytes of their message. They are therefore assigned to
/// messages in order, as many to each as its header states.
struct ReceivedDescriptors {
    /// The maximum number of descriptors that Linux delivers with one system call (SCM_MAX_FD).
    private static let maxAtOnce = 253
    /// The maximum number of unassigned descriptors. A bus allows no message more, so further ones belong to no message
    /// and are closed.
    private static let maxWaiting = 1024
    /// The aligned size of the header of a control message, in bytes.
    private static let headerSize = (MemoryLayout<cmsghdr>.size + 7) & ~7

    private var waiting = Deque<FileDescriptor>()

    /// Reads as recv(2) does, without blocking, and adds the received descriptors to the queue.
    mutating func receive(from socket: Int32, into memory: UnsafeMutableRawPointer, count: Int) -> Int {
        // The kernel pads the control message at its end, for which there are 8 more bytes below.
        let controlSize = Self.headerSize + Self.maxAtOnce * MemoryLayout<Int32>.size
        return withUnsafeTemporaryAllocation(byteCount: controlSize + 8, alignment: 8) { control in
            var vector = iovec(iov_base: memory, iov_len: numericCast(count))
            var message = msghdr()
            message.msg_control = control.baseAddress
            message.msg_controllen = numericCast(control.count)
            let count = withUnsafeMutablePointer(to: &vector) { vector in
                message.msg_iov = vector
                message.msg_iovlen = 1
                return recvmsg(socket, &message, Int32(MSG_DONTWAIT) | Int32(MSG_CMSG_CLOEXEC))
            }
            // Descriptors that are closed in `keep` may change `errno`, which the caller reads.
            let error = errno
            if count >= 0 { keep(UnsafeRawBufferPointer(control).prefix(Int(message.msg_controllen))) }
            errno = error
            return count
        }
    }

    /// Adds the descriptors in the control messages of one system call.
    private mutating func keep(_ control: UnsafeRawBufferPointer.SubSequence) {
        var rest = UnsafeRawBufferPointer(rebasing: control)
        while rest.count >= Self.headerSize {
            let header = rest.loadUnaligned(as: cmsghdr.self)
            let length = Int(header.cmsg_len)
            guard length >= Self.headerSize, length <= rest.count else { return }
            if header.cmsg_level == SOL_SOCKET, header.cmsg_type == Int32(SCM_RIGHTS) {
                for offset in stride(from: Self.headerSize, to: length - 3, by: MemoryLayout<Int32>.size) {
                    let descriptor = FileDescriptor(
                        adopting: rest.loadUnaligned(fromByteOffset: offset, as: Int32.self))
                    if waiting.count < Self.maxWaiting { waiting.append(descriptor) }
                }
            }
            rest = UnsafeRawBufferPointer(rebasing: rest.dropFirst(min((length + 7) & ~7, rest.count)))
        }
    }

    /// Removes and returns the descriptors of a message. Only replies keep theirs; those of other messages are closed.
    ///
    /// - Parameter message: All bytes of the message.
    mutating func take(of message: [UInt8]) -> [FileDescriptor] {
        guard let header = message.withUnsafeBytes({ MessageHeader($0) }), let offset = header.descriptorCount else {
            return []
        }
        let stated = message.withUnsafeBytes { $0.loadUnaligned(fromByteOffset: offset, as: UInt32.self) }
        var taken: [FileDescriptor] = []
        for _ in 0..<(header.isSwapped ? stated.byteSwapped : stated) {
            guard let descriptor = waiting.popFirst() else { break }
            taken.append(descriptor)
        }
        return header.type == UInt8(DBUS_MESSAGE_TYPE_METHOD_RETURN) ? taken : []
    }
}
