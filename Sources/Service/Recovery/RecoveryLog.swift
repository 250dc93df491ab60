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

/// An append-only log file of records, which can be read after the process died at any byte. ``RecoveryStore`` keeps
/// the state of the service in one.
///
/// The file begins with the name of its format. Records are appended in groups (``RecordGroup``), usually one per
/// event. A group has a frame of 12 bytes, its length and a checksum, and then its bytes. Reading ends at the first
/// group that is incomplete or does not match its checksum, so after a crash a group is restored as a whole or not at
/// all.
///
/// There is no `fsync`: the file has to survive the process but not the machine, because the bus and all clients end
/// with the machine.
///
/// A log is replaced by a new one in a file beside it (`.new`), which is renamed. A lock on the file keeps other
/// processes from using it.
///
/// Threads: one at a time. File operations may block.
final class RecoveryLog {
    fileprivate static let format = Array("Carillon log 3\n\0".utf8)
    /// The size of a group's length and checksum, in bytes.
    private static let frameSize = 12
    /// The length, in bytes, from which a group counts as corrupt. Real groups are far smaller: a group is written when
    /// it has 4 MiB, and a record is at most as large as a message.
    private static let maxInGroup = 1 << 28
    /// The size, in bytes, from which the records of a new log are written as a group.
    fileprivate static let pieceSize = 1 << 18
    private let path: String
    private let files: any StateFiles
    /// The open file, which has the lock.
    private var file: any StateFile
    /// The size of the file, in bytes.
    private(set) var size = 0

    /// Opens the log at `path`, or creates it.
    ///
    /// - Parameters:
    ///   - path: the path of the file.
    ///   - files: the file system that has the file.
    ///   - takesLock: whether to lock the file against other processes. False if the process that has the lock is known
    ///     to have nothing left to write.
    /// - Throws: ``FileError``, with `EWOULDBLOCK` if another process has the lock.
    init(path: String, in files: any StateFiles = SystemFiles(), takesLock: Bool = true) throws(FileError) {
        self.path = path
        self.files = files
        // If another process replaces the file between opening and locking, the replaced file is useless, and opening
        // is repeated.
        for _ in 0..<10 {
            file = try files.open(path, for: .log)
            if takesLock, try !file.lock() {
                throw FileError(operation: "lock \(path)", reason: .system(EWOULDBLOCK))
            }
            if file.isInPlace { return }
        }
        throw FileError(operation: "open \(path)", reason: .system(ESTALE))
    }

    /// Creates a log at `path`, in place of any file there that can't be used as a log.
    ///
    /// - Parameter records: appends the records to the new log.
    init(
        path: String, in files: any StateFiles, records: (NewLog) throws(FileError) -> Void
    ) throws(FileError) {
        self.path = path
        self.files = files
        let new = try NewLog(path: path, in: files)
        (file, size) = try new.write(records, to: path)
    }

    /// Reads all records of complete groups, however large the file is.
    ///
    /// - Parameter body: called with each record. It returns false for a corrupt record, and to end the reading.
    /// - Returns: the number of bytes behind the last group that was read completely; 0 if the whole file was read.
    func read(_ body: (UnsafeRawBufferPointer) -> Bool) throws(FileError) -> Int {
        size = try file.size()
        guard size > 0 else { return 0 }
        var readBuffer = ReadBuffer(file: file)
        guard let format = try readBuffer.bytes(at: 0, count: Self.format.count), format.elementsEqual(Self.format)
        else {
            return size
        }
        var offset = Self.format.count
        while let frame = try readBuffer.bytes(at: offset, count: Self.frameSize) {
            let (length, checksum) = frame.withUnsafeBytes { bytes in
                (
                    Int(UInt32(littleEndian: bytes.loadUnaligned(as: UInt32.self))),
                    UInt64(littleEndian: bytes.loadUnaligned(fromByteOffset: 4, as: UInt64.self))
                )
            }
            let start = offset + Self.frameSize
            guard length <= min(size - start, Self.maxInGroup),
                let group = try readBuffer.bytes(at: start, count: length),
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

    /// Replaces the log by a new one with a rename, so that a crash leaves either the old or the new records.
    ///
    /// - Parameter records: appends the records to the new log.
    func replace(with records: (NewLog) throws(FileError) -> Void) throws(FileError) {
        let new = try beginReplacing()
        (file, size) = try new.write(records, to: path)
    }

    /// Begins a new log, which replaces this one with ``finishReplacing(with:from:atMost:)``.
    func beginReplacing() throws(FileError) -> NewLog {
        // If another process has replaced the log, its log must stay.
        guard !file.isReplaced else { throw FileError(operation: "replace \(path)", reason: .system(ESTALE)) }
        return try NewLog(path: path, in: files)
    }

    /// Appends groups of this log to a new log, and replaces this log by the new one when all bytes are copied.
    ///
    /// - Parameters:
    ///   - new: the log from ``beginReplacing()``.
    ///   - offset: the offset in this log from which the bytes are to be copied.
    ///   - most: the maximum number of bytes to copy in this call.
    /// - Returns: the offset up to which the bytes are copied. If it equals ``size``, the new log has replaced this
    ///   one.
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

    /// Empties the file, and writes only this group. If that fails, removes the file.
    func reduce(to group: borrowing RecordGroup) {
        do throws(FileError) {
            try file.removeAll()
            size = 0
            try append(group)
        } catch {
            remove()
        }
    }

    /// Removes the file, unless another process has replaced it. Records that are appended later are lost.
    func remove() {
        if file.isInPlace { file.remove() }
    }

    /// A new log in a file beside the log that it will replace.
    final class NewLog {
        fileprivate let file: any StateFile
        /// The records that are not written yet. The caller appends to it, and calls ``recordEnded()`` behind each
        /// record.
        var group = RecordGroup()
        /// The number of bytes in the file.
        private var written = 0
        /// The bytes for the next write; before the first one, the name of the format.
        private var buffer = RecoveryLog.format

        fileprivate init(path: String, in files: any StateFiles) throws(FileError) {
            file = try files.open(path + ".new", for: .newLog)
            guard try file.lock() else {
                throw FileError(operation: "lock \(file.path)", reason: .system(EWOULDBLOCK))
            }
        }

        /// The size of the log, in bytes, including bytes that are not in the file yet.
        var size: Int { written + buffer.count + group.byteCount }

        /// Writes the pending records as a group if they have ``pieceSize``.
        func recordEnded() throws(FileError) {
            if group.byteCount >= RecoveryLog.pieceSize { try write() }
        }

        /// Abandons the new log.
        func remove() { file.remove() }

        /// Returns the error for a log that exceeds a maximum size.
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

        /// Appends bytes of the old log. They may end within a group; the next call then appends the rest of it.
        fileprivate func append(_ groups: [UInt8]) throws(FileError) {
            if !group.isEmpty || written == 0 { try write() }
            guard !groups.isEmpty else { return }
            try file.append(groups)
            written += groups.count
        }

        /// Writes the pending records, and renames the file to `path`.
        fileprivate func put(at path: String) throws(FileError) {
            if !group.isEmpty || written == 0 { try write() }
            try file.rename(to: path)
        }

        /// Writes the pending records as a group.
        private func write() throws(FileError) {
            group.withBytes { RecoveryLog.appendFrame($0, to: &buffer) }
            try file.append(buffer)
            written += buffer.count
            buffer.removeAll(keepingCapacity: true)
            group.removeAll()
        }
    }

    /// Appends the frame and the bytes of a group.
    fileprivate static func appendFrame(_ bytes: UnsafeRawBufferPointer, to frames: inout [UInt8]) {
        frames.reserveCapacity(frames.count + frameSize + bytes.count)
        withUnsafeBytes(of: UInt32(bytes.count).littleEndian) { frames += $0 }
        withUnsafeBytes(of: checksum(bytes).littleEndian) { frames += $0 }
        frames.append(contentsOf: bytes)
    }

    /// Whether the bytes of a group have this checksum.
    private static func fits(_ bytes: UnsafeRawBufferPointer, _ checksum: UInt64) -> Bool {
        #if CARILLON_PLANTED
            if PlantedFault.strikes(.checksumIgnored) { return true }
        #endif
        return Self.checksum(bytes) == checksum
    }

    /// Returns a checksum that detects incomplete writes; it is no protection against malice. It is like FNV-1a, but
    /// takes eight bytes at a time, for speed. Each step is a bijection, so every change of a single word changes the
    /// checksum.
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

/// A read buffer for a file that is read from its beginning to its end.
private struct ReadBuffer {
    private static let size = 1 << 18
    private let file: any StateFile
    /// The buffered bytes, which begin at the offset `start` of the file.
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
