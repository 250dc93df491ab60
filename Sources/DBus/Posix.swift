#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

func closeDescriptor(_ descriptor: Int32) {
    _ = close(descriptor)
}

func environmentVariable(_ name: String) -> String? {
    getenv(name).map { String(cString: $0) }
}

func isSocket(_ path: String) -> Bool {
    var status = stat()
    return stat(path, &status) == 0 && status.st_mode & S_IFMT == S_IFSOCK
}

/// What lies in a socket unread, in bytes; 0 when nobody knows.
func bytesToRead(_ descriptor: Int32) -> Int {
    var count: Int32 = 0
    return ioctl(descriptor, UInt(FIONREAD), &count) == 0 ? Int(count) : 0
}
