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
    /// Calls that came before the state was taken up; nil when it has been.
    private var waitingCalls: [Message]? = []
    private var stateTimer: EventSource?
    /// How often another process is asked whether it has given the state up: in milliseconds.
    private static let stateInterval: UInt32 = 20
    /// After so long it is taken from a process that has lost the name and does not end.
    private static let mostAttempts = 500
    /// Calls that may wait meanwhile.
    private static let mostWaitingCalls = 1024

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
        connection.onMessage = { [unowned self] message in
            waitingCalls == nil ? object.handle(message) : hold(message)
        }
        for connection in [connection, control] {
            connection.onDisconnect = { [unowned self] in
                object.busDisappeared()
                end(.disconnected)
            }
        }
    }

    /// Registers with the bus, takes the service's name, takes up the state of an earlier process, and serves.
    ///
    /// In this order: whoever has the name has the state, and who does not get the name does not touch it. The call that
    /// had the bus start us comes ahead of the answer to RequestName, so calls wait.
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
            case .success(let id): requestName(onBus: id)
            }
        }
    }

    private func requestName(onBus busID: String) {
        connection.requestName(Wire.busName) { [weak self] result in
            guard let self else { return }
            switch result {
            case .failure(let error): end(.noBus(error))
            case .success(.taken): end(.nameTaken)
            case .success(.acquired): recover(onBus: busID)
            }
        }
    }

    private func recover(onBus busID: String) {
        guard let directory = runtimeDirectory() else {
            Log.notice("XDG_RUNTIME_DIR is not set: a crash of the service will lose registrations")
            return serve()
        }
        guard !busID.isEmpty, busID.allSatisfy(\.isHexDigit) else {
            Log.warning("the bus has no usable id: a crash of the service will lose registrations")
            return serve()
        }
        recover(directory: directory + "/carillon", busID: busID, attempt: 1)
    }

    /// The process that had the name before us may still be about to end: its connection goes before its files.
    private func recover(directory: String, busID: String, attempt: Int) {
        let isLate = attempt > Self.mostAttempts
        if isLate { Log.warning("the process that had the name before does not give the state up: it is taken") }
        guard !object.recover(directory: directory, busID: busID, takesLock: !isLate), !isLate else { return serve() }
        stateTimer = .once(milliseconds: Self.stateInterval, on: connection.context) { [unowned self] in
            recover(directory: directory, busID: busID, attempt: attempt + 1)
        }
    }

    private func serve() {
        if let uniqueName = connection.uniqueName { object.followActivity(uniqueName: uniqueName) }
        object.resume()
        Log.notice("serving \(Wire.busName) as \(connection.uniqueName?.rawValue ?? "")")
        let calls = waitingCalls ?? []
        waitingCalls = nil
        for call in calls where !object.handle(call) && !call.expectsNoReply {
            connection.send(call.errorReply(.unknownMethod("there is no such method")))
        }
    }

    /// Keeps a call for the object until the state has been taken up. Nobody can expect anything else of us yet.
    private func hold(_ message: Message) -> Bool {
        guard message.kind == .methodCall, message.hasPath(Wire.path) else { return false }
        if waitingCalls!.count < Self.mostWaitingCalls {
            waitingCalls!.append(message)
        } else if !message.expectsNoReply {
            connection.send(
                message.errorReply(BusError(name: BusError.limitsExceededName, message: "the service is starting")))
        }
        return true
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
