import DBus
import MainLoop
import NotificationCore
import NotificationWire

/// Asks clients for a sign that they have read what was sent to them, by `Peer.Ping` (A4).
///
/// An answer on the connection that carries the posts would wait behind all posts that the bus holds for it: under a
/// burst every client would look as if it did not read. So the answers have a **control connection** of their own.
/// To keep the order, the probe takes a way round: a call from the main connection to the control connection, behind
/// the notifications, is their barrier. When it comes out there, the bus has put all of them into the client's queue,
/// and the Ping that the control connection sends now stands behind them.
///
/// Any answer will do, an error too: it shows that the client's end was read up to here. An error of the bus for want
/// of room is none: the probe is sent again until it gets through. Both are calls, as every bus answers a call that it
/// can't carry; and each is repeated in the end when no answer comes, so that nothing waits for what is lost.
final class ClientProber {
    private let bus: any MessageBus
    /// Called when a client has answered.
    var onAnswer: ((ClientName) -> Void)?
    /// Called when the bus had no room for a probe of a client. What it says of signals that it refused before has been
    /// received by then.
    var onRefusal: ((ClientName) -> Void)?
    private weak var control: Connection?
    private var lastBarrier: UInt64 = 0
    /// Barriers on their way: as many as there are probes without an answer, at most.
    private var clientsOfBarriers: [UInt64: (client: ClientName, retry: Int)] = [:]
    /// Probes that the bus had no room for, until they are sent again.
    private var retries: [ClientName: [EventSource]] = [:]

    private static let barrierInterface: InterfaceName = "org.carillon.Internal1"
    private static let barrierMember: MemberName = "Barrier"
    private static let mostRetries = 5
    /// Until a Ping is sent again, in milliseconds; twice as long each time, so that a client that sleeps for a day is
    /// not owed thousands.
    private static let patience = (first: Int32(60_000), last: Int32(3_600_000))

    init(bus: any MessageBus) {
        self.bus = bus
    }

    /// Sends probes over `control`, which has registered with the bus, from now on.
    func use(control: Connection) {
        self.control = control
    }

    func probe(_ client: ClientName) {
        probe(client, retry: 0)
    }

    func forget(_ client: ClientName) {
        retries[client] = nil
    }

    private func probe(_ client: ClientName, retry: Int) {
        guard let name = control?.uniqueName else { return ping(client, over: bus, retry: retry) }
        lastBarrier += 1
        let number = lastBarrier
        clientsOfBarriers[number] = (client, retry)
        let barrier = Message.methodCall(
            to: name, path: Wire.path, interface: Self.barrierInterface, member: Self.barrierMember,
            startsService: false)
        var writer = MessageWriter(barrier)
        writer.append(number)
        bus.call(barrier) { [weak self] result in
            // One that has arrived is not waited for any more, however its answer fared.
            guard let self, case .failure(let error) = result, error.name != BusError.disconnectedName,
                clientsOfBarriers.removeValue(forKey: number) != nil
            else { return }
            refused(client, retry: retry)
        }
    }

    /// Takes a barrier that arrived on the control connection. Returns whether the message was one.
    func handleBarrier(_ message: Message) -> Bool {
        guard let control, message.kind == .methodCall, message.hasInterface(Self.barrierInterface),
            message.hasMember(Self.barrierMember), message.sender == (bus as? Connection)?.uniqueName
        else { return false }
        control.send(message.methodReturn())
        var reader = MessageReader(message)
        if let barrier = try? reader.read(UInt64.self), let probe = clientsOfBarriers.removeValue(forKey: barrier) {
            ping(probe.client, over: control, retry: probe.retry)
        }
        return true
    }

    private func ping(
        _ client: ClientName, over bus: any MessageBus, retry: Int, patience: Int32 = ClientProber.patience.first
    ) {
        let ping = Message.methodCall(
            to: client, path: "/", interface: "org.freedesktop.DBus.Peer", member: "Ping",
            startsService: false)
        let end = SuspendingClock.now + .milliseconds(patience)
        bus.call(ping, timeout: .milliseconds(patience)) { [weak self, weak bus] result in
            guard let self else { return }
            switch result {
            case .failure(let error) where error.name == BusError.limitsExceededName:
                // The bus has no room for this client: nothing was read, and the probe itself never got through.
                refused(client, retry: retry)
            case .failure(let error) where error.name == BusError.disconnectedName: break
            // By the time: a client can answer with any error.
            case .failure(let error) where error.name == BusError.noReplyName && SuspendingClock.now >= end:
                guard let bus else { return }
                self.ping(client, over: bus, retry: retry, patience: min(patience * 2, Self.patience.last))
            default: onAnswer?(client)
            }
        }
    }

    private func refused(_ client: ClientName, retry: Int) {
        // Its answer comes behind whatever the bus says of the signals that went before.
        bus.busID { [weak self] _ in self?.onRefusal?(client) }
        retries[client, default: []].removeAll { !$0.isPending }
        retries[client, default: []].append(
            .once(milliseconds: 1000 << UInt32(retry), on: bus.context, priority: .of(.control)) { [unowned self] in
                probe(client, retry: min(retry + 1, Self.mostRetries))
            })
    }
}
