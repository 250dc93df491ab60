#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// Writes a line to standard error, for a person at a terminal. What belongs in the journal goes to ``Log``.
public func printError(_ line: String) {
    write(line, to: STDERR_FILENO)
}

/// Writes a line to standard output at once, also into a pipe, where `print` would keep it back.
public func printLine(_ line: String) {
    write(line, to: STDOUT_FILENO)
}

private func write(_ line: String, to descriptor: Int32) {
    var bytes = Array((line + "\n").utf8)[...]
    while !bytes.isEmpty {
        let count = bytes.withUnsafeBytes { write(descriptor, $0.baseAddress, $0.count) }
        guard count > 0 || errno == EINTR else { return }
        bytes = bytes.dropFirst(max(0, count))
    }
}
