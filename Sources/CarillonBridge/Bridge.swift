// SPDX-License-Identifier: Apache-2.0
import DBus
import MQTT
import MainLoop
import NotificationWire

/// The bridge of a session to other machines (G2): one for each session, with a name on its bus.
///
/// Threads: all on that of the context.
public final class Bridge {
    /// Why it can't go on.
    public enum End: Error {
        case noBus(BusError)
        /// The session has a bridge already.
        case nameTaken
        /// The bus closed the connection.
        case disconnected
        /// With this configuration there can be no connection.
        case configuration(String)
    }

    private let address: String
    private let context: MainContext
    private let connection: Connection
    private let ended: (End) -> Void
    private var crossing: Crossing
    private var reading: BridgeConfiguration.Reading
    private var exporter: ObjectExporter!

    /// - Parameters:
    ///   - reading: the configuration, in which the bridge is on.
    ///   - address: of the session bus.
    ///   - ended: called when the bridge can't go on.
    /// - Throws: ``End``.
    public init(
        _ reading: BridgeConfiguration.Reading, address: String, context: MainContext = .default,
        ended: @escaping (End) -> Void
    ) throws(End) {
        self.address = address
        self.context = context
        self.ended = ended
        self.reading = reading
        crossing = try Self.crossing(reading.configuration, address, context)
        do throws(BusError) {
            connection = try Connection(address: address, context: context)
        } catch {
            throw .noBus(error)
        }
        exporter = ObjectExporter(path: BridgeWire.path, interface: interface)
        connection.onMessage = { [unowned self] message in exporter.handle(message, from: connection) }
        connection.onDisconnect = { [unowned self] in stop { self.ended(.disconnected) } }
    }

    private static func crossing(
        _ configuration: BridgeConfiguration, _ address: String, _ context: MainContext
    ) throws(End) -> Crossing {
        do throws(MQTTError) {
            return try Crossing(configuration, sessionBus: address, context: context, state: StateFile())
        } catch {
            throw .configuration(error.description)
        }
    }

    /// Begins when the session's bus has given it the name.
    public func start() {
        connection.hello { [unowned self] result in
            guard case .success = result else { return ended(.disconnected) }
            connection.requestName(BridgeWire.busName) { [unowned self] result in
                switch result {
                case .success(.acquired): crossing.start()
                case .success(.taken): ended(.nameTaken)
                case .failure(let error): ended(.noBus(error))
                }
            }
        }
    }

    /// - Parameter done: called when the broker has been told, within about a second.
    public func stop(_ done: @escaping () -> Void) { crossing.stop(done) }

    /// Reads the configuration again, and connects anew where it is another one.
    ///
    /// - Throws: what is wrong with it; then everything stays as it is.
    public func reload() throws(BusError) {
        let next: Crossing
        reading = .ofMachine()
        do {
            for fault in reading.faults.dropFirst() { Log.warning("configuration refused: \(fault)") }
            if let first = reading.faults.first { throw first }
            let configuration = reading.configuration
            guard configuration != crossing.configuration else { return }
            guard configuration.isOn else {
                throw End.configuration("no broker is configured any more; end the bridge instead")
            }
            next = try Self.crossing(configuration, address, context)
        } catch {
            let reason = if case End.configuration(let reason) = error { reason } else { "\(error)" }
            Log.warning("configuration refused, the old one stays: \(reason)")
            throw BusError(.invalidConfiguration, message: reason)
        }
        Log.notice("the configuration is another one: connecting anew")
        let last = crossing
        crossing = next
        // Held until it has said good-bye.
        last.stop {
            next.start()
            withExtendedLifetime(last) {}
        }
    }

    // MARK: The object on the bus

    private var interface: Interface {
        let dictionary = [Interface.Argument("status", "a{sv}", qtType: "QVariantMap")]
        return Interface(
            name: BridgeWire.interface,
            methods: [
                Interface.Method(BridgeWire.getStatus, in: [], out: dictionary) {
                    [unowned self] call throws(BusError) in
                    try call.expectNoDescriptors()
                    var status = crossing.status
                    status.files = reading.files
                    status.errors = reading.faults.map(\.description)
                    call.reply { status.append(to: &$0) }
                },
                Interface.Method(
                    BridgeWire.test, in: [], out: [Interface.Argument("result", "a{sv}", qtType: "QVariantMap")]
                ) { [unowned self] call throws(BusError) in
                    try call.expectNoDescriptors()
                    let answer = call.answer
                    crossing.test { result in
                        switch result {
                        case .success(let time):
                            let microseconds = UInt64(clamping: time.microseconds)
                            answer.reply { BridgeWire.append(roundTrip: microseconds, to: &$0) }
                        case .failure(let failure):
                            answer.reply(with: BusError(name: BridgeWire.notConnected, message: failure.reason))
                        }
                    }
                },
                Interface.Method(BridgeWire.reload, in: [], out: []) { [unowned self] call throws(BusError) in
                    try call.expectNoDescriptors()
                    try reload()
                    call.reply()
                },
            ], signals: [], properties: [])
    }
}
