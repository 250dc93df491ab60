#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// A file to which records are appended, and which can be read after the process died at any byte.
///
/// A record is its length, a checksum of its bytes, and the bytes. Reading ends at the first that is cut off or does
/// not fit its checksum. There is no `fsync`: the file outlives the process, which is what it is for, and not the
/// machine, with which the bus goes too.
final class RecoveryLog {
    /// What an operation of the system failed with.
    struct Failure: Error, CustomStringConvertible {
        let operation: String
        let code: Int32
        var description: String { "\(operation): \(String(cString: strerror(code)))" }
    }

    private static let frameSize = 12
    private let path: String
    private var descriptor: Int32
    /// Bytes in the file.
    private(set) var size = 0

    /// Opens the log at `path`, or makes it, and keeps other processes from doing the same.
    ///
    /// - Throws: ``Failure``, with `EWOULDBLOCK` when another process has it.
    init(path: String) throws(Failure) {
        self.path = path
        descriptor = try Self.open(path, O_RDWR | O_CREAT | O_APPEND)
        do throws(Failure) {
            try Self.lock(descriptor, path)
        } catch {
            close(descriptor)
            throw error
        }
    }

    deinit {
        close(descriptor)
    }

    /// Reads all records that are whole.
    ///
    /// - Parameter body: gets each record; false ends the reading there.
    /// - Returns: the bytes behind the last record that was read, which are of no use.
    func read(_ body: (ArraySlice<UInt8>) -> Bool) throws(Failure) -> Int {
        let bytes = try contents()
        size = bytes.count
        var offset = 0
        while bytes.count - offset >= Self.frameSize {
            let (length, checksum) = bytes.withUnsafeBytes { bytes in
                (
                    Int(UInt32(littleEndian: bytes.loadUnaligned(fromByteOffset: offset, as: UInt32.self))),
                    UInt64(littleEndian: bytes.loadUnaligned(fromByteOffset: offset + 4, as: UInt64.self))
                )
            }
            let start = offset + Self.frameSize
            guard length <= bytes.count - start else { break }
            let record = bytes[start..<start + length]
            guard Self.checksum(record) == checksum, body(record) else { break }
            offset = start + length
        }
        return bytes.count - offset
    }

    /// Appends a record.
    func append(_ record: [UInt8]) throws(Failure) {
        try Self.write(Self.frame(record), to: descriptor, path)
        size += Self.frameSize + record.count
    }

    /// Puts other records in the place of all that there are, at once: whoever reads sees either these or those.
    func replace(_ records: ((([UInt8]) throws(Failure) -> Void)) throws(Failure) -> Void) throws(Failure) {
        let temporary = path + ".new"
        let replacement = try Self.open(temporary, O_RDWR | O_CREAT | O_TRUNC | O_APPEND)
        var newSize = 0
        do throws(Failure) {
            try Self.lock(replacement, temporary)
            var buffer: [UInt8] = []
            try records { record throws(Failure) in
                buffer += Self.frame(record)
                newSize += Self.frameSize + record.count
                guard buffer.count > 1 << 20 else { return }
                try Self.write(buffer, to: replacement, temporary)
                buffer.removeAll(keepingCapacity: true)
            }
            try Self.write(buffer, to: replacement, temporary)
            guard rename(temporary, path) == 0 else { throw Failure(operation: "rename \(temporary)", code: errno) }
        } catch {
            close(replacement)
            unlink(temporary)
            throw error
        }
        close(descriptor)
        descriptor = replacement
        size = newSize
    }

    /// Removes the file; what is appended from then on is for nobody.
    func remove() {
        unlink(path)
    }

    // MARK: Files

    private func contents() throws(Failure) -> [UInt8] {
        var status = stat()
        guard fstat(descriptor, &status) == 0 else { throw Failure(operation: "stat \(path)", code: errno) }
        var bytes = [UInt8](repeating: 0, count: Int(status.st_size))
        var offset = 0
        while offset < bytes.count {
            let count = bytes.withUnsafeMutableBytes {
                pread(descriptor, $0.baseAddress! + offset, $0.count - offset, off_t(offset))
            }
            if count < 0 && errno == EINTR { continue }
            guard count >= 0 else { throw Failure(operation: "read \(path)", code: errno) }
            if count == 0 { break }
            offset += count
        }
        return Array(bytes.prefix(offset))
    }

    private static func open(_ path: String, _ flags: Int32) throws(Failure) -> Int32 {
        let descriptor = path.withCString { cOpen($0, flags | O_CLOEXEC | O_NOFOLLOW, 0o600) }
        guard descriptor >= 0 else { throw Failure(operation: "open \(path)", code: errno) }
        return descriptor
    }

    /// The bus may start us while the kernel is still closing the files of the process before: its connection went
    /// first, its lock goes in the next microseconds. So a lock that is held is asked for again for a moment.
    private static func lock(_ descriptor: Int32, _ path: String) throws(Failure) {
        for _ in 0..<100 {
            if flock(descriptor, LOCK_EX | LOCK_NB) == 0 { return }
            guard errno == EWOULDBLOCK || errno == EINTR else { break }
            usleep(2000)
        }
        throw Failure(operation: "lock \(path)", code: errno)
    }

    private static func write(_ bytes: [UInt8], to descriptor: Int32, _ path: String) throws(Failure) {
        var offset = 0
        while offset < bytes.count {
            let count = bytes.withUnsafeBytes { cWrite(descriptor, $0.baseAddress! + offset, $0.count - offset) }
            if count < 0 && errno == EINTR { continue }
            guard count > 0 else { throw Failure(operation: "write \(path)", code: errno) }
            offset += count
        }
    }

    private static func frame(_ record: [UInt8]) -> [UInt8] {
        var frame: [UInt8] = []
        frame.reserveCapacity(frameSize + record.count)
        withUnsafeBytes(of: UInt32(record.count).littleEndian) { frame += $0 }
        withUnsafeBytes(of: checksum(record[...]).littleEndian) { frame += $0 }
        frame += record
        return frame
    }

    /// FNV-1a: for torn writes, not against malice.
    private static func checksum(_ bytes: ArraySlice<UInt8>) -> UInt64 {
        bytes.withUnsafeBytes { bytes in
            var hash: UInt64 = 0xcbf2_9ce4_8422_2325
            for byte in bytes { hash = (hash ^ UInt64(byte)) &* 0x0000_0100_0000_01b3 }
            return hash
        }
    }
}

private func cOpen(_ path: UnsafePointer<CChar>, _ flags: Int32, _ mode: mode_t) -> Int32 { open(path, flags, mode) }
private func cWrite(_ descriptor: Int32, _ bytes: UnsafeRawPointer, _ count: Int) -> Int {
    write(descriptor, bytes, count)
}
