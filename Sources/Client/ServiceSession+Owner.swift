// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonDBus
import CarillonWire

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// Who has the service's name.
extension ServiceSession {
    /// Whether it is being found out who has it.
    enum OwnerDoubt {
        case none
        case asked
        /// Not before this timer: whoever wants can send what makes one doubt. `isDue`: something did.
        case resting(AnyObject, isDue: Bool)
    }

    /// Something that only the service says came from somebody else (E6). That is a stranger, or the bus had no room to
    /// tell that the name has another owner: not every bus keeps its own signals for who does not read.
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

    /// - Parameter completion: gets the owner's unique name and process, as far as the bus tells them; nil where nobody
    ///   has the name.
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

    /// Has systemd start the service. The bus asked for that already; but where the start was called off, as by
    /// `systemctl stop` while it went on, systemd does not tell the bus, and all callers wait for the time-out of the bus,
    /// which is two minutes.
    ///
    /// - Parameter refused: gets why systemd does not start it; not called where it does, where there is no systemd to ask,
    ///   or where it knows no such unit: then the bus starts the service by itself.
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
    /// Who has the name, or that nobody has it; nil where the bus did not say.
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
