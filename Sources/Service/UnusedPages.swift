// SPDX-License-Identifier: Apache-2.0
#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// The release of resident pages of the program file and its libraries, to reduce the memory of an idle service.
///
/// Most resident pages of an idle service are code that only its start needed, and neighbors of such code, because the
/// kernel maps sixteen pages at a time. The kernel reads a released page from its file again when it is used.
/// ``MemoryReturn`` calls this in quiet moments.
enum UnusedPages {
    /// Releases all pages that are identical to their file: the pages of mappings that are not writable, and in which
    /// the loader or a debugger has changed no page.
    static func releaseAll() {
        guard let file = fopen("/proc/self/smaps", "re") else { return }
        defer { fclose(file) }
        var (line, capacity): (UnsafeMutablePointer<CChar>?, Int) = (nil, 0)
        defer { free(line) }
        var mapping: UnsafeMutableRawBufferPointer?
        while getline(&line, &capacity, file) > 0, let text = line {
            // A mapping is a head line with its addresses, followed by lines such as "Anonymous: 8 kB": its changed
            // pages.
            if isHead(text) {
                mapping = unwritable(text)
            } else if let pages = mapping, strncmp(text, "Anonymous:", 10) == 0 {
                mapping = nil
                if strtoul(text + 10, nil, 10) == 0 {
                    // An error is ignored: the kernel then keeps the pages.
                    _ = madvise(pages.baseAddress!, pages.count, MADV_DONTNEED)
                }
            }
        }
    }

    /// Whether a line is the head of a mapping: it begins with a lower-case hexadecimal address, all other lines with a
    /// capital letter.
    private static func isHead(_ line: UnsafePointer<CChar>) -> Bool {
        let first = UInt8(bitPattern: line[0])
        return (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(first)
            || (UInt8(ascii: "a")...UInt8(ascii: "f")).contains(first)
    }

    /// Returns the mapping of a head line if it is private, of a file, readable and not writable; otherwise nil. The
    /// form of the line is `start-end perms offset device inode path`; the inode is 0 where there is no file.
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
