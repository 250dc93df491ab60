// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonDBus
import CarillonWire

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// The owner of the service's name: a check against unexpected senders, and a description for error reports.
extension ServiceSession {
    /// The state of the check whether the bus announced the current owner of the name.
    enum OwnerCheck {
        /// No check is in progress.
        case none
        /// The bus has been asked for the owner.
        case asked
        /// A pause of one second after a check. Any program can send signals that cause a check, so the rate is
        /// limited. `isDue` is true if such a signal arrived during the pause; a check then follows it.
        case pausing(AnyObject, isDue: Bool)
    }

    /// Asks the bus for the owner of the name after a signal of the service's interface came from another sender (E6).
    /// There are two explanations:
    ///
    /// - The sender is another program, and the signal is forged.
    /// - The sender is the new owner, and its announcement was lost. Some buses drop their own signals to slow readers.
    func checkOwner() {
        switch ownerCheck {
        case .none:
            guard let connection else { return }
            ownerCheck = .asked
            connection.nameOwner(of: Wire.busName) { [weak self, weak connection] result in
                guard let self, connection === self.connection else { return }
                pauseOwnerChecks()
                if let owner = result.owner { ownerChanged(to: owner) }
            }
        case .asked: break
        case .pausing(let timer, _): ownerCheck = .pausing(timer, isDue: true)
        }
    }

    /// Begins the pause after a check.
    private func pauseOwnerChecks() {
        let timer = bus.once(milliseconds: 1000) { [weak self] in
            guard let self, case .pausing(_, let isDue) = ownerCheck else { return }
            ownerCheck = .none
            if isDue { checkOwner() }
        }
        ownerCheck = .pausing(timer, isDue: false)
    }

    /// Describes the owner of the name for an error report.
    ///
    /// - Parameter completion: receives the owner's unique name and process, as far as the bus reports them, or
    ///   "another program" if it reports neither; nil when the name has no owner.
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

    /// Asks systemd to start the service, although the bus has already asked it. The reason is a canceled start, for
    /// example by `systemctl stop`: systemd does not inform the bus of it, and all callers wait for the bus's timeout
    /// of two minutes. A second request starts the service, or reports the reason of a refusal at once.
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
    /// The owner; `.some(nil)` when the name has no owner, and nil when the bus did not report it.
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
