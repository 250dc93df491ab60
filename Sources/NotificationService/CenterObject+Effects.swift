import DBus
import MainLoop
import NotificationCore
import NotificationWire

/// What the core decided, done: signals, probes, timers, log lines.
extension CenterObject {
    func carryOut(_ effect: Effect) {
        switch effect {
        case .deliver(let delivery):
            // Counted first: a crash in between makes a hole that the client sees, not a number that comes twice.
            store?.countDelivery(
                to: delivery.client, sequence: delivery.sequence, serial: delivery.notification.serial)
            send(delivery)
        case .dropped(let client, let count, let observers, let reason, let sequence):
            store?.countLoss(of: client, sequence: sequence, count: count)
            tell(client, count: count, lost: observers, because: reason)
        case .suspensionChanged(let client, let isSuspended, let cause):
            bus.send(SuspensionChangedSignal(isSuspended: isSuspended, cause: cause.rawValue).message(to: client))
        case .probe(let client): prober.probe(client)
        case .startProbeTimer(let client, let seconds):
            // Ahead of the posts: a flood of them would hold it up for as long as it lasts.
            probeTimers[client] = .once(
                milliseconds: UInt32(seconds) * 1000, on: bus.context, priority: .of(.control)
            ) { [unowned self] in
                perform { effects in center.probeTimedOut(client, effects: &effects) }
            }
        case .startInactivityTimer(let client, let epoch, let milliseconds):
            startInactivityTimer(for: client, epoch: epoch, milliseconds: UInt32(milliseconds))
        case .overflowed(let client, let reason): noteOverflow(of: client, because: reason)
        case .remember(let change): store?.remember(change)
        case .watch(let client):
            activity?.clientAppeared(client)
            clients.watch(client) { [unowned self] in
                perform { effects in center.clientDisappeared(client, effects: &effects) }
            }
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
        bus.send(NotificationSignal.message(for: delivery, userInfo: userInfo, messageSerial: lastSignal))
    }

    /// A client that is too slow for long loses again and again.
    private func noteOverflow(of client: ClientName, because reason: DropReason) {
        guard let count = Log.throttle(&overflows[client, default: 0]) else { return }
        Log.warning(
            "\(client) does not keep up: its oldest notifications are lost (\(reason.rawValue), \(count) times so far)",
            ["CARILLON_CLIENT": client.rawValue, "CARILLON_REASON": reason.rawValue])
    }

    private func tell(_ client: ClientName, count: UInt64, lost observers: [ObserverID], because reason: DropReason) {
        Log.info(
            "\(client) is told that it lost \(count) notifications (\(reason.rawValue))",
            ["CARILLON_CLIENT": client.rawValue, "CARILLON_REASON": reason.rawValue])
        bus.send(DroppedSignal(count: count, observers: observers, reason: reason.rawValue).message(to: client))
    }
}
