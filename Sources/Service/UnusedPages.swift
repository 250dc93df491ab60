// SPDX-License-Identifier: Apache-2.0
#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// The release of mapped pages of programs and libraries that the process does not need at the moment.
///
/// Most resident pages of an idle service are code that only its start needed, and pages around it: the kernel maps
/// sixteen pages at a time. Released pages are read from their file again when they are used.
enum UnusedPages {
    /// Releases all pages that equal their files: those of mappings that are not writable, and that no relocation or
    /// debugger has changed.
    static func letGo() {
        guard let file = fopen("/proc/self/smaps", "re") else { return }
        defer { fclose(file) }
        var (line, capacity): (UnsafeMutablePointer<CChar>?, Int) = (nil, 0)
        defer { free(line) }
        var mapping: UnsafeMutableRawBufferPointer?
        while getline(&line, &capacity, file) > 0, let text = line {
            if isHead(text) {
                mapping = unwritable(text)
            } else if let pages = mapping, strncmp(text, "Anonymous:", 10) == 0 {
                mapping = nil
                if strtoul(text + 10, nil, 10) == 0 {
                    // Pages that the kernel does not release this way stay.
                    _ = madvise(pages.baseAddress!, pages.count, MADV_DONTNEED)
                }
            }
        }
    }

    /// Whether a line begins the description of a mapping, with an address.
    private static func isHead(_ line: UnsafePointer<CChar>) -> Bool {
        let first = UInt8(bitPattern: line[0])
        return (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(first)
            || (UInt8(ascii: "a")...UInt8(ascii: "f")).contains(first)
    }

    /// Returns the mapping if it is private, of a file, readable and not writable. The line's form is
    /// `start-end perms offset device inode path`.
    private static func unwritable(_ line: UnsafePointer<CChar>) -> UnsafeMutableRawBufferPointer? {
        var end: UnsafeMutablePointer<CChar>?
        let first = strtoul(line, &end, 16)
        guard let dash = end, dash[0] == CChar(bitPattern: UInt8(ascii: "-")) else { return nil }
        let last = strtoul(dash + 1, &end, 16)
        guard let permissions = end, strncmp(permissions, " r-", 3) == 0,
            permissions[4] == CChar(bitPattern: UInt8(ascii: "p"))
        else { return nil }
        _ = strtoul(permissions + 5, &end, 16)
        guard let device = end, let inode = strchr(device + 1, 0x20), strtoul(inode, nil, 10) != 0,
            let start = UnsafeMutableRawPointer(bitPattern: first)
        else { return nil }
        return UnsafeMutableRawBufferPointer(start: start, count: Int(last - first))
    }
}
