import DBus
import MainLoop
import NotificationWire

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
    private let object: CenterObject
    private let onEnd: (End) -> Void

    /// Connects to the bus at `address`. Call ``start()`` next.
    ///
    /// - Parameter onEnd: called once, from the loop, when the service can't go on.
    /// - Throws: ``End/noBus(_:)``.
    public init(address: String, context: MainContext = .default, onEnd: @escaping (End) -> Void) throws(End) {
        do throws(BusError) {
            connection = try Connection(address: address, context: context)
        } catch {
            throw .noBus(error)
        }
        self.onEnd = onEnd
        object = CenterObject(bus: connection)
        connection.onMessage = { [unowned self] message in object.handle(message) }
        connection.onDisconnect = { [unowned self] in self.onEnd(.disconnected) }
    }

    /// Registers with the bus, then takes the service's name; from then on it serves.
    public func start() {
        connection.hello { [weak self] result in
            guard let self else { return }
            switch result {
            case .failure(let error): onEnd(.noBus(error))
            case .success: requestName()
            }
        }
    }

    private func requestName() {
        connection.requestName(Wire.busName) { [weak self] result in
            guard let self else { return }
            switch result {
            case .failure(let error): onEnd(.noBus(error))
            case .success(.taken): onEnd(.nameTaken)
            case .success(.acquired): Log.notice("serving \(Wire.busName) as \(connection.uniqueName?.rawValue ?? "")")
            }
        }
    }

    /// Reads the configuration files again. With a fault in one, which is logged, everything stays as it was.
    public func reloadConfiguration() {
        try? object.reloadConfiguration()
    }
}
