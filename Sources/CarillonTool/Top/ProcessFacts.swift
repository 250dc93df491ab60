// SPDX-License-Identifier: Apache-2.0
#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// The start time and the memory of a process, as the kernel shows them in `/proc`. `carillon top` shows them for the
/// service.
struct ProcessFacts: Equatable, Sendable {
    let id: UInt32
    /// The start time, in seconds since the start of the machine. With the ID it identifies one process, since the
    /// kernel reuses IDs.
    let start: Double
    /// The resident memory, in bytes.
    let memory: UInt64

    /// Reads the facts; nil for a process that has ended, or is hidden, as from inside a sandbox.
    init?(of processID: UInt32) {
        // The fields of /proc/PID/stat are separated by blanks. The second one, the name in parentheses, may contain
        // blanks and parentheses itself, so the fields are counted from its end.
        guard let status = Self.read("/proc/\(processID)/stat"), let name = status.lastIndex(of: ")") else {
            return nil
        }
        let fields = status[status.index(after: name)...].split(separator: " ")
        let ticks = sysconf(Int32(_SC_CLK_TCK))
        // The start time is the 22nd field. The third field has the index 0 here.
        guard fields.count > 19, let start = Double(fields[19]), ticks > 0 else { return nil }
        // The second field of /proc/PID/statm is the number of resident pages.
        guard let pages = Self.read("/proc/\(processID)/statm")?.split(separator: " ").dropFirst().first,
            let resident = UInt64(pages)
        else { return nil }
        id = processID
        self.start = start / Double(ticks)
        memory = resident * UInt64(max(0, sysconf(Int32(_SC_PAGESIZE))))
    }

    /// The time since its start, in seconds.
    var age: Double {
        var now = timespec()
        clock_gettime(CLOCK_BOOTTIME, &now)
        return max(0, Double(now.tv_sec) + Double(now.tv_nsec) / 1e9 - start)
    }

    /// Returns the content of a file of `/proc`; nil if it can't be read.
    private static func read(_ path: String) -> String? {
        let descriptor = open(path, O_RDONLY | O_CLOEXEC)
        guard descriptor >= 0 else { return nil }
        defer { close(descriptor) }
        // Each file is one short line, which a single call reads completely.
        var buffer = [UInt8](repeating: 0, count: 1024)
        let count = buffer.withUnsafeMutableBytes { bytes in readBytes(descriptor, bytes) }
        return count > 0 ? String(decoding: buffer[..<count], as: UTF8.self) : nil
    }
}

/// Calls `read` of the C library, whose name the method above hides.
private func readBytes(_ descriptor: Int32, _ bytes: UnsafeMutableRawBufferPointer) -> Int {
    read(descriptor, bytes.baseAddress, bytes.count)
}
