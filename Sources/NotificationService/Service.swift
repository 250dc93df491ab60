import DBus
import MainLoop
import NotificationWire

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// The notification center on a bus: a connection, the service's name on it, and the object behind both.
///
/// Threads: all members on the thread that runs `context`.
public final class Service {
    /// Why a service ended by itself.
    public enum End: Error {
        /// There is no bus at the address, or it refused the connection.
        case noBus(BusError)
        /// Another process has the service's name.
        case nameTaken
        /// The bus closed the connection.
        case disconnected
    }

    private let connection: Connection
    /// For ``ClientProber``. Its answers come before the posts, in the loop as well.
    private let control: Connection
    private let object: CenterObject
    private let onEnd: (End) -> Void
    private var hasEnded = false

    /// Connects to the bus at `address`. Call ``start()`` next.
    ///
    /// - Parameter onEnd: called once, from the loop, when the service can't go on.
    /// - Throws: ``End/noBus(_:)``.
    public init(address: String, context: MainContext = .default, onEnd: @escaping (End) -> Void) throws(End) {
        do throws(BusError) {
            connection = try Connection(
                address: address, context: context, priority: .of(.reading))
            control = try Connection(address: address, context: context, priority: .of(.control))
        } catch {
            throw .noBus(error)
        }
        self.onEnd = onEnd
        object = CenterObject(bus: connection)
        connection.onMessage = { [unowned self] message in object.handle(message) }
        for connection in [connection, control] {
            connection.onDisconnect = { [unowned self] in
                object.busDisappeared()
                end(.disconnected)
            }
        }
    }

    /// Registers with the bus, takes the service's name, takes up the state of an earlier process, and serves.
    public func start() {
        connection.hello { [weak self] result in
            guard let self else { return }
            switch result {
            case .failure(let error): end(.noBus(error))
            case .success: startControl()
            }
        }
    }

    private func startControl() {
        control.hello { [weak self] result in
            guard let self else { return }
            switch result {
            case .failure(let error): end(.noBus(error))
            case .success:
                object.prober.use(control: control)
                identifyBus()
            }
        }
    }

    private func identifyBus() {
        connection.busID { [weak self] result in
            guard let self else { return }
            switch result {
            case .failure(let error): end(.noBus(error))
            case .success(let id):
                // Before the name: the call that had the bus start us comes ahead of the answer to RequestName.
                recover(onBus: id)
                requestName()
            }
        }
    }

    private func requestName() {
        connection.requestName(Wire.busName) { [weak self] result in
            guard let self else { return }
            switch result {
            case .failure(let error): end(.noBus(error))
            case .success(.taken): end(.nameTaken)
            case .success(.acquired):
                if let uniqueName = connection.uniqueName { object.followActivity(uniqueName: uniqueName) }
                object.resume()
                Log.notice("serving \(Wire.busName) as \(connection.uniqueName?.rawValue ?? "")")
            }
        }
    }

    private func recover(onBus busID: String) {
        guard let directory = runtimeDirectory() else {
            return Log.notice("XDG_RUNTIME_DIR is not set: a crash of the service will lose registrations")
        }
        guard !busID.isEmpty, busID.allSatisfy(\.isHexDigit) else {
            return Log.warning("the bus has no usable id: a crash of the service will lose registrations")
        }
        object.recover(directory: directory + "/carillon", busID: busID)
    }

    /// Leaves its state in order. Call before the process ends by its own decision.
    public func stop() {
        object.finish()
    }

    /// A handshake that fails may be followed by the end of the connection: the first reason is the one that counts.
    private func end(_ reason: End) {
        guard !hasEnded else { return }
        hasEnded = true
        onEnd(reason)
    }

    /// Reads the configuration files again. With a fault in one, which is logged, everything stays as it was.
    public func reloadConfiguration() {
        object.reloadConfiguration()
    }
}

private func runtimeDirectory() -> String? {
    guard let directory = getenv("XDG_RUNTIME_DIR"), directory[0] == UInt8(ascii: "/") else { return nil }
    return String(cString: directory)
}
