import BusNames
import DBus
import NotificationWire

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// Who has the service's name, in words.
extension ServiceSession {
    /// - Parameter completion: gets the owner's unique name and process, as far as the bus tells them.
    func describeOwner(_ completion: @escaping (String) -> Void) {
        guard let connection else { return completion("another program") }
        connection.nameOwner(of: Wire.busName) { [weak connection] result in
            guard let connection, case .success(let owner) = result else { return completion("another program") }
            connection.processID(of: owner) { result in
                guard case .success(let processID) = result, processID > 0 else { return completion("\(owner)") }
                let name = programName(of: processID)
                completion("\(owner) (process \(processID)\(name.isEmpty ? "" : ", \(name)"))")
            }
        }
    }
}

/// The kernel's short name of the program; empty when the process is gone or hidden, as from inside a sandbox.
private func programName(of processID: UInt32) -> String {
    let descriptor = open("/proc/\(processID)/comm", O_RDONLY | O_CLOEXEC)
    guard descriptor >= 0 else { return "" }
    defer { close(descriptor) }
    var buffer = [UInt8](repeating: 0, count: 64)
    let count = read(descriptor, &buffer, buffer.count)
    guard count > 0 else { return "" }
    return String(decoding: buffer[..<count].prefix { $0 != UInt8(ascii: "\n") }, as: UTF8.self)
}
