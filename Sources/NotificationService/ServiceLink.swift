import DBus
import MainLoop
import NotificationWire

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// One stay of the service on its bus: the connections, the object behind them, and the way to the name.
final class ServiceLink {
    /// How it ended.
    enum End {
        /// The bus did not take us.
        case refused(BusError)
        /// The bus closed a connection.
        case disconnected
        /// It is not the bus on which the service was before.
        case otherBus
        /// Another connection has the service's name.
        case nameTaken
        /// The bus took the name away.
        case nameLost
    }

    let object: CenterObject
    private let address: String
    private let connection: Connection
    /// For ``ClientProber``. Its answers come before the posts, in the loop as well.
    private let control: Connection
    private var heritage: Heritage?
    private var sizeTest: SizeTest?
    private var busID: String?
    private var hasState = false
    private var hasEnded = false
    /// Called when the service has its name and serves.
    var onServing: (() -> Void)?
    private let onEnd: (End) -> Void

    /// Connects. Call ``start()`` next.
    ///
    /// - Parameters:
    ///   - heritage: what the service had when the bus closed its connection before.
    ///   - onEnd: called once, from the loop.
    init(
        address: String, context: MainContext, heritage: Heritage?, onEnd: @escaping (End) -> Void
    ) throws(BusError) {
        self.address = address
        connection = try Connection(address: address, context: context, priority: .of(.reading))
        control = try Connection(address: address, context: context, priority: .of(.control))
        self.heritage = heritage
        self.onEnd = onEnd
        object = CenterObject(bus: connection, configuration: heritage?.configuration)
        connection.onMessage = { [unowned self] message in
            if losesName(message) {
                end(.nameLost)
                return true
            }
            return object.handle(message)
        }
        for connection in [connection, control] {
            connection.onDisconnect = { [unowned self] in end(.disconnected) }
        }
    }

    /// Registers with the bus, takes up what was there before, takes the service's name, and serves.
    func start() {
        connection.hello { [weak self] result in
            self?.with(result) { $0.startControl() }
        }
    }

    /// What the next one needs; nil when this one has not taken it up yet. Call once, when it ended.
    func handOver() -> Heritage? {
        guard hasState, let busID else { return nil }
        hasState = false
        return object.handOver(busID: busID)
    }

    private func startControl() {
        control.hello { [weak self] result in
            self?.with(result) {
                $0.object.prober.use(control: $0.control)
                $0.identifyBus()
            }
        }
    }

    private func identifyBus() {
        connection.busID { [weak self] result in
            guard let self else { return }
            switch result {
            case .failure(let error): end(.refused(error))
            case .success(let id):
                // Before the name: the call that had the bus start us comes ahead of the answer to RequestName.
                guard takeUpState(onBus: id) else { return end(.otherBus) }
                requestName()
            }
        }
    }

    private func takeUpState(onBus id: String) -> Bool {
        busID = id
        if let heritage {
            guard heritage.busID == id else { return false }
            object.inherit(heritage)
            suspect(heritage.largest, known: heritage.mostBytes)
            self.heritage = nil
        } else {
            recover(onBus: id)
        }
        hasState = true
        return true
    }

    private func requestName() {
        connection.requestName(Wire.busName) { [weak self] result in
            self?.with(result) { link, outcome in
                guard outcome == .acquired else { return link.end(.nameTaken) }
                let uniqueName = link.connection.uniqueName
                if let uniqueName { link.object.followActivity(uniqueName: uniqueName) }
                link.object.resume()
                Log.notice("serving \(Wire.busName) as \(uniqueName?.rawValue ?? "")")
                link.onServing?()
            }
        }
    }

    /// A large notification may have cost the connection before: tries whether the bus carries one of that size, and
    /// sends none meanwhile.
    private func suspect(_ size: Int, known: Int) {
        guard size > SizeTest.harmless, size < known else { return }
        object.mostBytes = size
        sizeTest = SizeTest(size: size, address: address, context: connection.context) { [unowned self] isCarried in
            object.mostBytes = isCarried ? known : max(SizeTest.harmless, size - size / 8)
            if !isCarried {
                Log.warning(
                    "the bus carries no notification of \(size) bytes; larger than \(object.mostBytes) are not sent",
                    ["CARILLON_REASON": "bus-limits"])
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

    private func losesName(_ message: Message) -> Bool {
        guard message.isSignal("org.freedesktop.DBus", "NameLost"), message.isFromBus else { return false }
        var reader = MessageReader(message)
        return (try? reader.readString()) == Wire.busName.rawValue
    }

    private func with<Value>(_ result: Result<Value, BusError>, _ goOn: (ServiceLink, Value) -> Void) {
        switch result {
        case .failure(let error): end(.refused(error))
        case .success(let value): goOn(self, value)
        }
    }

    private func with<Value>(_ result: Result<Value, BusError>, _ goOn: (ServiceLink) -> Void) {
        with(result) { link, _ in goOn(link) }
    }

    /// A handshake that fails may be followed by the end of the connection: the first reason is the one that counts.
    private func end(_ reason: End) {
        guard !hasEnded else { return }
        hasEnded = true
        onEnd(reason)
    }
}

private func runtimeDirectory() -> String? {
    guard let directory = getenv("XDG_RUNTIME_DIR"), directory[0] == UInt8(ascii: "/") else { return nil }
    return String(cString: directory)
}
