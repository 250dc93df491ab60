import CGLib

/// A configuration file in the format of `GKeyFile`, whose every fault can be named by its line.
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

    public let path: String
    /// In the order of the file; of a key that is given twice the last counts, and stands here once.
    public let entries: [Entry]

    /// Reads the file at `path`.
    ///
    /// - Returns: nil when there is no such file.
    /// - Throws: ``Fault`` when it can't be read or is no key file.
    public init?(path: String) throws(Fault) {
        var contents: UnsafeMutablePointer<gchar>?
        var length: gsize = 0
        var error: UnsafeMutablePointer<GError>?
        guard g_file_get_contents(path, &contents, &length, &error) != 0 else {
            defer { g_error_free(error) }
            let isMissing =
                g_error_matches(error, g_file_error_quark(), gint(G_FILE_ERROR_NOENT.rawValue)) != 0
                || g_error_matches(error, g_file_error_quark(), gint(G_FILE_ERROR_NOTDIR.rawValue)) != 0
            if isMissing { return nil }
            throw Fault(path: path, line: nil, reason: String(cString: error!.pointee.message))
        }
        defer { g_free(contents) }
        let bytes = UnsafeRawBufferPointer(start: contents, count: Int(length))
        self.path = path
        let lines = bytes.split(separator: UInt8(ascii: "\n"), omittingEmptySubsequences: false)
        if let reason = Self.parsingError(of: bytes) {
            throw Fault(path: path, line: Self.firstBadLine(of: bytes, lines: lines), reason: reason)
        }
        entries = Self.entries(of: bytes, lines: lines.map { String(decoding: $0, as: UTF8.self) })
    }

    /// The fault that the value of `entry` has.
    public func fault(_ entry: Entry, _ reason: String) -> Fault {
        Fault(path: path, line: entry.line, reason: reason)
    }

    private static func load(_ bytes: UnsafeRawBufferPointer) -> (file: OpaquePointer, reason: String?) {
        let file = g_key_file_new()!
        var error: UnsafeMutablePointer<GError>?
        let text = bytes.baseAddress.map { $0.assumingMemoryBound(to: gchar.self) }
        guard bytes.count > 0, g_key_file_load_from_data(file, text, gsize(bytes.count), G_KEY_FILE_NONE, &error) == 0
        else { return (file, nil) }
        defer { g_error_free(error) }
        return (file, String(cString: error!.pointee.message))
    }

    private static func parsingError(of bytes: UnsafeRawBufferPointer) -> String? {
        guard String(validating: bytes, as: UTF8.self) != nil else { return "the file is not valid UTF-8" }
        // GLib takes the rest of such a line for empty.
        guard !bytes.contains(0) else { return "the file has a zero byte" }
        let (file, reason) = load(bytes)
        g_key_file_unref(file)
        return reason
    }

    /// GLib does not tell the line, but the shortest beginning of the file that it refuses ends with it.
    private static func firstBadLine(of bytes: UnsafeRawBufferPointer, lines: [Slice<UnsafeRawBufferPointer>]) -> Int {
        for (index, line) in lines.enumerated()
        where parsingError(of: UnsafeRawBufferPointer(rebasing: bytes[..<line.endIndex])) != nil {
            return index + 1
        }
        return lines.count
    }

    private static func entries(of bytes: UnsafeRawBufferPointer, lines: [String]) -> [Entry] {
        let (file, _) = load(bytes)
        defer { g_key_file_unref(file) }
        var group = ""
        var entries: [Entry] = []
        for (index, line) in lines.enumerated() {
            let text = line.trimmed
            if text.hasPrefix("["), let end = text.firstIndex(of: "]") {
                group = String(text[text.index(after: text.startIndex)..<end])
            } else if !text.hasPrefix("#"), let separator = text.firstIndex(of: "=") {
                let key = String(text[..<separator]).trimmed
                // What GLib does not give (a wrong escape, a key with a language) stays as it is written, so that
                // whoever looks at the entry refuses it.
                let value = g_key_file_get_string(file, group, key, nil)
                defer { g_free(value) }
                let written = String(text[text.index(after: separator)...]).trimmed
                entries.removeAll { $0.group == group && $0.key == key }
                entries.append(
                    Entry(
                        group: group, key: key, value: value.map { String(cString: $0) } ?? written, line: index + 1))
            }
        }
        return entries
    }
}

extension String {
    fileprivate var trimmed: String {
        var text = self[...]
        while let first = text.first, first.isWhitespace { text = text.dropFirst() }
        while let last = text.last, last.isWhitespace { text = text.dropLast() }
        return String(text)
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
