// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCore
import CarillonDBus
import CarillonWire

/// Tells when the bus has carried all that the service has sent.
///
/// A bus carries what a connection sends in its order. So a call from the main connection to the **control connection**
/// comes out there behind all signals that were sent before it: they are in their receivers' queues then. The answer of
/// the bus to a call on the main connection would tell the same, but wait there behind all posts that the bus holds for
/// it. It is a call, as every bus answers one that it can't carry.
///
/// Those that are asked for by one event are one (``share(_:)``): it tells the same to all who asked.
///
/// dbus-monitor shows it as `org.carillon.Internal1.Barrier`.
final class BusBarrier {
    private unowned let bus: any MessageBus
    private(set) weak var control: Connection?
    private var last: UInt64 = 0
    /// By their numbers, those that have not come out, with all who asked.
    private var waiting: [UInt64: [Completion]] = [:]
    private typealias Completion = (Result<Void, BusError>) -> Void
    /// Those who asked for the next one, while it is not known who else does.
    private var asking: [Completion] = []
    private var sharers = 0

    private static let interface: InterfaceName = "org.carillon.Internal1"
    private static let member: MemberName = "Barrier"
    private static let form = MessageForm.methodCall(
        path: Wire.path, interface: interface, member: member, signature: "t")
    private static let answer = MessageForm.methodReturn(signature: "")

    /// - Parameter bus: the main connection; the caller keeps it.
    init(bus: any MessageBus) {
        self.bus = bus
    }

    /// Has barriers come out at `control`, which has registered with the bus, from now on.
    func use(control: Connection) {
        self.control = control
    }

    /// Whether there is a control connection where barriers come out.
    var isAnsweredLater: Bool { control?.uniqueName != nil }

    /// - Parameter completion: called once when the bus has carried all that was sent before, or with the error of the
    ///   bus that did not carry the barrier; at once while there is no control connection.
    func pass(_ completion: @escaping (Result<Void, BusError>) -> Void) {
        guard let name = control?.uniqueName else { return completion(.success(())) }
        asking.append(completion)
        if sharers == 0 { send(to: name) }
    }

    /// What passes while `body` runs does so with one barrier, behind all that was sent in it.
    func share(_ body: () -> Void) {
        sharers += 1
        body()
        sharers -= 1
        guard sharers == 0, !asking.isEmpty else { return }
        // The control connection ends no sooner than from the loop.
        if let name = control?.uniqueName { return send(to: name) }
        let completions = asking
        asking = []
        for completion in completions { completion(.success(())) }
    }

    private func send(to name: UniqueName) {
        last += 1
        let number = last
        waiting[number] = asking
        asking = []
        #if CARILLON_PLANTED
            if PlantedFault.strikes(.lostBarrier, oneOf: 16) { return }
        #endif
        let barrier = Message(laidOut: Self.form.message(to: name, size: 8) { $0.append(number) })
        bus.call(barrier) { [weak self] result in
            // One that has arrived is not waited for any more, however its answer fared.
            guard let self, case .failure(let error) = result else { return }
            #if CARILLON_PLANTED
                if PlantedFault.strikes(.refusedBarrier) { return }
            #endif
            end(number, .failure(error))
        }
    }

    private func end(_ number: UInt64, _ result: Result<Void, BusError>) {
        for completion in waiting.removeValue(forKey: number) ?? [] { completion(result) }
    }

    /// Takes a barrier that arrived on the control connection. Returns whether the message was one.
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

    #if CARILLON_PLANTED
        private static var believesAnybody: Bool { PlantedFault.strikes(.barrierBelieved) }
    #else
        private static var believesAnybody: Bool { false }
    #endif

    private static func number(in body: UnsafeRawBufferPointer) -> UInt64? {
        body.count == 8 ? body.loadUnaligned(as: UInt64.self) : nil
    }
}
