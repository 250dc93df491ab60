// SPDX-License-Identifier: Apache-2.0
#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// Writes a line to standard error, for a person at a terminal. What belongs in the journal goes to ``Log``.
///
/// Errors quote what others say: a `?` stands for a control character other than the end of a line and a tabulator.
package func printError(_ line: String) {
    var text = String.UnicodeScalarView()
    for scalar in line.unicodeScalars {
        let isControl = scalar.properties.generalCategory == .control && scalar != "\n" && scalar != "\t"
        text.append(isControl ? "?" : scalar)
    }
    try? write(String(text), to: STDERR_FILENO)
}

/// Writes a line to standard output at once, also into a pipe, where `print` would keep it back. What can't be written
/// is lost; see ``writeLine(_:)``.
package func printLine(_ line: String) {
    try? write(line, to: STDOUT_FILENO)
}

/// Writes a line to standard output at once, and waits where that is a pipe or a terminal that takes no more for now.
///
/// - Throws: why it, or the rest of it, can't be written.
package func writeLine(_ line: String) throws(StreamError) {
    try write(line, to: STDOUT_FILENO)
}

/// Writes a line to a descriptor, and waits where that takes no more for now.
///
/// - Throws: why it, or the rest of it, can't be written.
package func writeLine(_ line: String, to descriptor: Int32) throws(StreamError) {
    try write(line, to: descriptor)
}

/// Why a stream can't be written.
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
            // Somebody who shares the descriptor made it non-blocking.
            var writable = pollfd(fd: descriptor, events: Int16(POLLOUT), revents: 0)
            _ = poll(&writable, 1, -1)
        } else if errno != EINTR {
            throw StreamError(code: errno)
        }
    }
}
