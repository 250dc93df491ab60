// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// A non-blocking Unix stream socket to a program of the desktop, read and written on the loop. ``SwaySource`` and
/// ``WaylandConnection`` use it.
///
/// Threads: all members on the thread that runs the context. No callback follows ``onEnd``.
final class UnixStream: PolledSourceDelegate {
    struct Failure: Error, CustomStringConvertible {
        let description: String
    }

    /// Called with received bytes.
    var onBytes: (([UInt8]) -> Void)?
    /// Called once with the reason when the peer has closed the connection, or reading fails.
    var onEnd: ((String) -> Void)?

    private let descriptor: Int32
    private var source: PolledSource!
    private var readTag: PolledSource.Tag?
    /// The wait for a writable socket; nil while no bytes wait.
    private var writeTag: PolledSource.Tag?
    /// The bytes that the socket has not accepted yet.
    private var outgoing: [UInt8] = []
    /// The memory for reading.
    private var buffer = [UInt8](repeating: 0, count: 1 << 14)

    /// Connects to the socket at `path`.
    ///
    /// - Throws: ``Failure`` if no program listens there, or the connection cannot be made at once.
    init(path: String, context: MainContext) throws(Failure) {
        let type = Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue) | Int32(SOCK_NONBLOCK.rawValue)
        // `deinit` closes it, also when this initializer throws.
        descriptor = socket(AF_UNIX, type, 0)
        guard descriptor >= 0 else { throw Failure(description: "socket: \(String(cString: strerror(errno)))") }
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        guard path.utf8.count < MemoryLayout.size(ofValue: address.sun_path) else {
            throw Failure(description: "\(path) is too long for a socket's path")
        }
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: path.utf8) }
        let result = withUnsafePointer(to: &address) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { pointer in
                connect(descriptor, pointer, socklen_t(MemoryLayout<sockaddr_un>.size))
            }
        }
        guard result == 0 else {
            throw Failure(description: "\(path): \(String(cString: strerror(errno)))")
        }
        source = PolledSource(delegate: self, priority: .default, context: context)
        readTag = source.add(descriptor: descriptor, waitingFor: .readable)
    }

    deinit {
        source = nil
        close(descriptor)
    }

    /// The process that listens at the socket, as reported by the kernel; nil if unknown.
    var peerProcessID: UInt32? {
        // The kernel's struct ucred, which the C library declares only for GNU programs.
        var credentials: (processID: Int32, user: UInt32, group: UInt32) = (0, 0, 0)
        var size = socklen_t(MemoryLayout.size(ofValue: credentials))
        guard getsockopt(descriptor, SOL_SOCKET, SO_PEERCRED, &credentials, &size) == 0, credentials.processID > 0
        else { return nil }
        return UInt32(credentials.processID)
    }

    /// Sends bytes, or queues them while the socket is full.
    func enqueue(_ bytes: [UInt8]) {
        outgoing += bytes
        writeOutgoing()
    }

    func hasPendingWork() -> Bool { false }

    func dispatch() {
        if let writeTag, !source.occurred(on: writeTag).isEmpty { writeOutgoing() }
        if let readTag, !source.occurred(on: readTag).isEmpty { readIncoming() }
    }

    private func writeOutgoing() {
        while !outgoing.isEmpty {
            // Without this flag, writing to a closed socket raises SIGPIPE.
            let count = send(descriptor, outgoing, outgoing.count, Int32(MSG_NOSIGNAL))
            if count < 0 && errno == EINTR { continue }
            guard count > 0 else { break }
            outgoing.removeFirst(count)
        }
        // An error other than a full socket ends the connection when it is read.
        if outgoing.isEmpty, let tag = writeTag {
            source.remove(tag)
            writeTag = nil
        } else if !outgoing.isEmpty, writeTag == nil, errno == EAGAIN {
            writeTag = source.add(descriptor: descriptor, waitingFor: .writable)
        }
    }

    private func readIncoming() {
        let count = read(descriptor, &buffer, buffer.count)
        if count > 0 {
            onBytes?(Array(buffer[..<count]))
        } else if count == 0 || errno != EAGAIN && errno != EINTR {
            end(count == 0 ? "it closed the connection" : String(cString: strerror(errno)))
        }
    }

    private func end(_ reason: String) {
        if let readTag { source.remove(readTag) }
        if let writeTag { source.remove(writeTag) }
        (readTag, writeTag) = (nil, nil)
        onBytes = nil
        let onEnd = onEnd
        self.onEnd = nil
        onEnd?(reason)
    }
}
