// SPDX-License-Identifier: Apache-2.0
import CarillonTestSupport
import Foundation
import Glibc
import Synchronization

/// A socket between the service and its bus, through which a test can have "the bus" close connections while it lives.
final class BusRelay: Sendable {
    /// What connects here is on the bus.
    let address: String
    private let listener: Int32
    private let target: String
    private let state = Mutex(State())

    private struct State {
        /// The end towards the bus of the first connection that there was.
        var first: Int32?
        var open: [Int32] = []
        var isClosed = false
        var refuses = false
    }

    init(to bus: PrivateBus) throws {
        target = bus.directory.entry("bus")
        let path = bus.directory.entry("relay")
        address = "unix:path=\(path)"
        listener = socket(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0)
        guard listener >= 0, Self.withAddress(path, { bind(listener, $0, $1) }) == 0, listen(listener, 64) == 0 else {
            throw SystemError("relay \(path)")
        }
        Thread { [self] in accept() }.start()
    }

    /// Closes all connections that there are.
    ///
    /// - Parameter refusing: whether new ones are closed at once, too, until the next call.
    func cut(refusing: Bool = false) {
        state.withLock { state in
            state.refuses = refusing
            for descriptor in state.open { shutdown(descriptor, Int32(SHUT_RDWR)) }
            state.open = []
        }
    }

    /// Sends something to the bus as if who connected first had. It must not be in the middle of a message.
    func inject(_ bytes: [UInt8]) throws {
        let descriptor = state.withLock(\.first)
        guard let descriptor, send(descriptor, bytes, bytes.count, Int32(MSG_NOSIGNAL)) == bytes.count else {
            throw SystemError("inject")
        }
    }

    /// From now on nothing listens here.
    func close() {
        state.withLock { $0.isClosed = true }
        shutdown(listener, Int32(SHUT_RDWR))
        Glibc.close(listener)
        cut()
    }

    private func accept() {
        while true {
            let near = Glibc.accept(listener, nil, nil)
            guard near >= 0 else { return }
            let far = socket(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0)
            let isOpen =
                Self.withAddress(target) { connect(far, $0, $1) } == 0
                && state.withLock { state in
                    guard !state.refuses, !state.isClosed else { return false }
                    state.open += [near, far]
                    if state.first == nil { state.first = far }
                    return true
                }
            guard isOpen else {
                Glibc.close(near)
                Glibc.close(far)
                continue
            }
            let ends = Atomic(0)
            let done = Ends(ends: ends, near: near, far: far)
            Thread { Self.copy(from: near, to: far, done) }.start()
            Thread { Self.copy(from: far, to: near, done) }.start()
        }
    }

    private final class Ends: Sendable {
        let ends: Atomic<Int>
        let near: Int32
        let far: Int32

        init(ends: consuming Atomic<Int>, near: Int32, far: Int32) {
            self.ends = ends
            self.near = near
            self.far = far
        }
    }

    private static func copy(from: Int32, to: Int32, _ done: Ends) {
        let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: 65_536, alignment: 16)
        let control = UnsafeMutableRawBufferPointer.allocate(byteCount: 1024, alignment: 16)
        defer {
            buffer.deallocate()
            control.deallocate()
        }
        copying: while true {
            var part = iovec(iov_base: buffer.baseAddress, iov_len: buffer.count)
            var message = msghdr()
            message.msg_iovlen = 1
            message.msg_control = control.baseAddress
            message.msg_controllen = control.count
            let count = withUnsafeMutablePointer(to: &part) { part in
                message.msg_iov = part
                return recvmsg(from, &message, Int32(MSG_CMSG_CLOEXEC))
            }
            guard count > 0 else { break }
            let descriptors = descriptors(in: control, message.msg_controllen)
            defer { descriptors.forEach { _ = Glibc.close($0) } }
            var offset = 0
            while offset < count {
                // What came along goes with the first byte.
                if offset > 0 || message.msg_controllen == 0 { message.msg_control = nil }
                if message.msg_control == nil { message.msg_controllen = 0 }
                part = iovec(iov_base: buffer.baseAddress! + offset, iov_len: count - offset)
                message.msg_flags = 0
                let written = withUnsafeMutablePointer(to: &part) { part in
                    message.msg_iov = part
                    return sendmsg(to, &message, Int32(MSG_NOSIGNAL))
                }
                guard written > 0 else { break copying }
                offset += written
            }
        }
        shutdown(from, Int32(SHUT_RDWR))
        shutdown(to, Int32(SHUT_RDWR))
        guard done.ends.add(1, ordering: .relaxed).newValue == 2 else { return }
        Glibc.close(done.near)
        Glibc.close(done.far)
    }

    /// The descriptors in one control message.
    private static func descriptors(in control: UnsafeMutableRawBufferPointer, _ length: Int) -> [Int32] {
        let header = (MemoryLayout<cmsghdr>.size + 7) & ~7
        guard length > header else { return [] }
        let size = Int(control.loadUnaligned(as: cmsghdr.self).cmsg_len)
        return stride(from: header, to: min(size, length) - 3, by: 4).map {
            control.loadUnaligned(fromByteOffset: $0, as: Int32.self)
        }
    }

    private static func withAddress(_ path: String, _ body: (UnsafePointer<sockaddr>, socklen_t) -> Int32) -> Int32 {
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: path.utf8) }
        return withUnsafePointer(to: &address) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                body($0, socklen_t(MemoryLayout<sockaddr_un>.size))
            }
        }
    }
}
