// SPDX-License-Identifier: Apache-2.0
#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// Writes a line to standard error, for a person at a terminal. Lines for the journal go to ``Log``.
///
/// Errors quote texts of other programs, so a `?` replaces each control character except the end of a line and the
/// tabulator.
package func printError(_ line: String) {
    var text = String.UnicodeScalarView()
    for scalar in line.unicodeScalars {
        let isControl = scalar.properties.generalCategory == .control && scalar != "\n" && scalar != "\t"
        text.append(isControl ? "?" : scalar)
    }
    try? write(String(text), to: STDERR_FILENO)
}

/// Writes a line to standard output at once, also into a pipe, where `print` would buffer it. A line that can't be
/// written is lost; see ``writeLine(_:)``.
package func printLine(_ line: String) {
    try? write(line, to: STDOUT_FILENO)
}

/// Writes a line to standard output at once. Waits while the pipe or terminal accepts no more.
///
/// - Throws: the reason why the line, or the rest of it, can't be written.
package func writeLine(_ line: String) throws(StreamError) {
    try write(line, to: STDOUT_FILENO)
}

/// Writes a line to a descriptor. Waits while the descriptor accepts no more.
///
/// - Throws: the reason why the line, or the rest of it, can't be written.
package func writeLine(_ line: String, to descriptor: Int32) throws(StreamError) {
    try write(line, to: descriptor)
}

/// The reason why a stream can't be written.
package struct StreamError: Error, CustomStringConvertible {
    package let code: Int32

    package var description: String { String(cString: strerror(code)) }
}

private func write(_ line: String, to descriptor: Int32) throws(StreamError) {
    var bytes = Array((line + "\n").utf8)[...]
    while !bytes.isEmpty {
        let count = bytes.withUnsafeBytes { write(descriptor, $0.baseAddress, $0.count) }
        if count > 0 {
            bytes = bytes.dropFirst(count)
        } else if errno == EAGAIN {
            // Another process that shares the descriptor made it non-blocking.
            var writable = pollfd(fd: descriptor, events: Int16(POLLOUT), revents: 0)
            _ = poll(&writable, 1, -1)
        } else if errno != EINTR {
            throw StreamError(code: errno)
        }
    }
}
