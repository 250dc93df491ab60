// SPDX-License-Identifier: Apache-2.0
import Glibc

/// A file descriptor that is closed when nothing refers to it any more. Always close-on-exec, so that no child that
/// another thread starts at the same time inherits it.
final class FileDescriptor: Sendable {
    let rawValue: Int32

    /// Takes over an open, close-on-exec descriptor.
    init(owning rawValue: Int32) {
        self.rawValue = rawValue
    }

    deinit {
        close(rawValue)
    }

    /// A pipe.
    static func pipe() throws -> (read: FileDescriptor, write: FileDescriptor) {
        var ends: [Int32] = [-1, -1]
        guard GNUExtensions.pipe2(&ends, O_CLOEXEC) == 0 else {
            throw SystemError("pipe2")
        }
        return (FileDescriptor(owning: ends[0]), FileDescriptor(owning: ends[1]))
    }

    /// A connected pair of Unix stream sockets.
    static func socketPair() throws -> (FileDescriptor, FileDescriptor) {
        var ends: [Int32] = [-1, -1]
        let type = Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue)
        guard socketpair(AF_UNIX, type, 0, &ends) == 0 else {
            throw SystemError("socketpair")
        }
        return (FileDescriptor(owning: ends[0]), FileDescriptor(owning: ends[1]))
    }

    /// `/dev/null`, for reading.
    static func null() throws -> FileDescriptor {
        let descriptor = open("/dev/null", O_RDONLY | O_CLOEXEC)
        guard descriptor >= 0 else {
            throw SystemError("open /dev/null")
        }
        return FileDescriptor(owning: descriptor)
    }

    /// A copy of the same open file whose number is at least `minimum`.
    func duplicate(atLeast minimum: Int32) throws -> FileDescriptor {
        let copy = fcntl(rawValue, F_DUPFD_CLOEXEC, minimum)
        guard copy >= 0 else {
            throw SystemError("fcntl F_DUPFD_CLOEXEC")
        }
        return FileDescriptor(owning: copy)
    }

    /// Reads what is there, blocking until there is something.
    ///
    /// - Returns: the bytes; empty at the end of the file. A read error counts as the end.
    func readSome(atMost count: Int = 65536) -> [UInt8] {
        [UInt8](unsafeUninitializedCapacity: count) { buffer, initialized in
            let received = retryingOnInterrupt { read(rawValue, buffer.baseAddress, count) }
            initialized = max(0, received)
        }
    }
}
