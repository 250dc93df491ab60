// SPDX-License-Identifier: Apache-2.0
#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// The facts about a process that the kernel shows in `/proc`.
struct ProcessFacts: Equatable, Sendable {
    let id: UInt32
    /// The start time, in seconds on the clock that starts with the machine. With the ID it identifies one process.
    let start: Double
    /// The resident memory, in bytes.
    let memory: UInt64

    /// Nil for a process that is gone, or hidden, as from inside a sandbox.
    init?(of processID: UInt32) {
        // The name is in parentheses, and may contain parentheses itself.
        guard let status = Self.read("/proc/\(processID)/stat"), let name = status.lastIndex(of: ")") else {
            return nil
        }
        let fields = status[status.index(after: name)...].split(separator: " ")
        let ticks = sysconf(Int32(_SC_CLK_TCK))
        // The 22nd field of all; the first field here is the third.
        guard fields.count > 19, let start = Double(fields[19]), ticks > 0 else { return nil }
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

    private static func read(_ path: String) -> String? {
        let descriptor = open(path, O_RDONLY | O_CLOEXEC)
        guard descriptor >= 0 else { return nil }
        defer { close(descriptor) }
        // Each file is one line of numbers.
        var buffer = [UInt8](repeating: 0, count: 1024)
        let count = buffer.withUnsafeMutableBytes { bytes in readBytes(descriptor, bytes) }
        return count > 0 ? String(decoding: buffer[..<count], as: UTF8.self) : nil
    }
}

/// The C library's `read`, which has the same name as a method there.
private func readBytes(_ descriptor: Int32, _ bytes: UnsafeMutableRawBufferPointer) -> Int {
    read(descriptor, bytes.baseAddress, bytes.count)
}
