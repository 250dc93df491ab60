import DBus
import MainLoop
import NotificationCore
import NotificationWire

/// Asks clients for a sign that they have read what was sent to them, by `Peer.Ping` (A4).
///
/// An answer on the connection that carries the posts would wait behind all posts that the bus holds for it: under a
/// burst every client would look as if it did not read. So the answers have a **control connection** of their own.
/// To keep the order, the probe takes a way round: a signal from the main connection to the control connection, behind
/// the notifications, is their barrier. When it comes out there, the bus has put all of them into the client's queue,
/// and the Ping that the control connection sends now stands behind them.
///
/// Any answer will do, an error too: it shows that the client's end was read up to here.
final class ClientProber {
    private let bus: any MessageBus
    /// Called when a client has answered.
    var onAnswer: ((ClientName) -> Void)?
    private weak var control: Connection?
    private var lastBarrier: UInt64 = 0
    private var clientsOfBarriers: [UInt64: ClientName] = [:]
    /// Probes that the bus had no room for, each sent again after a second.
    private var retries: [ClientName: [EventSource]] = [:]

    private static let barrierInterface: InterfaceName = "org.carillon.Internal1"
    private static let barrierMember: MemberName = "Barrier"

    init(bus: any MessageBus) {
        self.bus = bus
    }

    /// Sends probes over `control`, which has registered with the bus, from now on.
    func use(control: Connection) {
        self.control = control
        control.onMessage = { [weak self] message in self?.handleBarrier(message) ?? false }
    }

    func probe(_ client: ClientName) {
        guard let name = control?.uniqueName else { return ping(client, over: bus) }
        lastBarrier += 1
        clientsOfBarriers[lastBarrier] = client
        let barrier = Message.signal(
            to: name, path: Wire.path, interface: Self.barrierInterface, member: Self.barrierMember)
        var writer = MessageWriter(barrier)
        writer.append(lastBarrier)
        bus.send(barrier)
    }

    func forget(_ client: ClientName) {
        retries[client] = nil
    }

    private func handleBarrier(_ message: Message) -> Bool {
        guard let control, message.isSignal(Self.barrierInterface, Self.barrierMember),
            message.sender == (bus as? Connection)?.uniqueName
        else { return false }
        var reader = MessageReader(message)
        guard let barrier = try? reader.read(UInt64.self), let client = clientsOfBarriers.removeValue(forKey: barrier)
        else { return false }
        ping(client, over: control)
        return true
    }

    private func ping(_ client: ClientName, over bus: any MessageBus) {
        let ping = Message.methodCall(
            to: client, path: "/", interface: "org.freedesktop.DBus.Peer", member: "Ping",
            startsService: false)
        bus.call(ping, timeout: .never) { [weak self] result in
            guard let self else { return }
            switch result {
            case .failure(let error) where error.name == BusError.limitsExceededName:
                // The bus has no room for this client: nothing was read, and the probe itself never got through.
                retry(client)
            case .failure(let error) where error.name == BusError.disconnectedName: break
            default: onAnswer?(client)
            }
        }
    }

    private func retry(_ client: ClientName) {
        retries[client, default: []].removeAll { !$0.isPending }
        retries[client, default: []].append(
            .once(milliseconds: 1000, on: bus.context, priority: .of(.control)) { [unowned self] in
                probe(client)
            })
    }
}
