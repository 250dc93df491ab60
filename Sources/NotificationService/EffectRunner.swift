import DBus
import DesktopActivity
import MainLoop
import NotificationCore
import NotificationWire

/// What the core decided, done: signals, probes, timers, state on disk, log lines.
///
/// Threads: that of the bus's context. Nothing here blocks.
final class EffectRunner {
    /// What comes of an effect later: the core's next event.
    enum Event {
        case answered(ClientName)
        case probeTimedOut(ClientName)
        case inactivityTimerEnded(ClientName, epoch: UInt64)
        case disappeared(ClientName)
    }

    /// Gets these events. Set before the first effect.
    var report: ((Event) -> Void)!
    /// What survives the process; nil where nothing does.
    var store: RecoveryStore?
    /// Where the activity of applications comes from; nil until that is followed.
    var activity: ActivityMonitor?

    private unowned let bus: any MessageBus
    private let clients: ClientRegistry
    private let prober: ClientProber
    /// The message serial of the last notification. They are counted in the upper half of the numbers, where libdbus,
    /// which numbers all other messages, does not come.
    private var lastSignal = firstSignal
    private static let firstSignal: UInt32 = 1 << 31
    /// How often the queue of a client began to overflow.
    private var overflows: [ClientName: UInt64] = [:]
    /// For clients that never answered a probe; also those that are over.
    private var probeTimers: [ClientName: EventSource] = [:]
    /// For clients whose application became inactive; also those that are over.
    private var inactivityTimers: [ClientName: EventSource] = [:]

    /// - Parameter bus: where signals go; the caller keeps it.
    init(bus: any MessageBus, clients: ClientRegistry, prober: ClientProber) {
        self.bus = bus
        self.clients = clients
        self.prober = prober
        prober.onAnswer = { [unowned self] client in report(.answered(client)) }
    }

    func carryOut(_ effect: Effect) {
        switch effect {
        case .deliver(let delivery):
            // Counted first: a crash in between makes a hole that is announced, not a number that comes twice.
            store?.countDelivery(
                to: delivery.client, sequence: delivery.sequence, serial: delivery.notification.serial)
            send(delivery)
        case .dropped(let client, let count, let observers, let reason, let sequence):
            store?.countLoss(of: client, sequence: sequence)
            tell(client, count: count, lost: observers, because: reason, sequence: sequence)
        case .suspensionChanged(let client, let isSuspended, let cause):
            bus.send(SuspensionChangedSignal(isSuspended: isSuspended, cause: cause.rawValue).message(to: client))
        case .probe(let client): prober.probe(client)
        case .startProbeTimer(let client, let seconds):
            // Ahead of the posts: a flood of them would hold it up for as long as it lasts.
            probeTimers[client] = .once(
                milliseconds: UInt32(seconds) * 1000, on: bus.context, priority: .of(.control)
            ) { [unowned self] in report(.probeTimedOut(client)) }
        case .startInactivityTimer(let client, let epoch, let milliseconds):
            inactivityTimers[client] = .once(milliseconds: UInt32(milliseconds), on: bus.context) { [unowned self] in
                report(.inactivityTimerEnded(client, epoch: epoch))
            }
        case .overflowed(let client, let reason): noteOverflow(of: client, because: reason)
        case .remember(let change): store?.remember(change)
        case .watch(let client):
            activity?.clientAppeared(client)
            clients.watch(client) { [unowned self] in report(.disappeared(client)) }
        case .forget(let client):
            probeTimers[client] = nil
            inactivityTimers[client] = nil
            activity?.forget(client)
            overflows[client] = nil
            prober.forget(client)
            clients.forget(client)
        }
    }

    private func send(_ delivery: Delivery) {
        guard let userInfo = delivery.notification.userInfo as? WireUserInfo else {
            preconditionFailure("every post of this service carries a WireUserInfo")
        }
        lastSignal = lastSignal == .max ? Self.firstSignal : lastSignal + 1
        let message = NotificationSignal.message(for: delivery, userInfo: userInfo, messageSerial: lastSignal)
        send(message, to: delivery.client, sequence: delivery.sequence, dropped: nil)
    }

    /// Sends what has a number of the client's, and notes when it has left the process.
    private func send(_ message: Message, to client: ClientName, sequence: UInt64, dropped: UInt64?) {
        guard let store else { return bus.send(message) }
        bus.send(message) { [weak store] in store?.confirm(sequence, of: client, dropped: dropped) }
    }

    /// A client that is too slow for long loses again and again.
    private func noteOverflow(of client: ClientName, because reason: DropReason) {
        guard let count = Log.throttle(&overflows[client, default: 0]) else { return }
        Log.warning(
            "\(client) does not keep up: its oldest notifications are lost (\(reason.rawValue), \(count) times so far)",
            ["CARILLON_CLIENT": client.rawValue, "CARILLON_REASON": reason.rawValue])
    }

    private func tell(
        _ client: ClientName, count: UInt64, lost observers: [ObserverID], because reason: DropReason, sequence: UInt64
    ) {
        Log.info(
            "\(client) is told that it lost \(count) notifications (\(reason.rawValue))",
            ["CARILLON_CLIENT": client.rawValue, "CARILLON_REASON": reason.rawValue])
        send(
            DroppedSignal(count: count, observers: observers, reason: reason.rawValue).message(to: client), to: client,
            sequence: sequence, dropped: count)
    }
}
