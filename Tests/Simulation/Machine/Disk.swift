// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import CarillonService

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// A file system that outlives processes: full when it is told so, torn where a process dies in a write, damaged by hand.
final class Disk {
    /// A file, which may have lost its name.
    final class File {
        var bytes: [UInt8] = []
        var modified: Int64 = 0
        /// The places of bytes that nobody wrote so.
        var flipped: [Int] = []
        /// Who has locked it.
        weak var holder: OpenFile?

        var isLocked: Bool { holder.map { !$0.process.isDead } ?? false }
    }

    let world: World
    fileprivate(set) var files: [String: File] = [:]
    fileprivate var directories: Set<String> = []
    /// What all files together may have; nil for any amount.
    var capacity: Int? {
        didSet { if capacity != nil { wasOnlyFlipped = false } }
    }
    /// Whether it was ever full or damaged, so that what was kept may be gone.
    var wasFaulty = false
    /// Whether all that was ever the matter is that single bits changed: then it is noticed, and what stood before is kept.
    private(set) var wasOnlyFlipped = true

    init(_ world: World) {
        self.world = world
    }

    var used: Int { files.values.reduce(0) { $0 + $1.bytes.count } }

    fileprivate func room(for count: Int) -> Int {
        guard let capacity else { return count }
        return max(0, min(count, capacity - used))
    }

    /// Something that is no carillond damages a file.
    ///
    /// - Returns: what was done; nil when there was nothing to damage.
    func damage(_ random: inout Random) -> String? {
        let names = files.keys.sorted()
        guard !names.isEmpty else { return nil }
        let name = random.pick(names)
        let file = files[name]!
        wasFaulty = true
        wasOnlyFlipped = false
        switch random.number(0...3) {
        case 0:
            let count = random.number(0...max(0, file.bytes.count))
            file.bytes.removeLast(file.bytes.count - count)
            return "cut \(name) to \(count) bytes"
        case 1 where !file.bytes.isEmpty:
            let place = random.number(0...file.bytes.count - 1)
            file.bytes[place] ^= UInt8(1 << random.number(0...7))
            return "changed byte \(place) of \(name)"
        case 2:
            files[name] = nil
            return "removed \(name)"
        default:
            file.bytes += (0..<random.number(1...64)).map { _ in UInt8(truncatingIfNeeded: random.next()) }
            return "put rubbish behind \(name)"
        }
    }

    /// Single bits of the log of a bus change, behind the name of its format.
    ///
    /// - Returns: what was done; nil when there was nothing to damage.
    func flipBits(_ count: Int, ofLog busID: String, _ random: inout Random) -> String? {
        guard let (name, file) = files.first(where: { $0.key.hasSuffix("/\(busID).log") }), file.bytes.count > 48 else {
            return nil
        }
        wasFaulty = true
        for _ in 0..<count {
            let place = random.number(16...file.bytes.count - 1)
            // A second change of a bit would be none.
            guard !file.flipped.contains(place) else { continue }
            file.bytes[place] ^= UInt8(1 << random.number(0...7))
            file.flipped.append(place)
        }
        return "changed bytes \(file.flipped.map(String.init).joined(separator: ", ")) of \(name)"
    }

    /// Files of a bus that is gone, and rubbish beside them.
    func leaveStaleFiles(in directory: String, _ random: inout Random) {
        directories.insert(directory)
        for _ in 0..<random.number(1...12) {
            let id = (0..<32).map { _ in "0123456789abcdef".randomElement(using: &random)! }
            let file = File()
            file.bytes = (0..<random.number(0...200)).map { _ in UInt8(truncatingIfNeeded: random.next()) }
            files["\(directory)/\(String(id)).\(random.pick(["log", "counts", "log.new", "txt"]))"] = file
        }
    }
}

/// The disk as a process sees it, until it dies.
final class ProcessFiles: StateFiles {
    private let disk: Disk
    private let process: LoopProcess
    private var random: Random

    init(_ disk: Disk, of process: LoopProcess) {
        self.disk = disk
        self.process = process
        random = Random(seed: disk.world.seed, stream: 1 << 40 | UInt64(process.id))
    }

    func open(_ path: String, for opening: RegularFile.Opening) throws(FileError) -> any StateFile {
        guard !process.isDead else { throw FileError(operation: "open \(path)", reason: .system(EIO)) }
        let directory = String(path[..<(path.lastIndex(of: "/") ?? path.startIndex)])
        guard disk.directories.contains(directory) else {
            throw FileError(operation: "open \(path)", reason: .system(ENOENT))
        }
        if opening == .newLog || opening == .newTable { disk.files[path] = nil }
        let file: Disk.File
        if let found = disk.files[path] {
            file = found
        } else {
            file = Disk.File()
            disk.files[path] = file
        }
        return OpenFile(file, path, on: disk, of: process)
    }

    func makeDirectory(_ path: String) throws(FileError) {
        guard process.operate() else { throw FileError(operation: "make \(path)", reason: .system(EIO)) }
        disk.directories.insert(path)
    }

    func names(in directory: String) -> [String] {
        disk.files.keys.filter { $0.hasPrefix(directory + "/") }.map { String($0.dropFirst(directory.count + 1)) }
            .sorted()
    }

    func status(of path: String) -> StateFileStatus? {
        disk.files[path].map { StateFileStatus(size: $0.bytes.count, modified: .microseconds($0.modified)) }
    }

    func remove(_ path: String) {
        if process.operate() { disk.files[path] = nil }
    }

    func isListening(at socket: [UInt8]) -> Bool? { String(decoding: socket, as: UTF8.self) == Bus.socketPath }
}

/// A file that a process has open.
final class OpenFile: StateFile {
    private let file: Disk.File
    private(set) var path: String
    private let disk: Disk
    fileprivate let process: LoopProcess

    fileprivate init(_ file: Disk.File, _ path: String, on disk: Disk, of process: LoopProcess) {
        self.file = file
        self.path = path
        self.disk = disk
        self.process = process
    }

    func size() throws(FileError) -> Int { file.bytes.count }

    var isInPlace: Bool { disk.files[path] === file }
    var isReplaced: Bool { disk.files[path].map { $0 !== file } ?? false }

    func lock() throws(FileError) -> Bool {
        guard !file.isLocked || file.holder === self else { return false }
        file.holder = self
        return true
    }

    func read(at offset: Int, atMost count: Int) throws(FileError) -> [UInt8] {
        guard offset < file.bytes.count else { return [] }
        if file.flipped.contains(where: { (offset..<offset + count).contains($0) }) { process.hasReadDamage = true }
        return Array(file.bytes[offset..<min(file.bytes.count, offset + count)])
    }

    func append(_ bytes: [UInt8]) throws(FileError) {
        let count = try begin(bytes.count)
        file.bytes += bytes[..<count]
        try end(count, of: bytes.count)
    }

    func write(_ words: ArraySlice<UInt64>, at offset: Int) throws(FileError) {
        let size = words.count * 8
        let grown = max(0, offset + size - file.bytes.count)
        // What is there already needs no room.
        let count = try begin(size, needing: grown)
        guard count > 0 else { return try end(count, of: size) }
        if offset + count > file.bytes.count {
            file.bytes += [UInt8](repeating: 0, count: offset + count - file.bytes.count)
        }
        words.withUnsafeBytes { words in
            file.bytes.withUnsafeMutableBytes {
                UnsafeMutableRawBufferPointer(rebasing: $0[offset..<offset + count]).copyMemory(
                    from: UnsafeRawBufferPointer(rebasing: words[..<count]))
            }
        }
        file.flipped.removeAll { (offset..<offset + count).contains($0) }
        try end(count, of: size)
    }

    func allocate(_ count: Int) throws(FileError) {
        let grown = max(0, count - file.bytes.count)
        guard process.operate() else { throw failure(EIO) }
        guard disk.room(for: grown) == grown else { throw failure(ENOSPC) }
        file.bytes += [UInt8](repeating: 0, count: grown)
    }

    func removeAll() throws(FileError) {
        guard process.operate() else { throw failure(EIO) }
        file.bytes = []
        file.flipped = []
    }

    func rename(to path: String) throws(FileError) {
        guard process.operate() else { throw failure(EIO) }
        if disk.files[self.path] === file { disk.files[self.path] = nil }
        disk.files[path] = file
        self.path = path
    }

    func remove() {
        if process.operate() { disk.files[path] = nil }
    }

    /// - Returns: how much of a write arrives: not all where the process dies in it, or the disk is full.
    private func begin(_ count: Int, needing: Int? = nil) throws(FileError) -> Int {
        guard !process.isDead else { throw failure(EIO) }
        file.modified = disk.world.now
        process.spend(1)
        let needed = needing ?? count
        let room = disk.room(for: needed)
        guard process.operate() else {
            // Cut at any byte.
            var random = Random(seed: disk.world.seed, stream: UInt64(disk.world.now))
            let cut = random.number(0...count)
            // A slot of the table lies in one page, of which no kill leaves half; of several written together it may leave
            // the first ones. Where they end, their places being multiples of their size.
            return needing == nil ? cut : cut / 64 * 64
        }
        return needed == room ? count : needing == nil ? room : 0
    }

    private func end(_ written: Int, of count: Int) throws(FileError) {
        guard !process.isDead else { throw failure(EIO) }
        guard written == count else { throw failure(ENOSPC) }
    }

    private func failure(_ code: Int32) -> FileError {
        FileError(operation: "use \(path)", reason: .system(code))
    }
}
