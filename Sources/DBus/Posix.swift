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
