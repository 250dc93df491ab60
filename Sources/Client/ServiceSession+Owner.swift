// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonDBus
import CarillonWire

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// The owner of the service's name.
extension ServiceSession {
    /// The state of the check of the name's owner.
    enum OwnerDoubt {
        case none
        case asked
        /// No check before this timer fires, because any program can send signals that cause one. `isDue`: such a
        /// signal arrived meanwhile.
        case resting(AnyObject, isDue: Bool)
    }

    /// Checks the owner of the name after another sender sent a signal that only the service sends (E6). The sender is
    /// another program, or the bus had no space to announce a new owner: some buses drop their own signals to slow
    /// readers.
    func doubtOwner() {
        switch ownerDoubt {
        case .none:
            guard let connection else { return }
            ownerDoubt = .asked
            connection.nameOwner(of: Wire.busName) { [weak self, weak connection] result in
                guard let self, connection === self.connection else { return }
                restFromDoubt()
                if let owner = result.owner { ownerChanged(to: owner) }
            }
        case .asked: break
        case .resting(let timer, _): ownerDoubt = .resting(timer, isDue: true)
        }
    }

    private func restFromDoubt() {
        let timer = bus.once(milliseconds: 1000) { [weak self] in
            guard let self, case .resting(_, let isDue) = ownerDoubt else { return }
            ownerDoubt = .none
            if isDue { doubtOwner() }
        }
        ownerDoubt = .resting(timer, isDue: false)
    }

    /// - Parameter completion: receives the owner's unique name and process, as far as the bus reports them; nil when
    ///   the name has no owner.
    func describeOwner(_ completion: @escaping (String?) -> Void) {
        guard let connection else { return completion("another program") }
        connection.nameOwner(of: Wire.busName) { [weak connection] result in
            guard let connection, let known = result.owner else { return completion("another program") }
            guard let owner = known else { return completion(nil) }
            connection.processID(of: owner) { result in
                guard case .success(let processID) = result, processID > 0 else { return completion("\(owner)") }
                let name = programName(of: processID)
                completion("\(owner) (process \(processID)\(name.isEmpty ? "" : ", \(name)"))")
            }
        }
    }

    /// Has systemd start the service, as the bus already requested. If a start is canceled, for example by
    /// `systemctl stop`, systemd does not inform the bus. All callers then wait for the time-out of the bus, which is
    /// two minutes.
    ///
    /// - Parameter refused: receives the reason why systemd does not start the service. It is not called when systemd
    ///   starts it, when there is no systemd, or when systemd knows no such unit; then the bus starts the service
    ///   itself.
    func startByManager(_ refused: @escaping (BusError) -> Void) {
        let manager: WellKnownName = "org.freedesktop.systemd1"
        let message = Message.methodCall(
            to: manager, path: "/org/freedesktop/systemd1", interface: "org.freedesktop.systemd1.Manager",
            member: "StartUnit", startsService: false)
        var writer = MessageWriter(message)
        writer.append(Wire.unit)
        writer.append("replace")
        connection?.call(message) { result in
            guard case .failure(let error) = result, error.name.rawValue.hasPrefix("\(manager)."),
                error.name != "org.freedesktop.systemd1.NoSuchUnit"
            else { return }
            refused(error)
        }
    }
}

extension Result<UniqueName, BusError> {
    /// The owner, or the fact that there is none; nil when the bus did not report it.
    var owner: UniqueName?? {
        switch self {
        case .success(let name): name
        case .failure(let error): error.name == BusError.nameHasNoOwnerName ? .some(nil) : nil
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
