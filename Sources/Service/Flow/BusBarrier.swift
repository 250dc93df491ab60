// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCore
import CarillonDBus
import CarillonWire

/// The sender of barriers. A barrier confirms that the bus has accepted all messages that the service sent before it.
///
/// A barrier is a method call from the service's main connection to its second one, the **control connection**. A bus
/// forwards the messages of a connection in their order. When the call arrives at the control connection, all earlier
/// messages are therefore in the queues of their receivers. It is a call, and not a signal, because every bus returns
/// an error for a call that it can't carry. dbus-monitor shows it as `org.carillon.Internal1.Barrier`.
///
/// A call to the bus itself would confirm the same. Its reply would wait behind all posts that the bus holds for the
/// main connection, and the control connection receives no posts.
///
/// ``ClientProber`` sends a Ping behind each barrier, and ``DeliveryReceipts`` records deliveries for the next service.
/// Requests inside one ``share(_:)`` have one barrier together.
///
/// Threads: only that of the service's main loop.
final class BusBarrier {
    /// The main connection.
    private unowned let bus: any MessageBus
    /// The control connection; nil where there is none.
    private(set) weak var control: Connection?
    /// The number of the last barrier, which is the argument of its call.
    private var last: UInt64 = 0
    /// The completions of the barriers that have not arrived, by the barriers' numbers.
    private var waiting: [UInt64: [Completion]] = [:]
    private typealias Completion = (Result<Void, BusError>) -> Void
    /// The completions of the next barrier, while ``share(_:)`` collects them.
    private var asking: [Completion] = []
    /// The number of nested ``share(_:)`` calls that are running.
    private var sharers = 0

    private static let interface: InterfaceName = "org.carillon.Internal1"
    private static let member: MemberName = "Barrier"
    /// The header of a barrier's message; its body is the number of the barrier.
    private static let form = MessageTemplate.methodCall(
        path: Wire.path, interface: interface, member: member, signature: "t")
    private static let answer = MessageTemplate.methodReturn(signature: "")

    /// - Parameter bus: the main connection; the caller keeps it.
    init(bus: any MessageBus) {
        self.bus = bus
    }

    /// Sets the control connection, which must have registered with the bus.
    func use(control: Connection) {
        self.control = control
    }

    /// Whether ``pass(_:)`` completes later, because there is a control connection. Without one, it completes at once.
    var isAnsweredLater: Bool { control?.uniqueName != nil }

    /// Sends a barrier behind all messages that were sent so far.
    ///
    /// - Parameter completion: called once: with success when the barrier has arrived, or with the error of a bus that
    ///   did not carry it. Without a control connection it is called at once.
    func pass(_ completion: @escaping (Result<Void, BusError>) -> Void) {
        guard let name = control?.uniqueName else { return completion(.success(())) }
        asking.append(completion)
        if sharers == 0 { send(to: name) }
    }

    /// Runs `body`, and then sends one barrier for all requests that `body` has made. It follows all messages that
    /// `body` has sent.
    func share(_ body: () -> Void) {
        sharers += 1
        body()
        sharers -= 1
        guard sharers == 0, !asking.isEmpty else { return }
        // `asking` has entries only if there was a control connection. If it has ended meanwhile, they complete at
        // once.
        if let name = control?.uniqueName { return send(to: name) }
        let completions = asking
        asking = []
        for completion in completions { completion(.success(())) }
    }

    /// Sends a barrier with the collected completions.
    private func send(to name: UniqueName) {
        last += 1
        let number = last
        waiting[number] = asking
        asking = []
        #if CARILLON_PLANTED
            if PlantedFault.strikes(.lostBarrier, oneOf: 16) { return }
        #endif
        let barrier = Message(marshalled: Self.form.message(to: name, size: 8) { $0.append(number) })
        bus.call(barrier) { [weak self] result in
            // Only an error is handled here: the arrival of the call completes the barrier, and its reply does not
            // matter.
            guard let self, case .failure(let error) = result else { return }
            #if CARILLON_PLANTED
                if PlantedFault.strikes(.refusedBarrier) { return }
            #endif
            end(number, .failure(error))
        }
    }

    /// Calls the completions of a barrier, once.
    private func end(_ number: UInt64, _ result: Result<Void, BusError>) {
        for completion in waiting.removeValue(forKey: number) ?? [] { completion(result) }
    }

    /// Completes a barrier that arrived on the control connection. Only calls from the main connection count.
    ///
    /// - Returns: whether the message was a barrier.
    func handle(_ message: Message) -> Bool {
        guard let control, message.kind == .methodCall, message.hasInterface(Self.interface),
            message.hasMember(Self.member), let sender = message.sender,
            sender == (bus as? Connection)?.uniqueName || Self.believesAnybody
        else { return false }
        control.send(Self.answer.message(to: sender, answering: message.serial, size: 0) { _ in })
        let number = message.hasSignature("t") ? message.withMarshalledBody(Self.number(in:)) : nil
        if let number { end(number, .success(())) }
        return true
    }

    /// Whether barriers of other senders are accepted, as a planted fault for tests.
    #if CARILLON_PLANTED
        private static var believesAnybody: Bool { PlantedFault.strikes(.unverifiedBarrier) }
    #else
        private static var believesAnybody: Bool { false }
    #endif

    /// Returns the number in the body of a barrier; nil where the body is malformed.
    private static func number(in body: UnsafeRawBufferPointer) -> UInt64? {
        body.count == 8 ? body.loadUnaligned(as: UInt64.self) : nil
    }
}
