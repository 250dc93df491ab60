// SPDX-License-Identifier: Apache-2.0
import CarillonActivity
import CarillonBusNames
import CarillonCore
import CarillonDBus
import CarillonMainLoop
import CarillonTestSupport
import CarillonWire
import Testing

@testable import CarillonService

/// The service in this process, on a bus that is the test's: connections, their processes and sandboxes, the
/// configuration and the clock are what the test says, and what the bus has not carried yet can be held.
///
/// For rules that no real bus is needed for. Nothing happens but while ``run(_:until:)`` runs, and time goes on only when
/// nothing else can: what is due next is due then. So a test waits for no time, and the same happens each time.
final class ServiceStage {
    /// What the bus knows of a connection, and the kernel of its process.
    struct Process {
        var confinement = Confinement.none
        /// The systemd unit of an application; nil for none.
        var unit: String?
        var userID: UInt32 = 1000
        /// Runs beside the loop before it is told whether a sandbox confines it; nil when that is known at once.
        var obstacle: (@Sendable () -> Void)?
    }

    /// What the configuration says. Change it with ``configure(_:)``.
    private(set) var configuration: Configuration
    /// Whether an application in a sandbox could have called without being seen.
    var maySandboxesCall = false
    /// How many of the next calls take long to serve, so that those of their process wait that come behind them.
    var slowCalls = 0
    /// Whether the bus keeps barriers to itself.
    var holdsBarriers = false
    /// Whether the bus has no room for a Ping to a client.
    var refusesPings = false
    /// Whether the bus keeps its answer to who a caller is.
    var holdsCredentials = false
    private(set) var end: Service.End?
    private(set) var service: Service!
    /// The service's connections: a main one and a control one, and again after the bus has closed them.
    private(set) var lines: [StageLine] = []
    let context: MainContext
    let clock = StageClock()
    private let directory: TemporaryDirectory
    private var clients: [UniqueName: StageClient] = [:]
    fileprivate var processes: [UInt32: Process] = [:]
    /// Of connections; the others have left before the bus was asked.
    private var processIDs: [UniqueName: UInt32] = [:]
    private var lastClient = 100
    private var heldCalls: [(Message, StageLine, UInt32)] = []
    /// No test waits for more, in microseconds of its clock.
    private static let patience: Int64 = 300_000_000

    /// - Parameter configuration: changes the standard one, with which nobody is suspended by activity.
    init(_ configure: (inout Configuration) -> Void = { _ in }) throws {
        directory = try TemporaryDirectory()
        context = MainContext(clock: clock)
        configuration = .standard
        configuration.suspendsAutomatically = false
        configure(&configuration)
        var machine = Machine.simulated(
            address: "unix:path=/nowhere", runtimeDirectory: directory.path, files: SystemFiles(),
            processes: Processes(stage: self), configuration: { [unowned self] in .init(self.configuration) },
            connect: { [unowned self] context, _ throws(BusError) in
                let line = StageLine(number: lines.count + 1, on: self)
                lines.append(line)
                return Connection(line, context: context)
            }, makeStream: ChannelSocket.makePair,
            time: { [clock] in clock.microseconds }, uptime: { [clock] in clock.microseconds },
            noteServing: { [unowned self] in
                guard slowCalls > 0 else { return }
                slowCalls -= 1
                clock.microseconds += 6000
            })
        machine.maySandboxesCall = { [unowned self] in maySandboxesCall }
        service = try Service(on: machine, context: context) { [unowned self] reason in end = reason }
        service.start()
        try run("the service serves") { service.center != nil && isServing }
    }

    /// The connection that calls go to.
    var main: StageLine { lines[lines.count - 2] }
    var control: StageLine { lines[lines.count - 1] }

    private var isServing: Bool { lines.count % 2 == 0 && main.hasName }

    /// Has the service read another configuration.
    func configure(_ change: (inout Configuration) -> Void) {
        self.change(change)
        service.reloadConfiguration()
    }

    /// Another configuration stands in the files, and was not read.
    func change(_ change: (inout Configuration) -> Void) { change(&configuration) }

    /// A new client.
    ///
    /// - Parameter process: nil for one that has left by the time that the bus is asked whose it is.
    func join(_ process: Process? = Process()) -> StageClient {
        lastClient += 1
        let client = StageClient(":1.\(lastClient)", on: self)
        clients[client.name] = client
        if let process {
            let id = UInt32(lastClient)
            processes[id] = process
            processIDs[client.name] = id
        }
        return client
    }

    /// Another connection of the process of a client.
    func join(sharingProcessOf other: StageClient) -> StageClient {
        lastClient += 1
        let client = StageClient(":1.\(lastClient)", on: self)
        clients[client.name] = client
        processIDs[client.name] = processIDs[other.name]
        return client
    }

    /// The client leaves the bus, which tells the service.
    func leave(_ client: StageClient) {
        clients[client.name] = nil
        processIDs[client.name] = nil
        // A bus answers for it what it has not answered.
        for (ping, line) in client.unanswered {
            let error = BusError(name: BusError.noReplyName, message: "it left")
            line.arrive(
                Message.errorReply(error, to: line.name, serial: ping.serial).carried(
                    from: "org.freedesktop.DBus", serial: 1))
        }
        main.arrive(OwnerChange.departure(of: client.name))
    }

    /// The bus closes the service's connections, which gets others.
    func disconnect() throws {
        let before = lines.count
        main.close()
        try run("the service is back") { lines.count == before + 2 && isServing }
    }

    /// The bus tells who has called, which it had kept to itself.
    func releaseCredentials() {
        holdsCredentials = false
        let calls = heldCalls
        heldCalls = []
        for (call, line, serial) in calls { line.arrive(answer(to: call, of: line, serial: serial)) }
    }

    // MARK: Time

    /// Has the loop go on until something is so.
    ///
    /// - Throws: ``NotInTime`` when nothing more comes of what there is.
    func run(_ what: String, until isDone: () throws -> Bool) throws {
        let end = clock.microseconds + Self.patience
        while try !isDone() {
            guard goOn(until: end) else { throw NotInTime("\(what): nothing more happens") }
        }
    }

    /// Has the loop go on for so long by its clock: until nothing more happens in that time.
    func pass(milliseconds: Int64) {
        let end = clock.microseconds + milliseconds * 1000
        while goOn(until: end) {}
        clock.microseconds = max(clock.microseconds, end)
    }

    /// Has the loop go on until nothing more comes of what has happened, but what waits for a time.
    func settle() { pass(milliseconds: 20) }

    /// - Returns: false when nothing happens before that time.
    private func goOn(until end: Int64) -> Bool {
        clock.goOn(until: end) { turn() }
    }

    /// Has the loop take one turn, in which no time goes by.
    ///
    /// - Returns: whether something happened.
    @discardableResult
    func turn() -> Bool {
        var isBusy = false
        for line in lines where line.handOn() { isBusy = true }
        if context.iterate(mayBlock: false) { isBusy = true }
        return isBusy
    }

    // MARK: The bus

    fileprivate func carry(_ message: Message, from line: StageLine, serial: UInt32) {
        guard let destination = message.destination else { return }
        if destination == "org.freedesktop.DBus" {
            guard !message.expectsNoReply else { return }
            if holdsCredentials, message.member == "GetConnectionCredentials" {
                return heldCalls.append((message, line, serial))
            }
            return line.arrive(answer(to: message, of: line, serial: serial))
        }
        if let other = lines.first(where: { AnyBusName($0.name) == destination }) {
            guard !(holdsBarriers && message.member == "Barrier") else { return }
            return other.arrive(message.carried(from: AnyBusName(line.name), serial: serial))
        }
        guard let name = destination.unique, let client = clients[name] else { return }
        guard !(refusesPings && message.member == "Ping") else {
            let error = BusError(name: BusError.limitsExceededName, message: "no room")
            return line.arrive(
                Message.errorReply(error, to: line.name, serial: serial).carried(
                    from: "org.freedesktop.DBus", serial: 1))
        }
        client.take(message, serial: serial, from: line)
    }

    private func answer(to call: Message, of line: StageLine, serial: UInt32) -> Message {
        let reply = Message.forgedReply(to: line.name, serial: serial)
        var writer = MessageWriter(reply)
        switch call.member?.rawValue {
        case "Hello": writer.append(line.name.rawValue)
        case "GetId": writer.append("0123456789abcdef0123456789abcdef")
        case "RequestName":
            writer.append(UInt32(1))
            line.hasName = true
        case "GetConnectionCredentials":
            guard let id = processID(askedIn: call) else { return nobody(line, serial) }
            writer.array(of: "{sv}") { writer in
                writer.entry("ProcessID", id)
                writer.entry("UnixUserID", processes[id]?.userID ?? 0)
            }
        case "GetConnectionUnixProcessID":
            guard let id = processID(askedIn: call) else { return nobody(line, serial) }
            writer.append(id)
        default: break
        }
        return reply.carried(from: "org.freedesktop.DBus", serial: 1)
    }

    private func processID(askedIn call: Message) -> UInt32? {
        var reader = MessageReader(call)
        return (try? reader.readString()).flatMap(UniqueName.init).flatMap { processIDs[$0] }
    }

    private func nobody(_ line: StageLine, _ serial: UInt32) -> Message {
        Message.errorReply(
            BusError(name: BusError.nameHasNoOwnerName, message: "it left"), to: line.name, serial: serial
        ).carried(from: "org.freedesktop.DBus", serial: 1)
    }

    private struct Processes: ProcessTable {
        unowned let stage: ServiceStage
        let now: UInt64 = 0

        func name(of _: UInt32) -> String { "" }
        func confinement(of processID: UInt32) -> Lookup<Confinement> {
            guard let process = stage.processes[processID] else { return .known(.unknown) }
            guard let obstacle = process.obstacle else { return .known(process.confinement) }
            let confinement = process.confinement
            return .mayBlock {
                obstacle()
                return confinement
            }
        }
        func facts(of _: UInt32) -> Lookup<ProcessFacts?> { .known(nil) }
        func environment(of _: UInt32) -> Lookup<SessionEnvironment?> { .known(nil) }
        func description(of processID: UInt32, startedBy _: UInt64) -> ProcessDescription? {
            stage.processes[processID].map { process in
                ProcessDescription(name: "", unit: process.unit, application: process.unit.map(Self.application))
            }
        }

        /// `app-org.example.App-1.scope` is one of `org.example.App`.
        private static func application(_ unit: String) -> String {
            unit.split(separator: "-").dropFirst().first.map(String.init) ?? unit
        }
    }
}

/// A connection of the service to the bus of a stage.
final class StageLine: MessageTransport {
    var onMessage: ((Message) -> Void)?
    var isConnected = true
    var maxReceivedBytes = 63 << 20
    var isPaused = false
    let socket: Int32? = nil
    let outgoingBytes = 0
    let name: UniqueName
    fileprivate(set) var hasName = false
    /// All that it was given to send, in its order, but what has descriptors.
    private(set) var sent: [Message] = []
    private unowned let stage: ServiceStage
    private var arriving: [Message] = []
    private var lastSerial: UInt32 = 0

    fileprivate init(number: Int, on stage: ServiceStage) {
        name = UniqueName(unchecked: ":1.\(number)")
        self.stage = stage
    }

    @discardableResult
    func send(_ message: Message) -> UInt32 {
        let serial = message.numbered {
            lastSerial += 1
            return lastSerial
        }
        guard isConnected else { return serial }
        // Whoever keeps a descriptor keeps what it is an end of from being closed.
        if !message.hasDescriptors { sent.append(message) }
        stage.carry(message, from: self, serial: serial)
        return serial
    }

    func registered(as _: UniqueName) {}

    /// Something is there to be read.
    func arrive(_ message: Message) { arriving.append(message) }

    /// - Returns: whether there was something.
    fileprivate func handOn() -> Bool {
        guard !arriving.isEmpty, !isPaused else { return false }
        let messages = arriving
        arriving = []
        for message in messages where isConnected { onMessage?(message) }
        return true
    }

    func close() {
        guard isConnected else { return }
        isConnected = false
        let signal = Message.signal(
            path: "/org/freedesktop/DBus/Local", interface: "org.freedesktop.DBus.Local", member: "Disconnected")
        onMessage?(signal.carried(from: nil, serial: 1))
    }
}
