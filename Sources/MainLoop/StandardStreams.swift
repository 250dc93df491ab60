// SPDX-License-Identifier: Apache-2.0
#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// Writes a line to standard error, for a person at a terminal. Lines for the journal go to ``Log``.
///
/// A `?` replaces each control character except newline and tab, because errors quote texts of other programs, which
/// could send control sequences to the terminal.
package func printError(_ line: String) {
    var text = String.UnicodeScalarView()
    for scalar in line.unicodeScalars {
        let isControl = scalar.properties.generalCategory == .control && scalar != "\n" && scalar != "\t"
        text.append(isControl ? "?" : scalar)
    }
    try? write(String(text), to: STDERR_FILENO)
}

/// Writes a line to standard output without buffering; `print` would buffer it if the output is a pipe. Errors are
/// ignored; ``writeLine(_:)`` throws them.
package func printLine(_ line: String) {
    try? write(line, to: STDOUT_FILENO)
}

/// Writes a line to standard output without buffering. Blocks while the pipe or terminal is full.
///
/// - Throws: the error, if the line or a part of it can't be written.
package func writeLine(_ line: String) throws(StreamError) {
    try write(line, to: STDOUT_FILENO)
}

/// Writes a line to a descriptor. Blocks while the pipe, socket or terminal behind it is full.
///
/// - Throws: the error, if the line or a part of it can't be written.
package func writeLine(_ line: String, to descriptor: Int32) throws(StreamError) {
    try write(line, to: descriptor)
}

/// The error of a failed write to a stream.
package struct StreamError: Error, CustomStringConvertible {
    /// The `errno`.
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
