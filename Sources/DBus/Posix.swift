// SPDX-License-Identifier: Apache-2.0
#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

func closeDescriptor(_ descriptor: Int32) {
    _ = close(descriptor)
}

/// Returns the value of an environment variable; nil if it is not set.
func environmentVariable(_ name: String) -> String? {
    getenv(name).map { String(cString: $0) }
}

/// Whether there is a socket at a path.
func isSocket(_ path: String) -> Bool {
    var status = stat()
    return stat(path, &status) == 0 && status.st_mode & S_IFMT == S_IFSOCK
}

/// Whether a descriptor is that of a Unix socket.
func isUnixSocket(_ descriptor: Int32) -> Bool {
    var family: Int32 = 0
    var size = socklen_t(MemoryLayout.size(ofValue: family))
    return getsockopt(descriptor, SOL_SOCKET, SO_DOMAIN, &family, &size) == 0 && family == AF_UNIX
}

/// Writes the bytes that a socket accepts without blocking.
///
/// - Returns: The number of bytes written; negative for an error in `errno`.
func sendAtOnce(_ bytes: UnsafeRawBufferPointer, to descriptor: Int32) -> Int {
    while true {
        let count = send(descriptor, bytes.baseAddress!, bytes.count, Int32(MSG_NOSIGNAL) | Int32(MSG_DONTWAIT))
        if count >= 0 || errno != EINTR { return count }
    }
}

/// Shuts a socket down in both directions. Each reader of it then detects the end; the descriptor stays open.
func endSocket(_ descriptor: Int32) {
    _ = shutdown(descriptor, Int32(SHUT_RDWR))
}
