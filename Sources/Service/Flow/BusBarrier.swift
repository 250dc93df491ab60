// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCore
import CarillonDBus
import CarillonWire

/// A barrier that confirms that the bus has carried all messages that the service has sent.
///
/// A bus carries the messages of a connection in their order. A barrier is a call from the main connection to the
/// **control connection**. When it arrives there, all signals that were sent before it are in their receivers' queues.
/// The bus's reply to a call on the main connection would show the same, but it would wait behind all posts that the
/// bus holds for that connection. The barrier is a call because every bus returns an error for a call that it can't
/// carry.
///
/// Requests of one event share a barrier (``share(_:)``), which reports to all of them.
///
/// dbus-monitor shows a barrier as `org.carillon.Internal1.Barrier`.
///
/// Threads: that of the connections' context.
final class BusBarrier {
    private unowned let bus: any MessageBus
    private(set) weak var control: Connection?
    private var last: UInt64 = 0
    /// The completions of the barriers that have not arrived, by the barriers' numbers.
    private var waiting: [UInt64: [Completion]] = [:]
    private typealias Completion = (Result<Void, BusError>) -> Void
    /// The completions that the next barrier will have, while ``share(_:)`` collects them.
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

    /// Sends barriers to `control`, which has registered with the bus, from now on.
    func use(control: Connection) {
        self.control = control
    }

    /// Whether there is a control connection at which barriers arrive. Without one, ``pass(_:)`` completes at once.
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

    /// Runs `body`. All barriers that it requests become one, behind all messages that it sends.
    func share(_ body: () -> Void) {
        sharers += 1
        body()
        sharers -= 1
        guard sharers == 0, !asking.isEmpty else { return }
        // The control connection ends only in a later iteration of the loop.
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
            // A barrier that has arrived is complete, even if its reply is an error.
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

    /// Completes a barrier that arrived on the control connection. Returns whether the message was a barrier.
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
