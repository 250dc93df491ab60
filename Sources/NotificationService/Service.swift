import DBus
import MainLoop
import NotificationCore
import NotificationWire

/// The notification center on a bus: the shell around ``DistributedCenter``.
///
/// It decodes what comes in, makes one call into the core, and carries the effects out. Everything runs on the thread
/// of `context`; nothing blocks.
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

    let center = DistributedCenter()
    let connection: Connection
    let clients: ClientRegistry
    /// Calls that were refused, also those whose sender wanted no answer.
    private(set) var refused: UInt64 = 0
    /// Reused from event to event.
    private var effects: [Effect] = []
    private var exporter: ObjectExporter!
    /// The message serial of the last notification. They are counted in the upper half of the numbers, where libdbus,
    /// which numbers all other messages, does not come.
    var lastSignal = firstSignal
    static let firstSignal: UInt32 = 1 << 31
    /// For clients that never answered a probe.
    var probeTimers: [ClientName: EventSource] = [:]
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
        clients = ClientRegistry(connection: connection)
        exporter = ObjectExporter(path: Wire.path, interface: centerInterface(of: self))
        exporter.onRefusal = { [unowned self] call, error in noteRefusal(of: call, error) }
        try? reloadConfiguration()  // a fault has been logged, and the standard values stay
        connection.onMessage = { [unowned self] message in handle(message) }
        connection.onDisconnect = { [unowned self] in self.onEnd(.disconnected) }
    }

    /// Reads the configuration and applies it. With a fault in it, everything stays as it was.
    ///
    /// - Throws: the fault, with file and line. It has been logged.
    public func reloadConfiguration() throws(KeyFile.Fault) {
        do throws(KeyFile.Fault) {
            let configuration = try Configuration()
            guard configuration.limits != center.limits else { return }
            center.limits = configuration.limits
            Log.notice("configuration changed")
            if connection.uniqueName != nil { connection.send(exporter.propertiesChanged(["Limits"])) }
        } catch {
            Log.warning("configuration refused, the old one stays: \(error)", ["CARILLON_REASON": error.reason])
            throw error
        }
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

    private func handle(_ message: Message) -> Bool {
        if message.kind == .methodCall, let sender = message.sender {
            perform { effects in center.clientShowedLife(sender.rawValue, effects: &effects) }
        }
        if let change = OwnerChange(message) {
            if change.newOwner == nil {
                perform { effects in center.clientDisappeared(change.name.rawValue, effects: &effects) }
            }
            return true
        }
        return exporter.handle(message, from: connection)
    }

    /// Makes one call into the core, and carries out what it decided.
    func perform<Result, Failure: Error>(
        _ event: (inout [Effect]) throws(Failure) -> Result
    ) throws(Failure) -> Result {
        defer { effects.removeAll(keepingCapacity: true) }
        let result = try event(&effects)
        for effect in effects { carryOut(effect) }
        return result
    }

    /// An error whose sender wanted no answer is lost silently nowhere (D3): it is counted, and logged with the sender.
    private func noteRefusal(of call: MethodCall, _ error: BusError) {
        refused += 1
        let fields: Log.Fields = ["CARILLON_CLIENT": call.sender.rawValue, "CARILLON_REASON": error.name.rawValue]
        guard call.message.expectsNoReply else {
            return Log.debug("refused a call of \(call.sender): \(error)", fields)
        }
        // A client that repeats a mistake for ever shall not fill the journal: 1, 2, 4, 8 … of its refusals are logged.
        let count = clients.countRefusal(of: call.sender.rawValue)
        if count & (count - 1) == 0 {
            Log.warning("refused a call of \(call.sender), who wants no answer (\(count) so far): \(error)", fields)
        }
    }
}
