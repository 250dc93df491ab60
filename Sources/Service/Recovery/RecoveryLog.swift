// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop

#if CARILLON_PLANTED
    import CarillonCore
#endif
#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// A log file of record groups that can be read after the process died at any byte.
///
/// The file begins with the name of its format. A group is its length, a checksum of its bytes, and the bytes. Reading
/// ends at the first group that is incomplete or does not match its checksum. There is no `fsync`, because the file has
/// to survive the process but not the machine: the bus and all clients end with the machine.
///
/// Threads: one at a time. File operations may block.
final class RecoveryLog {
    fileprivate static let format = Array("Carillon log 3\n\0".utf8)
    private static let frameSize = 12
    /// The maximum size of a group, in bytes. No group comes near it: a group is written when it has 4 MiB, and a
    /// record is at most as large as a message.
    private static let maxInGroup = 1 << 28
    /// The size, in bytes, of the pieces in which a new log is written.
    fileprivate static let pieceSize = 1 << 18
    private let path: String
    private let files: any StateFiles
    private var file: any StateFile
    /// The size of the file, in bytes.
    private(set) var size = 0

    /// Opens the log at `path`, or creates it.
    ///
    /// - Parameters:
    ///   - path: the path of the file.
    ///   - files: the file system that has the file.
    ///   - takesLock: whether other processes are kept from opening the log. False for a caller that knows that the
    ///     holder of the lock has nothing left to write.
    /// - Throws: ``FileError``, with `EWOULDBLOCK` when another process has the log.
    init(path: String, in files: any StateFiles = SystemFiles(), takesLock: Bool = true) throws(FileError) {
        self.path = path
        self.files = files
        // Another process may replace the file between opening and locking.
        for _ in 0..<10 {
            file = try files.open(path, for: .log)
            if takesLock, try !file.lock() {
                throw FileError(operation: "lock \(path)", reason: .system(EWOULDBLOCK))
            }
            if file.isInPlace { return }
        }
        throw FileError(operation: "open \(path)", reason: .system(ESTALE))
    }

    /// Creates a log with these records at `path`, in place of a file that is no log.
    init(
        path: String, in files: any StateFiles, records: (NewLog) throws(FileError) -> Void
    ) throws(FileError) {
        self.path = path
        self.files = files
        let new = try NewLog(path: path, in: files)
        (file, size) = try new.write(records, to: path)
    }

    /// Reads all whole records, however large the file is. Bytes behind them are ignored.
    ///
    /// - Parameter body: called with each record; it returns false to end the reading.
    /// - Returns: the number of bytes behind the last whole group. They are corrupt or were not taken by `body`.
    func read(_ body: (UnsafeRawBufferPointer) -> Bool) throws(FileError) -> Int {
        size = try file.size()
        guard size > 0 else { return 0 }
        var window = Window(file: file)
        guard let format = try window.bytes(at: 0, count: Self.format.count), format.elementsEqual(Self.format) else {
            return size
        }
        var offset = Self.format.count
        while let frame = try window.bytes(at: offset, count: Self.frameSize) {
            let (length, checksum) = frame.withUnsafeBytes { bytes in
                (
                    Int(UInt32(littleEndian: bytes.loadUnaligned(as: UInt32.self))),
                    UInt64(littleEndian: bytes.loadUnaligned(fromByteOffset: 4, as: UInt64.self))
                )
            }
            let start = offset + Self.frameSize
            guard length <= min(size - start, Self.maxInGroup), let group = try window.bytes(at: start, count: length),
                group.withUnsafeBytes({ Self.fits($0, checksum) && RecordGroup.read($0, body) })
            else { break }
            offset = start + length
        }
        return size - offset
    }

    /// Appends a group.
    func append(_ group: borrowing RecordGroup) throws(FileError) {
        var bytes = size == 0 ? Self.format : []
        group.withBytes { Self.appendFrame($0, to: &bytes) }
        try file.append(bytes)
        size += bytes.count
    }

    /// Replaces all records at once: a reader sees either the old or the new records.
    func replace(with records: (NewLog) throws(FileError) -> Void) throws(FileError) {
        let new = try beginReplacing()
        (file, size) = try new.write(records, to: path)
    }

    /// Begins a log that takes the place of this one with ``finishReplacing(with:from:atMost:)``.
    func beginReplacing() throws(FileError) -> NewLog {
        // Another process has replaced the log, so this process must not replace that one.
        guard !file.isReplaced else { throw FileError(operation: "replace \(path)", reason: .system(ESTALE)) }
        return try NewLog(path: path, in: files)
    }

    /// Copies bytes of this log to a new log, and replaces this log when all are copied.
    ///
    /// - Parameters:
    ///   - new: the log from ``beginReplacing()``.
    ///   - offset: the offset of the first byte in this log to append to the new one.
    ///   - most: the maximum number of bytes to append.
    /// - Returns: the offset up to which the bytes are copied. The new log has taken this one's place when that equals
    ///   ``size``.
    func finishReplacing(with new: NewLog, from offset: Int, atMost most: Int) throws(FileError) -> Int {
        let count = min(most, size - offset)
        let rest = count > 0 ? try file.read(at: offset, atMost: count) : []
        guard rest.count == count else { throw FileError(operation: "read \(path)", reason: .system(EIO)) }
        try new.append(rest)
        guard offset + rest.count == size else { return offset + rest.count }
        guard !file.isReplaced else { throw FileError(operation: "replace \(path)", reason: .system(ESTALE)) }
        try new.put(at: path)
        (file, size) = (new.file, new.size)
        return size
    }

    /// Reduces the file to these records, to save space. If that fails, removes the file.
    func reduce(to group: borrowing RecordGroup) {
        do throws(FileError) {
            try file.removeAll()
            size = 0
            try append(group)
        } catch {
            remove()
        }
    }

    /// Removes the file. Records that are appended later are lost.
    func remove() {
        if file.isInPlace { file.remove() }
    }

    /// A log that is written in pieces beside the log that it will replace.
    final class NewLog {
        fileprivate let file: any StateFile
        /// The records to write. Call ``recordEnded()`` behind each of them.
        var group = RecordGroup()
        private var written = 0
        private var buffer = RecoveryLog.format

        fileprivate init(path: String, in files: any StateFiles) throws(FileError) {
            file = try files.open(path + ".new", for: .newLog)
            guard try file.lock() else {
                throw FileError(operation: "lock \(file.path)", reason: .system(EWOULDBLOCK))
            }
        }

        /// The size of the log, in bytes, with bytes that are not in the file yet.
        var size: Int { written + buffer.count + group.byteCount }

        /// Writes the pending records if they have the size of a piece.
        func recordEnded() throws(FileError) {
            if group.byteCount >= RecoveryLog.pieceSize { try write() }
        }

        /// Abandons the new log.
        func remove() { file.remove() }

        func tooLarge(limit: Int) -> FileError {
            FileError(operation: "write \(file.path)", reason: .tooLarge(limit: limit))
        }

        /// Writes all records, and renames the file to `path`.
        fileprivate func write(
            _ records: (NewLog) throws(FileError) -> Void, to path: String
        ) throws(FileError) -> (any StateFile, size: Int) {
            do throws(FileError) {
                try records(self)
                try put(at: path)
            } catch {
                remove()
                throw error
            }
            return (file, size)
        }

        /// Appends the groups of another log.
        fileprivate func append(_ groups: [UInt8]) throws(FileError) {
            if !group.isEmpty || written == 0 { try write() }
            guard !groups.isEmpty else { return }
            try file.append(groups)
            written += groups.count
        }

        fileprivate func put(at path: String) throws(FileError) {
            if !group.isEmpty || written == 0 { try write() }
            try file.rename(to: path)
        }

        private func write() throws(FileError) {
            group.withBytes { RecoveryLog.appendFrame($0, to: &buffer) }
            try file.append(buffer)
            written += buffer.count
            buffer.removeAll(keepingCapacity: true)
            group.removeAll()
        }
    }

    fileprivate static func appendFrame(_ bytes: UnsafeRawBufferPointer, to frames: inout [UInt8]) {
        frames.reserveCapacity(frames.count + frameSize + bytes.count)
        withUnsafeBytes(of: UInt32(bytes.count).littleEndian) { frames += $0 }
        withUnsafeBytes(of: checksum(bytes).littleEndian) { frames += $0 }
        frames.append(contentsOf: bytes)
    }

    private static func fits(_ bytes: UnsafeRawBufferPointer, _ checksum: UInt64) -> Bool {
        #if CARILLON_PLANTED
            if PlantedFault.strikes(.checksumIgnored) { return true }
        #endif
        return Self.checksum(bytes) == checksum
    }

    /// Returns a checksum against torn writes; it is no protection against malice. It is like FNV-1a, but takes eight
    /// bytes at a time, which makes it as fast as copying the bytes. Each step is reversible, so that every change of a
    /// single word changes the checksum.
    private static func checksum(_ bytes: UnsafeRawBufferPointer) -> UInt64 {
        var hash: UInt64 = 0xcbf2_9ce4_8422_2325
        func mix(_ word: UInt64) {
            hash = (hash ^ word) &* 0x9E37_79B9_7F4A_7C15
            hash ^= hash >> 32
        }
        let whole = bytes.count & ~7
        for offset in stride(from: 0, to: whole, by: 8) {
            mix(UInt64(littleEndian: bytes.loadUnaligned(fromByteOffset: offset, as: UInt64.self)))
        }
        for byte in bytes[whole...] { mix(UInt64(byte)) }
        return hash
    }
}

/// A window of a file in memory, which moves along as the file is read.
private struct Window {
    private static let size = 1 << 18
    private let file: any StateFile
    private var piece: [UInt8] = []
    private var start = 0

    init(file: any StateFile) {
        self.file = file
    }

    /// Returns the bytes at an offset of the file; nil if the file ends before their end.
    mutating func bytes(at offset: Int, count: Int) throws(FileError) -> ArraySlice<UInt8>? {
        if offset < start || offset + count > start + piece.count {
            piece = try file.read(at: offset, atMost: max(count, Self.size))
            start = offset
            guard count <= piece.count else { return nil }
        }
        return piece[offset - start..<offset - start + count]
    }
}
