import CGLib

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// A configuration file in the format of `GKeyFile`, whose every fault can be named by its line.
///
/// Read here and not by GLib, which does not tell the line of a fault, takes as long as a file is for one that nobody
/// meant (a line costs it several allocations), and would wait for the other end of a pipe.
public struct KeyFile {
    /// What is wrong with a file.
    public struct Fault: Error, CustomStringConvertible, Equatable {
        public let path: String
        /// 1 for the first; nil when the file could not be read at all.
        public let line: Int?
        public let reason: String

        public var description: String { line.map { "\(path):\($0): \(reason)" } ?? "\(path): \(reason)" }
    }

    /// A key and its text.
    public struct Entry: Equatable, Sendable {
        public let group: String
        public let key: String
        public let value: String
        public let line: Int
    }

    /// A larger file is no configuration, and is refused.
    public static let mostBytes = 1 << 20
    /// Lines with keys, beyond which a file is no configuration either: reading one takes a few milliseconds at most.
    public static let mostEntries = 1000

    public let path: String
    /// In the order of the file; of a key that is given twice the last counts, and stands here once.
    public let entries: [Entry]

    /// Reads the file at `path`, which may be a link to one. It is the user's or root's.
    ///
    /// - Returns: nil when there is no such file.
    /// - Throws: ``Fault`` when it can't be read or is no key file.
    public init?(path: String) throws(Fault) {
        let bytes: [UInt8]
        do throws(FileError) {
            guard let contents = try RegularFile.contents(of: path, atMost: Self.mostBytes) else { return nil }
            bytes = contents
        } catch {
            throw Fault(path: path, line: nil, reason: error.description)
        }
        try self.init(path: path, bytes: bytes)
    }

    init(path: String, bytes: [UInt8]) throws(Fault) {
        self.path = path
        guard String(validating: bytes, as: UTF8.self) != nil else {
            throw Fault(path: path, line: nil, reason: "the file is not valid UTF-8")
        }
        guard bytes.firstIndex(of: 0) == nil else {
            throw Fault(path: path, line: nil, reason: "the file has a zero byte")
        }
        var reader = Reader(path: path)
        var (number, start) = (0, 0)
        while start < bytes.count {
            number += 1
            let end = Self.firstNewline(in: bytes, from: start) ?? bytes.count
            try reader.read(bytes[start..<end], number: number)
            start = end + 1
        }
        entries = reader.entries.compactMap(\.self)
    }

    /// The fault that the value of `entry` has.
    public func fault(_ entry: Entry, _ reason: String) -> Fault {
        Fault(path: path, line: entry.line, reason: reason)
    }

    private static func firstNewline(in bytes: [UInt8], from start: Int) -> Int? {
        bytes.withUnsafeBytes { buffer in
            memchr(buffer.baseAddress! + start, Int32(UInt8(ascii: "\n")), buffer.count - start)
                .map { UnsafeRawPointer($0) - buffer.baseAddress! }
        }
    }
}

/// Takes lines one by one.
private struct Reader {
    private struct Place: Hashable {
        let group: String
        let key: String
    }

    let path: String
    private var group: String?
    /// Nil where the same key stands further down.
    private(set) var entries: [KeyFile.Entry?] = []
    private var places: [Place: Int] = [:]

    init(path: String) {
        self.path = path
    }

    mutating func read(_ bytes: ArraySlice<UInt8>, number: Int) throws(KeyFile.Fault) {
        let line = bytes.trimmed
        guard let first = line.first, first != UInt8(ascii: "#") else { return }
        func fault(_ reason: String) -> KeyFile.Fault { KeyFile.Fault(path: path, line: number, reason: reason) }
        // So that an endless line does not fill the log.
        func shown(_ bytes: ArraySlice<UInt8>) -> String {
            String(decoding: bytes.prefix(100), as: UTF8.self) + (bytes.count > 100 ? "…" : "")
        }
        if first == UInt8(ascii: "[") {
            let name = line.dropFirst().dropLast()
            guard line.last == UInt8(ascii: "]"), !name.isEmpty, !name.contains(where: { "[]".utf8.contains($0) }),
                !name.contains(where: { $0 < 0x20 || $0 == 0x7F })
            else { throw fault("'\(shown(line))' is no name of a group") }
            group = String(decoding: name, as: UTF8.self)
            return
        }
        guard let separator = line.firstIndex(of: UInt8(ascii: "=")) else {
            throw fault("'\(shown(line))' is neither a group, nor a key with a value, nor a comment")
        }
        let key = line[..<separator].trimmed
        guard !key.isEmpty else { throw fault("'\(shown(line))' has no key") }
        guard let group else { throw fault("'\(shown(key))' stands before the first group") }
        guard entries.count < KeyFile.mostEntries else {
            throw fault("there are more than \(KeyFile.mostEntries) keys")
        }
        let name = String(decoding: key, as: UTF8.self)
        let value = line[(separator + 1)...].trimmed
        if let before = places.updateValue(entries.count, forKey: Place(group: group, key: name)) {
            entries[before] = nil
        }
        entries.append(
            KeyFile.Entry(
                group: group, key: name, value: String(decoding: Self.unescaped(value) ?? Array(value), as: UTF8.self),
                line: number))
    }

    /// The value with what GKeyFile's escapes stand for; nil when one is wrong: it stays as it is written, so that
    /// whoever looks at the entry refuses it.
    private static func unescaped(_ value: ArraySlice<UInt8>) -> [UInt8]? {
        var bytes: [UInt8] = []
        bytes.reserveCapacity(value.count)
        var rest = value
        while let byte = rest.popFirst() {
            guard byte == UInt8(ascii: "\\") else {
                bytes.append(byte)
                continue
            }
            switch rest.popFirst() {
            case UInt8(ascii: "s"): bytes.append(UInt8(ascii: " "))
            case UInt8(ascii: "n"): bytes.append(UInt8(ascii: "\n"))
            case UInt8(ascii: "t"): bytes.append(UInt8(ascii: "\t"))
            case UInt8(ascii: "r"): bytes.append(UInt8(ascii: "\r"))
            case UInt8(ascii: "\\"): bytes.append(UInt8(ascii: "\\"))
            default: return nil
            }
        }
        return bytes
    }
}

extension ArraySlice<UInt8> {
    /// Without white space at both ends.
    fileprivate var trimmed: ArraySlice<UInt8> {
        func isSpace(_ byte: UInt8) -> Bool { byte == 0x20 || (0x09...0x0D).contains(byte) }
        var bytes = self
        while let first = bytes.first, isSpace(first) { bytes = bytes.dropFirst() }
        while let last = bytes.last, isSpace(last) { bytes = bytes.dropLast() }
        return bytes
    }
}

/// The directories of the XDG base directory specification that hold configuration, the most important first.
public func configurationDirectories() -> [String] {
    var directories = [String(cString: g_get_user_config_dir())]
    var next = g_get_system_config_dirs()
    while let directory = next?.pointee {
        directories.append(String(cString: directory))
        next = next! + 1
    }
    return directories
}
