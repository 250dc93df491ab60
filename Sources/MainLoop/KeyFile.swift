// SPDX-License-Identifier: Apache-2.0
import CCarillonGLib

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// A configuration file in the format of `GKeyFile` (`[group]` lines, and `key=value` lines), with line numbers for all
/// faults. The service and the bridge read their configuration with it.
///
/// This type has its own parser, because GLib's parser has three disadvantages. It does not report the line of a fault.
/// It blocks when the path names a pipe. Its time and memory grow with the size of the file, even if the file is no
/// configuration.
package struct KeyFile {
    /// A fault in a file.
    package struct Fault: Error, CustomStringConvertible, Equatable {
        package let path: String
        /// The number of the line, beginning with 1; nil when the file could not be read at all.
        package let line: Int?
        package let reason: String

        package var description: String { line.map { "\(path):\($0): \(reason)" } ?? "\(path): \(reason)" }
    }

    /// A key of a group, with its value.
    package struct Entry: Equatable, Sendable {
        package let group: String
        package let key: String
        package let value: String
        package let line: Int
    }

    /// The maximum number of faults that are reported for a file.
    package static let maxFaults = 20
    /// The maximum size of a file in bytes. A larger file is no configuration, and is refused.
    package static let maxBytes = 1 << 20
    /// The maximum number of lines that are neither blank nor comments. The lines behind it are not read, and a fault
    /// is reported. This limit and the next keep the reading time to milliseconds for any content.
    package static let maxEntries = 1000
    /// The maximum length of such a line, in bytes. A longer line is a fault.
    package static let maxEntryBytes = 4096

    package let path: String
    /// The entries in the order of the file. If a key occurs twice in a group, only the last entry is kept. A line with
    /// a fault appears as an entry with an empty key, if its group is known: callers thus see which groups have faults.
    package let entries: [Entry]
    /// The faults of lines, in the order of the file. A file that can't be read has one fault, without a line.
    package let faults: [Fault]
    /// Whether the file may have unknown entries, for one of these reasons:
    ///
    /// - The file can't be read to its end.
    /// - The name of a group can't be read.
    /// - A line without a key and value may be the name of a group.
    package let hasUnknownEntries: Bool

    /// Reads the file at `path`, which may be a link. The file must belong to the user or to root.
    ///
    /// - Returns: nil when there is no such file.
    /// - Throws: ``Fault`` when the file can't be read or is no key file.
    package init?(path: String) throws(Fault) {
        self.init(readableOf: path)
        if let fault = faults.first { throw fault }
    }

    /// Reads the file at `path`, and keeps the lines without a fault. The others are in ``faults``.
    ///
    /// - Returns: nil when there is no such file.
    package init?(readableOf path: String) {
        do throws(FileError) {
            guard let bytes = try RegularFile.contents(of: path, atMost: Self.maxBytes) else {
                // The result nil stands for two errors of the system. ENOENT: the file, its directory, or the target of
                // a link is missing. ENOTDIR: the parent is no directory. A missing file and a missing directory mean
                // that there is no configuration; a broken link and a parent of another type are faults.
                var status = stat()
                if lstat(path, &status) == 0 {
                    self.init(path: path, fault: "it is a link to a missing file")
                    return
                }
                let directory = path.utf8.lastIndex(of: UInt8(ascii: "/")).map { String(path[..<$0]) } ?? "."
                guard lstat(directory, &status) == 0 else { return nil }
                guard stat(directory, &status) != 0 || status.st_mode & S_IFMT != S_IFDIR else { return nil }
                self.init(path: path, fault: "\(directory) is not a directory")
                return
            }
            self.init(readableOf: bytes, path: path)
        } catch {
            self.init(path: path, fault: error.description)
        }
    }

    /// Reads bytes in memory, as ``init(path:)`` reads a file.
    package init(path: String, bytes: [UInt8]) throws(Fault) {
        self.init(readableOf: bytes, path: path)
        if let fault = faults.first { throw fault }
    }

    /// Reads bytes in memory, as ``init(readableOf:)`` reads a file.
    package init(readableOf bytes: [UInt8], path: String) {
        var reader = Reader(path: path)
        var faults: [Fault] = []
        var (number, start) = (0, 0)
        while !reader.isFull,
            let line = bytes.withUnsafeBytes({ $0.nextLine(from: &start, number: &number) })
        {
            do throws(Fault) {
                try reader.read(bytes[line], number: number)
            } catch {
                if faults.count < Self.maxFaults { faults.append(error) }
                reader.recordFaultyLine(bytes[line], number: number)
            }
        }
        self.init(
            path: path, entries: reader.entries.compactMap(\.self), faults: faults,
            hasUnknownEntries: reader.hasUnknownEntries)
    }

    private init(path: String, entries: [Entry], faults: [Fault], hasUnknownEntries: Bool) {
        (self.path, self.entries, self.faults) = (path, entries, faults)
        self.hasUnknownEntries = hasUnknownEntries
    }

    private init(path: String, fault reason: String) {
        let fault = Fault(path: path, line: nil, reason: reason)
        self.init(path: path, entries: [], faults: [fault], hasUnknownEntries: true)
    }

    /// Returns the value of `entry` as a Boolean.
    ///
    /// - Throws: ``Fault`` when it is neither `true` nor `false`.
    package func boolean(_ entry: Entry) throws(Fault) -> Bool {
        switch entry.value {
        case "true": return true
        case "false": return false
        default: throw fault(entry, "'\(entry.value)' is neither true nor false for \(entry.key)")
        }
    }

    /// Returns the value of `entry` as a decimal number.
    ///
    /// - Throws: ``Fault`` when the value is no number in `range`.
    package func number<Number: FixedWidthInteger>(
        _ entry: Entry, _ range: ClosedRange<Number>
    ) throws(Fault) -> Number {
        guard let value = Number(entry.value), range.contains(value) else {
            throw fault(
                entry,
                "'\(entry.value)' is not a number from \(range.lowerBound) to \(range.upperBound) for \(entry.key)")
        }
        return value
    }

    /// Returns a fault of the value of `entry`.
    package func fault(_ entry: Entry, _ reason: String) -> Fault {
        Fault(path: path, line: entry.line, reason: reason)
    }
}

extension UnsafeRawBufferPointer {
    /// Whether the bytes are UTF-8 without a zero byte.
    fileprivate var isText: Bool {
        isEmpty || g_utf8_validate(baseAddress!.assumingMemoryBound(to: gchar.self), gssize(count), nil) != 0
    }

    /// Returns the next line that is neither blank nor a comment; nil when there is none.
    ///
    /// - Parameters:
    ///   - start: the start of the line to begin with; afterwards the start of the line behind the returned one.
    ///   - number: the number of the line before `start`; afterwards the number of the returned line.
    fileprivate func nextLine(from start: inout Int, number: inout Int) -> Range<Int>? {
        while start < count {
            let rest = baseAddress! + start
            let length = memchr(rest, Int32(UInt8(ascii: "\n")), count - start).map { UnsafeRawPointer($0) - rest }
            let line = start..<start + (length ?? count - start)
            number += 1
            start = line.upperBound + 1
            var first = line.lowerBound
            while first < line.upperBound, self[first].isSpace { first += 1 }
            if first < line.upperBound, self[first] != UInt8(ascii: "#") { return first..<line.upperBound }
        }
        return nil
    }
}

/// The parser of a key file, which takes lines one by one.
private struct Reader {
    /// The identity of an entry: the key in its group.
    private struct EntryKey: Hashable {
        let group: String
        let key: String
    }

    let path: String
    /// The group of the next lines; nil before the first group, and when a group's name can't be read.
    private var group: String?
    /// Whether the name of the current group can't be read. The entries of the group are then ignored.
    private var isGroupFaulty = false
    /// The entries so far; nil for an entry whose key occurs again later.
    private(set) var entries: [KeyFile.Entry?] = []
    /// The index in `entries` of each key.
    private var indices: [EntryKey: Int] = [:]
    /// The number of lines so far.
    private var count = 0
    /// Whether there are more entries than a configuration may have.
    var isFull: Bool { count > KeyFile.maxEntries }
    /// Whether a faulty line may be the name of a group, so that the file may have unknown entries
    /// (``KeyFile/hasUnknownEntries``).
    private var hasUnknownGroup = false
    var hasUnknownEntries: Bool { isFull || hasUnknownGroup }

    init(path: String) {
        self.path = path
    }

    /// Parses a line that is neither blank nor a comment: begins a group, or appends an entry.
    mutating func read(_ bytes: ArraySlice<UInt8>, number: Int) throws(KeyFile.Fault) {
        func fault(_ reason: String) -> KeyFile.Fault { KeyFile.Fault(path: path, line: number, reason: reason) }
        // The text of a fault quotes at most 100 bytes of the line, with `?` for control characters: faults go to the
        // log and over D-Bus.
        func shown(_ bytes: ArraySlice<UInt8>) -> String {
            let text = String(decoding: bytes.prefix(100).map { $0 < 0x20 || $0 == 0x7F ? 0x3F : $0 }, as: UTF8.self)
            return text + (bytes.count > 100 ? "…" : "")
        }
        count += 1
        guard count <= KeyFile.maxEntries else { throw fault("there are more than \(KeyFile.maxEntries) entries") }
        guard bytes.count <= KeyFile.maxEntryBytes else { throw fault("'\(shown(bytes))' is too long") }
        guard bytes.withUnsafeBytes({ $0.isText }) else {
            throw fault("'\(shown(bytes))' is not valid UTF-8, or has a zero byte")
        }
        let line = bytes.trimmed
        if line.first == UInt8(ascii: "[") {
            let name = line.dropFirst().dropLast()
            guard line.last == UInt8(ascii: "]"), !name.isEmpty, !name.contains(where: { "[]".utf8.contains($0) }),
                !name.contains(where: { $0 < 0x20 || $0 == 0x7F })
            else { throw fault("'\(shown(line))' is not the name of a group") }
            (group, isGroupFaulty) = (String(decoding: name, as: UTF8.self), false)
            return
        }
        // The meaning of keys in a faulty group is unknown.
        guard !isGroupFaulty else { return }
        guard let separator = line.firstIndex(of: UInt8(ascii: "=")) else {
            throw fault("'\(shown(line))' is neither a group, nor a key with a value, nor a comment")
        }
        let key = line[..<separator].trimmed
        guard !key.isEmpty else { throw fault("'\(shown(line))' has no key") }
        guard let group else { throw fault("'\(shown(key))' stands before the first group") }
        let name = String(decoding: key, as: UTF8.self)
        let value = line[(separator + 1)...].trimmed
        if let before = indices.updateValue(entries.count, forKey: EntryKey(group: group, key: name)) {
            entries[before] = nil
        }
        entries.append(
            KeyFile.Entry(
                group: group, key: name, value: String(decoding: Self.unescaped(value) ?? Array(value), as: UTF8.self),
                line: number))
    }

    /// Records a line with a fault. A faulty line without `=` may be a mistyped group name. It is then unknown to which
    /// group the later lines belong, so the file may have unknown entries.
    mutating func recordFaultyLine(_ bytes: ArraySlice<UInt8>, number: Int) {
        if bytes.first == UInt8(ascii: "[") { (group, isGroupFaulty) = (nil, true) }
        if group == nil || !bytes.contains(UInt8(ascii: "=")) { hasUnknownGroup = true }
        guard let group else { return }
        entries.append(KeyFile.Entry(group: group, key: "", value: "", line: number))
    }

    /// Returns the value with GKeyFile's escapes replaced; nil when an escape is wrong. The caller then keeps the value
    /// as written, so that the check of the entry refuses it.
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
    /// The bytes without white space at both ends.
    fileprivate var trimmed: ArraySlice<UInt8> {
        var bytes = self
        while let first = bytes.first, first.isSpace { bytes = bytes.dropFirst() }
        while let last = bytes.last, last.isSpace { bytes = bytes.dropLast() }
        return bytes
    }
}

extension UInt8 {
    fileprivate var isSpace: Bool { self == 0x20 || (0x09...0x0D).contains(self) }
}

/// The directories of the XDG base directory specification that hold configuration, the most important first.
package func configurationDirectories() -> [String] {
    var directories = [String(cString: g_get_user_config_dir())]
    var next = g_get_system_config_dirs()
    while let directory = next?.pointee {
        directories.append(String(cString: directory))
        next = next! + 1
    }
    return directories
}
