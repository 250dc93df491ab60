// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// The reading of standard input as a whole, for `carillon post --json -`.
enum StandardInput {
    /// The maximum size of the input, in bytes: five times the largest userInfo that a service can accept (16 MiB),
    /// since JSON escapes lengthen a text.
    private static let maxBytes = 80 << 20

    /// Returns the input up to its end, for which it waits.
    static func readAll() throws(UsageError) -> String {
        var bytes: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: 65_536)
        while true {
            let count = read(STDIN_FILENO, &buffer, buffer.count)
            if count < 0, errno == EINTR { continue }
            if count < 0 { throw UsageError("standard input: \(String(cString: strerror(errno)))") }
            guard count > 0 else { break }
            bytes += buffer[..<count]
            guard bytes.count <= maxBytes else { throw UsageError("standard input is too large to be posted") }
        }
        guard let text = String(validating: bytes, as: UTF8.self) else {
            throw UsageError("standard input is not valid UTF-8")
        }
        return text
    }
}
