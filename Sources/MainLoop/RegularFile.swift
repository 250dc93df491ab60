// SPDX-License-Identifier: Apache-2.0
#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// The error of an operation of a ``RegularFile``.
package struct FileError: Error, Equatable, CustomStringConvertible {
    package enum Reason: Equatable, Sendable {
        /// An error of the system, with its `errno`.
        case system(Int32)
        /// A directory, pipe, socket or device has this path.
        case notRegular
        /// The file belongs to another user.
        case foreign
        /// The file is larger than the limit.
        case tooLarge(limit: Int)
    }

    /// The attempted operation and the path, such as `open /run/user/1000/carillon/log`.
    package let operation: String
    package let reason: Reason

    package init(operation: String, reason: Reason) {
        self.operation = operation
        self.reason = reason
    }

    /// The system's error number; 0 when the system did not refuse the operation.
    package var code: Int32 { if case .system(let code) = reason { code } else { 0 } }

    package var description: String {
        switch reason {
        case .system(let code): "\(operation): \(String(cString: strerror(code)))"
        case .notRegular: "\(operation): it is not a regular file"
        case .foreign: "\(operation): it belongs to another user"
        case .tooLarge(let limit): "\(operation): it is larger than \(limit) bytes"
        }
    }
}

/// An open regular file of this user: no directory, pipe, socket or device. Configuration files, the service's recovery
/// files and the bridge's state files are opened with it.
///
/// Opening never blocks, even if the path names a pipe. An object of another type at the path is an error and remains
/// unchanged. The exceptions are ``Opening/newLog`` and ``Opening/newTable``, which replace everything but a directory.
package final class RegularFile {
    /// The purpose of the file, which decides the flags of `open`.
    package enum Opening: Sendable {
        /// For reading; creates no file. Follows a symbolic link, and accepts files of root as well as the user's: an
        /// administrator or a user wrote the file.
        case configuration
        /// For reading and appending; creates the file if it is missing. Refuses a symbolic link, because this program
        /// owns the file.
        case log
        /// For reading and writing at any position; creates the file if it is missing. Refuses a symbolic link.
        case table
        /// Like `log`, with a new file. An existing file, link, pipe or socket at the path is removed first. A
        /// directory remains, and is an error of the system.
        case newLog
        /// Like `table`, with a new file, under the same rule as `newLog`.
        case newTable
    }

    package private(set) var path: String
    private let descriptor: Int32

    /// Opens the file at `path`.
    ///
    /// - Returns: nil for ``Opening/configuration`` when there is no such file.
    package init?(_ path: String, for opening: Opening) throws(FileError) {
        self.path = path
        // Opening must not wait for the other end of a pipe.
        var flags = O_CLOEXEC | O_NONBLOCK | O_NOCTTY
        if opening != .configuration { flags |= O_RDWR | O_CREAT | O_NOFOLLOW }
        if opening == .log || opening == .newLog { flags |= O_APPEND }
        if opening == .newLog || opening == .newTable {
            // This fails for a directory, and for a path without a file. For a directory, `open` then fails with
            // EEXIST.
            unlink(path)
            flags |= O_EXCL
        }
        let descriptor = open(path, flags, 0o600)
        guard descriptor >= 0 else {
            let code = errno
            if opening == .configuration, code == ENOENT || code == ENOTDIR { return nil }
            // The codes for objects of other types: ENXIO for a socket, EISDIR for a directory opened for writing, and
            // both ENXIO and ENODEV for a missing device. Objects that can be opened are refused below.
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

    /// Returns the whole content of the configuration file at `path`.
    ///
    /// - Parameter limit: the maximum size in bytes; a larger file is refused.
    /// - Returns: nil when there is no such file.
    package static func contents(of path: String, atMost limit: Int) throws(FileError) -> [UInt8]? {
        guard let file = try RegularFile(path, for: .configuration) else { return nil }
        // The loop reads until the end, because the size of the file may have changed.
        var bytes: [UInt8] = []
        while true {
            let piece = try file.read(at: bytes.count, atMost: min(1 << 16, limit + 1 - bytes.count))
            if piece.isEmpty { return bytes }
            bytes += piece
            if bytes.count > limit { throw FileError(operation: "read \(path)", reason: .tooLarge(limit: limit)) }
        }
    }

    /// The current size in bytes.
    package func size() throws(FileError) -> Int {
        Int(try status().st_size)
    }

    /// Whether `path` still names this file. It is false if the file was removed or replaced.
    package var isInPlace: Bool { isNamed == true }

    /// Whether `path` names another file by now. It is false if there is no file at the path.
    package var isReplaced: Bool { isNamed == false }

    /// Whether `path` names this file, by device and inode; nil when there is no file at the path.
    private var isNamed: Bool? {
        var (own, named) = (stat(), stat())
        guard fstat(descriptor, &own) == 0, lstat(path, &named) == 0 else { return nil }
        return own.st_ino == named.st_ino && own.st_dev == named.st_dev
    }

    /// Takes an exclusive lock (`flock`) without waiting. The lock lasts as long as the file is open.
    ///
    /// - Returns: false if another process has the lock.
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

    /// Appends bytes to the file.
    package func append(_ bytes: [UInt8]) throws(FileError) {
        try check(
            bytes.withUnsafeBytes { bytes in
                writeAll(bytes) { rest, _ in systemWrite(descriptor, rest) }
            })
    }

    /// Writes at a position of the file.
    ///
    /// - Parameters:
    ///   - words: the content, in the byte order of the machine.
    ///   - offset: the position in bytes.
    package func write(_ words: ArraySlice<UInt64>, at offset: Int) throws(FileError) {
        try check(
            words.withUnsafeBytes { bytes in
                writeAll(bytes) { rest, done in
                    pwrite(descriptor, rest.baseAddress, rest.count, off_t(offset + done))
                }
            })
    }

    /// Reserves space for `count` bytes, so that writing there does not fail for lack of space.
    package func allocate(_ count: Int) throws(FileError) {
        var code = posix_fallocate(descriptor, 0, off_t(count))
        while code == EINTR { code = posix_fallocate(descriptor, 0, off_t(count)) }
        guard code == 0 else { throw FileError(operation: "allocate \(path)", reason: .system(code)) }
    }

    /// Removes the whole content of the file.
    package func removeAll() throws(FileError) {
        guard ftruncate(descriptor, 0) == 0 else { throw failure("truncate") }
    }

    /// Renames the file to `path`, and replaces an existing file of this name.
    package func rename(to path: String) throws(FileError) {
        guard systemRename(self.path, path) == 0 else { throw failure("rename") }
        self.path = path
    }

    /// Writes the names in the directory of a file to the disk, after names were added or removed. Failures are
    /// ignored, because some file systems do not support this.
    package static func syncDirectory(of path: String) {
        let end = path.lastIndex(of: "/")
        let directory = open(
            end.map { $0 == path.startIndex ? "/" : String(path[..<$0]) } ?? ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        guard directory >= 0 else { return }
        fsync(directory)
        close(directory)
    }

    /// Removes the file from its directory. Data written afterwards is lost.
    package func remove() {
        unlink(path)
    }

    private func status() throws(FileError) -> stat {
        var status = stat()
        guard fstat(descriptor, &status) == 0 else { throw failure("stat") }
        return status
    }

    /// Calls `write` until all bytes are written. `write` gets the remaining bytes and the number of written ones.
    ///
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

// Wrappers for functions of the system whose names are also names of methods.

private func systemWrite(_ descriptor: Int32, _ bytes: UnsafeRawBufferPointer) -> Int {
    write(descriptor, bytes.baseAddress, bytes.count)
}

private func systemRename(_ old: String, _ new: String) -> Int32 {
    rename(old, new)
}
