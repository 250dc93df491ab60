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

/// A file to which groups of records are appended, and which can be read after the process died at any byte.
///
/// It begins with the name of its format. A group is its length, a checksum of its bytes, and the bytes. Reading ends at
/// the first that is cut off or does not fit its checksum. There is no `fsync`: the file outlives the process, which is
/// what it is for, and not the machine, with which the bus goes too.
final class RecoveryLog {
    fileprivate static let format = Array("Carillon log 3\n\0".utf8)
    private static let frameSize = 12
    /// More than any group has: one is written when it has 4 MiB, and a record has no more than a message.
    private static let maxInGroup = 1 << 28
    /// What is written at a time when the log is written anew.
    fileprivate static let pieceSize = 1 << 18
    private let path: String
    private let files: any StateFiles
    private var file: any StateFile
    /// Bytes in the file.
    private(set) var size = 0

    /// Opens the log at `path`, or makes it.
    ///
    /// - Parameters:
    ///   - files: where it is.
    ///   - takesLock: keep other processes from doing the same; false for whoever knows that the one that may still do so
    ///     has nothing to write any more.
    /// - Throws: ``FileError``, with `EWOULDBLOCK` when another process has it.
    init(path: String, in files: any StateFiles = SystemFiles(), takesLock: Bool = true) throws(FileError) {
        self.path = path
        self.files = files
        // Another process may put a new file into its place between opening and locking.
        for _ in 0..<10 {
            file = try files.open(path, for: .log)
            if takesLock, try !file.lock() {
                throw FileError(operation: "lock \(path)", reason: .system(EWOULDBLOCK))
            }
            if file.isInPlace { return }
        }
        throw FileError(operation: "open \(path)", reason: .system(ESTALE))
    }

    /// Puts a new log with these records at `path`, in the place of whatever is there that is no log.
    init(
        path: String, in files: any StateFiles, records: (NewLog) throws(FileError) -> Void
    ) throws(FileError) {
        self.path = path
        self.files = files
        let new = try NewLog(path: path, in: files)
        (file, size) = try new.write(records, to: path)
    }

    /// Reads all records that are whole, however large the file is: what stands behind them is not looked at.
    ///
    /// - Parameter body: gets each record; false ends the reading there.
    /// - Returns: the bytes behind the last group that was read, which are of no use.
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

    /// Puts other records in the place of all that there are, at once: whoever reads sees either these or those.
    func replace(with records: (NewLog) throws(FileError) -> Void) throws(FileError) {
        let new = try beginReplacing()
        (file, size) = try new.write(records, to: path)
    }

    /// Begins a log that takes the place of this one with ``replace(with:)``.
    func beginReplacing() throws(FileError) -> NewLog {
        // One that has lost its place to another process's has nothing to say any more.
        guard !file.isReplaced else { throw FileError(operation: "replace \(path)", reason: .system(ESTALE)) }
        return try NewLog(path: path, in: files)
    }

    /// Puts a log that was begun before in the place of this one.
    ///
    /// - Parameters:
    ///   - offset: what this one has from there on goes behind what that has.
    ///   - most: of these bytes.
    /// - Returns: up to where that has it now; it took the place when that is the end.
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

    /// Leaves nothing but these records in the file, for want of room for more. Where even that fails, nothing.
    func reduce(to group: borrowing RecordGroup) {
        do throws(FileError) {
            try file.removeAll()
            size = 0
            try append(group)
        } catch {
            remove()
        }
    }

    /// Removes the file; what is appended from then on is for nobody.
    func remove() {
        if file.isInPlace { file.remove() }
    }

    /// A log that is being written, in pieces, beside the one whose place it will take.
    final class NewLog {
        fileprivate let file: any StateFile
        /// Records go here; behind each ``recordEnded()`` is called.
        var group = RecordGroup()
        private var written = 0
        private var buffer = RecoveryLog.format

        fileprivate init(path: String, in files: any StateFiles) throws(FileError) {
            file = try files.open(path + ".new", for: .newLog)
            guard try file.lock() else {
                throw FileError(operation: "lock \(file.path)", reason: .system(EWOULDBLOCK))
            }
        }

        /// How many bytes it has, with what is not in the file yet.
        var size: Int { written + buffer.count + group.byteCount }

        /// Writes what has been gathered, if that is enough.
        func recordEnded() throws(FileError) {
            if group.byteCount >= RecoveryLog.pieceSize { try write() }
        }

        /// Gives it up.
        func remove() { file.remove() }

        func tooLarge(limit: Int) -> FileError {
            FileError(operation: "write \(file.path)", reason: .tooLarge(limit: limit))
        }

        /// Writes all of it, and puts it at a path.
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

        /// Appends what another log has.
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

    /// For torn writes, not against malice. Like FNV-1a, but eight bytes at a time, which makes it as fast as the copying
    /// of the bytes. Each step can be undone, so that no change of one word is lost on the way.
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

/// A piece of a file in memory, which moves along while that is read.
private struct Window {
    private static let size = 1 << 18
    private let file: any StateFile
    private var piece: [UInt8] = []
    private var start = 0

    init(file: any StateFile) {
        self.file = file
    }

    /// The bytes at a place of the file; nil when it ends before.
    mutating func bytes(at offset: Int, count: Int) throws(FileError) -> ArraySlice<UInt8>? {
        if offset < start || offset + count > start + piece.count {
            piece = try file.read(at: offset, atMost: max(count, Self.size))
            start = offset
            guard count <= piece.count else { return nil }
        }
        return piece[offset - start..<offset - start + count]
    }
}
