// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCore
import CarillonDBus
import CarillonWire

@testable import CarillonClient

/// What a session is tried on.
extension SessionTests {
    /// What a session told, in words.
    final class Ear: ServiceReceiver, @unchecked Sendable {
        // Sendable: a test has one thread.
        var told: [String] = []

        func received(_ notification: ArrivedNotification, for keys: [RegistrationKey]) {
            told.append("\(notification.name) \(notification.sequence) for \(keys.map { $0.name?.text ?? "any" })")
        }
        func stateChanged(_ state: ConnectionState) { told.append("\(state)") }
        func mayHaveMissed(_ gap: Gap) { told.append("\(gap)") }
        func lostPosts(_ count: Int, because error: ServiceError) {
            for _ in 0..<count { told.append("lost: \(error)") }
        }
        func mayHaveLostPosts(_ count: Int, because reason: String) { told.append("\(count) may be lost: \(reason)") }
        func detailsRefused(because error: ServiceError) { told.append("details refused: \(error)") }
        func registrationRefused(_ key: RegistrationKey, because error: ServiceError) {
            told.append("refused \(key.name?.text ?? ""): \(error)")
        }
        func suspensionChanged(_ isSuspended: Bool, cause: String) { told.append("suspended \(isSuspended) \(cause)") }
        func transportChanged(to transport: Transport, because reason: String?) {
            told.append("\(transport)\(reason.map { " as \($0)" } ?? "")")
        }
        func interestChanged() { told.append("interest changed") }
        func valuesRemoved() { told.append("values removed") }
    }

    final class Stage {
        let bus = SimulatedBus()
        let ear = Ear()
        let outbox = SharedOutbox()
        let session: ServiceSession
        /// What the service has of the client.
        var observers: [ListedObserver] = []
        /// Whether it is a service that knows batches, and which posts of one it refuses.
        var hasBatches = true
        var badPosts: Set<Int> = []
        private var lastID: UInt64 = 0
        private var hasStarted = false

        init(wish: TransportPreference = TransportPreference()) {
            session = ServiceSession(bus: bus, wish: wish, outbox: outbox, receiver: ear)
            serve()
        }

        func ask(_ requests: Request...) throws {
            for request in requests { try outbox.append(request) }
            if hasStarted { session.pump() }
        }

        func start() {
            hasStarted = true
            session.start()
        }

        /// Another service comes, and does not tell what it has of ours.
        func changeToSilentService() {
            let served = bus.answer
            bus.answer = { $0.member == ListObservers.member ? nil : served($0) }
            for owner in ["", ":1.100"] { _ = arrive(.ownerChange(Wire.busName.rawValue, to: owner)) }
        }

        /// The service gives up its name, and there is another one.
        ///
        /// - Parameters:
        ///   - isStartable: whether the bus can start one.
        ///   - answersPing: whether the former one answers what it is asked by its own name.
        ///   - body: runs when the next one has not answered yet.
        func changeOwner(isStartable: Bool = true, answersPing: Bool = true, _ body: () -> Void = {}) {
            let served = bus.answer
            bus.answer = { call in
                switch call.member {
                case "Ping"? where call.destination == ":1.100":
                    answersPing
                        ? .success(call.answered())
                        : .failure(BusError(name: BusError.noReplyName, message: "it has ended"))
                case "ListActivatableNames"?:
                    .success(
                        call.answered { writer in
                            writer.array(of: "s") { if isStartable { $0.append(Wire.busName.rawValue) } }
                        })
                case ListObservers.member?: nil
                default: served(call)
                }
            }
            _ = arrive(.ownerChange(Wire.busName.rawValue, to: ""))
            body()
            bus.answer = served
            _ = arrive(.ownerChange(Wire.busName.rawValue, to: ":1.100"))
            bus.connection.answerPending(served)
        }

        /// From now on there is a service that answers.
        func serve() {
            bus.answer = { [unowned self] call in
                switch call.member {
                case ListObservers.member?:
                    return .success(call.answered { ListObservers.append(self.observers, to: &$0) })
                case ListObserversFrom.member?:
                    var reader = MessageReader(call)
                    guard let wanted = try? ListObserversFrom(from: &reader) else { return nil }
                    // Two in a piece.
                    let piece = observers.filter { $0.id > wanted.after }.prefix(2)
                    return .success(
                        call.answered { writer in
                            ListObserversFrom.append(
                                piece.map { ListedRegistration(observer: $0, options: [:]) }, to: &writer)
                        })
                case AddObserver.member?:
                    var reader = MessageReader(call)
                    guard let wanted = try? AddObserver(from: &reader) else { return nil }
                    lastID += 1
                    let id = ObserverID(rawValue: lastID)
                    observers.append(
                        ListedObserver(
                            id: id, name: wanted.name, object: wanted.object,
                            suspensionBehavior: wanted.options.suspensionBehavior.rawValue))
                    return .success(call.answered { AddObserver.append(id, to: &$0) })
                case PostCall.member?: return .success(call.answered { PostCall.append(1, to: &$0) })
                case PostMany.member? where hasBatches:
                    var reader = MessageReader(call)
                    let count = (try? PostMany(from: &reader))?.posts.count ?? 0
                    let outcomes = (0..<count).map { place in
                        badPosts.contains(place)
                            ? PostOutcome(BusError(.invalidName, message: "")) : PostOutcome(receivers: place)
                    }
                    return .success(call.answered { PostMany.append(outcomes, to: &$0) })
                case PostMany.member? where !hasBatches, SetClientOptions.member? where !hasBatches:
                    return .failure(BusError(name: "org.freedesktop.DBus.Error.UnknownMethod", message: "why"))
                default: return .success(call.answered())
                }
            }
        }

        /// From now on every call to the service fails so.
        func fail(_ name: InterfaceName, _ message: String = "why") {
            bus.answer = { _ in .failure(BusError(name: name, message: message)) }
        }

        func arrive(_ message: Message) -> Bool { bus.connection.onMessage!(message) }

        func notify(_ sequence: UInt64, observer: UInt64 = 1, from sender: String = ":1.100") {
            let signal = NotificationSignal(
                name: "Ding", object: "", userInfo: [:], observers: [ObserverID(rawValue: observer)], poster: ":1.9",
                serial: sequence, sequence: sequence)
            _ = arrive(signal.message(to: ":1.1").carried(from: sender))
        }

        func takeTold() -> [String] {
            defer { ear.told = [] }
            return ear.told
        }
    }

    /// What completions, which may come on any thread, add to a test's list.
    final class Box: @unchecked Sendable {
        // Sendable: a test has one thread.
        let add: (String) -> Void

        init(_ add: @escaping (String) -> Void) {
            self.add = add
        }
    }
}
