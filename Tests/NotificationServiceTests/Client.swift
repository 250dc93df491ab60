// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCore
import CarillonDBus
import CarillonMainLoop
import CarillonTestSupport
import CarillonWire
import Glibc

/// A client of the service in this process, on a context of its own. Calls block the test's thread by running it.
final class Client {
    let connection: Connection
    private(set) var signals: [NotificationSignal] = []
    /// How many of them came together each time, in signals that are for that.
    private(set) var batches: [Int] = []
    /// How many it was told that it lost, in sum.
    private(set) var lost: UInt64 = 0
    /// Holes in its sequence that are wider than what it was told just before, or numbers that went back.
    private(set) var holes: [String] = []
    /// How often it was told that other names are wanted.
    private(set) var interestChanges = 0
    /// How often it was told that values have gone.
    private(set) var valueRemovals = 0
    private var announced: UInt64 = 0
    private let context = MainContext()

    init(on bus: PrivateBus) throws {
        connection = try Connection(address: bus.address, context: context)
        connection.takeDescriptors()
        connection.onMessage = { [unowned self] message in
            if let dropped = try? DroppedSignal(message) {
                lost += dropped.count
                announced += dropped.count
                return true
            }
            if (try? InterestChangedSignal(message)) != nil {
                interestChanges += 1
                return true
            }
            if (try? ValuesRemovedSignal(message)) != nil {
                valueRemovals += 1
                return true
            }
            if let signal = try? NotificationSignal(message) {
                receive(signal)
                return true
            }
            guard let together = try? NotificationsSignal(message) else { return false }
            batches.append(together.notifications.count)
            together.notifications.forEach(receive)
            return true
        }
        _ = try wait("Hello") { connection.hello(completion: $0) }
    }

    private func receive(_ signal: NotificationSignal) {
        let last = signals.last?.sequence ?? 0
        if signal.sequence <= last || signal.sequence - last - 1 > announced {
            holes.append("\(last), told of \(announced), \(signal.sequence)")
        }
        announced = 0
        signals.append(signal)
    }

    /// The unique name.
    var name: String { connection.uniqueName?.rawValue ?? "" }

    /// Calls a method of the service and returns its answer.
    ///
    /// - Throws: the error reply as ``BusError``, or ``NotInTime``.
    @discardableResult
    func call<Method: CenterMethod>(_ method: Method) throws -> Method.Reply {
        try Method.reply(in: try send(method.message()))
    }

    /// Sends a method call and returns its reply.
    ///
    /// - Throws: as ``call(_:)``.
    func send(_ message: Message) throws -> Message {
        try wait("\(message.member?.rawValue ?? "")") { connection.call(message, completion: $0) }
    }

    @discardableResult
    func addObserver(
        _ name: String, _ object: String = "", behavior: SuspensionBehavior = .coalesce
    ) throws -> ObserverID {
        try call(AddObserver(name: name, object: object, options: .init(suspensionBehavior: behavior)))
    }

    /// Returns how many clients matched.
    @discardableResult
    func post(_ name: String, _ object: String = "") throws -> Int {
        try call(try PostCall(name: name, object: object))
    }

    /// The names and process ids of the service's clients.
    func listClients() throws -> [String: UInt32] {
        Dictionary(uniqueKeysWithValues: try call(ListClients()).map { ($0.name.rawValue, $0.processID) })
    }

    /// Asks for the service's process id of the bus, and so waits until the bus handled all that was sent before.
    func processID(of name: AnyBusName) throws -> UInt32 {
        try wait("processID") { connection.processID(of: name, completion: $0) }
    }

    /// The connections of a process, without the one that owns the service's name.
    func otherConnections(of pid: pid_t) throws -> [UniqueName] {
        let owner = try wait("GetNameOwner") { connection.nameOwner(of: Wire.busName, completion: $0) }
        let reply = try send(
            .methodCall(
                to: "org.freedesktop.DBus", path: "/org/freedesktop/DBus", interface: "org.freedesktop.DBus",
                member: "ListNames"))
        var reader = MessageReader(reply)
        var elements = try reader.readContainer(.array)
        var names: [UniqueName] = []
        while !elements.isAtEnd {
            if let name = UniqueName(rawValue: try elements.readString()) { names.append(name) }
        }
        return try names.filter { try $0 != owner && processID(of: AnyBusName($0)) == UInt32(pid) }
    }

    /// Runs the context as long as something is ready.
    func turn() {
        for _ in 0..<10_000 {
            guard context.iterate(mayBlock: false) else { return }
        }
    }

    /// Runs the context until `condition` holds. The time begins anew with everything that comes.
    ///
    /// - Parameter what: is asked for when it does not come; may tell what the service wrote.
    /// - Throws: ``NotInTime``.
    func run(
        _ what: @autoclosure () -> String, within patience: Patience = .event, until condition: () -> Bool
    ) throws {
        try context.run(
            "\(what()), after \(signals.count) notifications and \(lost) that were lost", within: patience,
            progress: { self.signals.count }, until: condition)
    }

    private func wait<Value>(
        _ what: String, _ start: (@escaping (Result<Value, BusError>) -> Void) -> Void
    ) throws -> Value {
        var result: Result<Value, BusError>?
        start { result = $0 }
        try run("an answer to \(what)") { result != nil }
        return try result!.get()
    }
}
