// SPDX-License-Identifier: Apache-2.0
import CCarillonSystem
import CarillonMainLoop

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// The file system of the machine, as ``RecoveryStore`` uses it.
final class SystemFiles: StateFiles {
    func open(_ path: String, for opening: RegularFile.Opening) throws(FileError) -> any StateFile {
        // The initializer returns nil only for a missing configuration file.
        try RegularFile(path, for: opening)!
    }

    func makeDirectory(_ path: String) throws(FileError) {
        if mkdir(path, 0o700) != 0 && errno != EEXIST {
            throw FileError(operation: "make \(path)", reason: .system(errno))
        }
    }

    func names(in path: String) -> [String] {
        guard let directory = opendir(path) else { return [] }
        defer { closedir(directory) }
        var names: [String] = []
        while let entry = readdir(directory) {
            names.append(
                withUnsafeBytes(of: &entry.pointee.d_name) { bytes in
                    String(decoding: bytes.prefix { $0 != 0 }, as: UTF8.self)
                })
        }
        return names
    }

    func status(of path: String) -> StateFileStatus? {
        var status = stat()
        guard stat(path, &status) == 0 else { return nil }
        return StateFileStatus(
            size: Int(status.st_size),
            modified: .seconds(status.st_mtim.tv_sec) + .nanoseconds(status.st_mtim.tv_nsec))
    }

    func remove(_ path: String) {
        unlink(path)
    }

    func isListening(at path: [UInt8]) -> Bool? {
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        guard path.count < MemoryLayout.size(ofValue: address.sun_path) else { return nil }
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: path) }
        let descriptor = socket(
            AF_UNIX, Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue | SOCK_NONBLOCK.rawValue), 0)
        guard descriptor >= 0 else { return nil }
        defer { close(descriptor) }
        // The address of a path includes a zero byte at the end, that of an abstract name does not.
        let length = MemoryLayout<sa_family_t>.size + path.count + (path.first == 0 ? 0 : 1)
        let isConnected = withUnsafePointer(to: &address) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                connect(descriptor, $0, socklen_t(length)) == 0
            }
        }
        // EAGAIN: a process listens, but its queue of connections is full.
        if isConnected || errno == EAGAIN { return true }
        return errno == ECONNREFUSED || errno == ENOENT ? false : nil
    }
}
