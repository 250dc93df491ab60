// SPDX-License-Identifier: Apache-2.0
#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// Why a file could not be used.
package struct FileError: Error, Equatable, CustomStringConvertible {
    package enum Reason: Equatable, Sendable {
        /// What the system said, as in `errno`.
        case system(Int32)
        /// A directory, pipe, socket or device is in its place.
        case notRegular
        /// It belongs to another user.
        case foreign
        /// It has more bytes than are read.
        case tooLarge(limit: Int)
    }

    /// What was tried, with the path of the file.
    package let operation: String
    package let reason: Reason

    package init(operation: String, reason: Reason) {
        self.operation = operation
        self.reason = reason
    }

    /// The system's error number; 0 when it was not the system that refused.
    package var code: Int32 { if case .system(let code) = reason { code } else { 0 } }

    package var description: String {
        switch reason {
        case .system(let code): "\(operation): \(String(cString: strerror(code)))"
        case .notRegular: "\(operation): it is no regular file"
        case .foreign: "\(operation): it belongs to another user"
        case .tooLarge(let limit): "\(operation): it is larger than \(limit) bytes"
        }
    }
}

/// An open file that is a file: no directory, pipe, socket or device, and of this user.
///
/// Opening one never waits for somebody at the other end, and whatever is in its place is left as it is.
package final class RegularFile {
    package enum Opening: Sendable {
        /// For reading; nothing is made. A symbolic link is followed, and root's files are as good as the user's: what
        /// an administrator or a user wrote.
        case configuration
        /// For reading and appending; made if it is not there. A symbolic link is refused: what this program keeps.
        case log
        /// For reading and writing at any place; made if it is not there. A symbolic link is refused.
        case table
        /// The same, and new: what was in its place is gone.
        case newLog
        case newTable
    }

    package private(set) var path: String
    private let descriptor: Int32

    /// Opens the file at `path`.
    ///
    /// - Returns: nil for ``Opening/configuration`` when there is no such file.
    package init?(_ path: String, for opening: Opening) throws(FileError) {
        self.path = path
        // Without waiting for the other end of a pipe.
        var flags = O_CLOEXEC | O_NONBLOCK | O_NOCTTY
        if opening != .configuration { flags |= O_RDWR | O_CREAT | O_NOFOLLOW }
        if opening == .log || opening == .newLog { flags |= O_APPEND }
        if opening == .newLog || opening == .newTable {
            unlink(path)
            flags |= O_EXCL
        }
        let descriptor = open(path, flags, 0o600)
        guard descriptor >= 0 else {
            let code = errno
            if opening == .configuration, code == ENOENT || code == ENOTDIR { return nil }
            // A socket, or a pipe or device that nobody is at, can't be opened.
            if code == ENXIO || code == EISDIR || code == ENODEV {
                throw FileError(operation: "open \(path)", reason: .notRegular)
            }
            throw FileError(operation: "open \(path)", reason: .system(code))
        }
        self.descriptor = descriptor
        let status = try self.status()
        guard status.st_mode & S_IFMT == S_IFREG else {
            throw FileError(operation: "open \(path)", reason: .notRegular)
        }
        guard status.st_uid == geteuid() || opening == .configuration && status.st_uid == 0 else {
            throw FileError(operation: "open \(path)", reason: .foreign)
        }
    }

    deinit {
        close(descriptor)
    }

    /// All that is in the configuration file at `path`.
    ///
    /// - Parameter limit: of its bytes; one that has more is refused.
    /// - Returns: nil when there is no such file.
    package static func contents(of path: String, atMost limit: Int) throws(FileError) -> [UInt8]? {
        guard let file = try RegularFile(path, for: .configuration) else { return nil }
        // Not by its size, which may be another by now: by what comes.
        var bytes: [UInt8] = []
        while true {
            let piece = try file.read(at: bytes.count, atMost: min(1 << 16, limit + 1 - bytes.count))
            if piece.isEmpty { return bytes }
            bytes += piece
            if bytes.count > limit { throw FileError(operation: "read \(path)", reason: .tooLarge(limit: limit)) }
        }
    }

    package func size() throws(FileError) -> Int {
        Int(try status().st_size)
    }

    /// Whether the file is the one that `path` names.
    package var isInPlace: Bool { isNamed == true }

    /// Whether `path` names another file by now.
    package var isReplaced: Bool { isNamed == false }

    /// Nil when `path` names nothing.
    private var isNamed: Bool? {
        var (own, named) = (stat(), stat())
        guard fstat(descriptor, &own) == 0, lstat(path, &named) == 0 else { return nil }
        return own.st_ino == named.st_ino && own.st_dev == named.st_dev
    }

    /// Keeps other processes from doing the same, for as long as the file is open.
    ///
    /// - Returns: whether no other process has it; it is not waited for.
    package func lock() throws(FileError) -> Bool {
        while flock(descriptor, LOCK_EX | LOCK_NB) != 0 {
            if errno == EWOULDBLOCK { return false }
            guard errno == EINTR else { throw failure("lock") }
        }
        return true
    }

    /// Reads up to `count` bytes; fewer only at the end of the file.
    package func read(at offset: Int, atMost count: Int) throws(FileError) -> [UInt8] {
        var code: Int32 = 0
        let bytes = [UInt8](unsafeUninitializedCapacity: count) { buffer, filled in
            while filled < count {
                let read = pread(descriptor, buffer.baseAddress! + filled, count - filled, off_t(offset + filled))
                if read == 0 { return }
                if read > 0 {
                    filled += read
                } else if errno != EINTR {
                    code = errno
                    return
                }
            }
        }
        guard code == 0 else { throw FileError(operation: "read \(path)", reason: .system(code)) }
        return bytes
    }

    /// Writes at the end of the file.
    package func append(_ bytes: [UInt8]) throws(FileError) {
        try check(
            bytes.withUnsafeBytes { bytes in
                writeAll(bytes) { rest, _ in systemWrite(descriptor, rest) }
            })
    }

    /// Writes at a place of the file.
    package func write(_ words: ArraySlice<UInt64>, at offset: Int) throws(FileError) {
        try check(
            words.withUnsafeBytes { bytes in
                writeAll(bytes) { rest, done in
                    pwrite(descriptor, rest.baseAddress, rest.count, off_t(offset + done))
                }
            })
    }

    /// Gives the file room for `count` bytes, so that writing there does not fail for want of it.
    package func allocate(_ count: Int) throws(FileError) {
        var code = posix_fallocate(descriptor, 0, off_t(count))
        while code == EINTR { code = posix_fallocate(descriptor, 0, off_t(count)) }
        guard code == 0 else { throw FileError(operation: "allocate \(path)", reason: .system(code)) }
    }

    /// Takes everything out of the file.
    package func removeAll() throws(FileError) {
        guard ftruncate(descriptor, 0) == 0 else { throw failure("truncate") }
    }

    /// Gives the file the name `path`, and takes the place of what has it.
    package func rename(to path: String) throws(FileError) {
        guard systemRename(self.path, path) == 0 else { throw failure("rename") }
        self.path = path
    }

    /// Has the names in the directory of a file be on the disk: those that were given or taken away. Whoever can't have that,
    /// as on a file system without it, has as much as there is.
    package static func syncDirectory(of path: String) {
        let end = path.lastIndex(of: "/")
        let directory = open(
            end.map { $0 == path.startIndex ? "/" : String(path[..<$0]) } ?? ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        guard directory >= 0 else { return }
        fsync(directory)
        close(directory)
    }

    /// Takes the name away. What is written from then on is for nobody.
    package func remove() {
        unlink(path)
    }

    private func status() throws(FileError) -> stat {
        var status = stat()
        guard fstat(descriptor, &status) == 0 else { throw failure("stat") }
        return status
    }

    /// - Returns: the error number, or 0.
    private func writeAll(
        _ bytes: UnsafeRawBufferPointer, _ write: (UnsafeRawBufferPointer, Int) -> Int
    ) -> Int32 {
        var done = 0
        while done < bytes.count {
            let count = write(UnsafeRawBufferPointer(rebasing: bytes[done...]), done)
            if count < 0 && errno == EINTR { continue }
            guard count > 0 else { return count < 0 ? errno : EIO }
            done += count
        }
        return 0
    }

    private func check(_ code: Int32) throws(FileError) {
        guard code == 0 else { throw FileError(operation: "write \(path)", reason: .system(code)) }
    }

    private func failure(_ operation: String) -> FileError {
        FileError(operation: "\(operation) \(path)", reason: .system(errno))
    }
}

// The system's functions of the names that methods have, too.

private func systemWrite(_ descriptor: Int32, _ bytes: UnsafeRawBufferPointer) -> Int {
    write(descriptor, bytes.baseAddress, bytes.count)
}

private func systemRename(_ old: String, _ new: String) -> Int32 {
    rename(old, new)
}
