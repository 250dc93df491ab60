import DBus
import MainLoop
import NotificationCore

/// Finds out which of the numbered messages that were sent the bus has taken, for the store (E3).
///
/// That the system has the bytes is not enough: dbus-daemon drops what it has not read of a connection that ends. So a
/// ``BusBarrier`` follows a moment after something was sent, one for all that went out until then, and none while nothing
/// does.
final class DeliveryReceipts {
    /// What went to one client.
    struct Sent: Equatable {
        /// The last number.
        var sequence: UInt64 = 0
        var delivered: UInt64 = 0
        var dropped: UInt64 = 0
    }

    private let barrier: BusBarrier
    private let context: MainContext
    /// Gets what the bus has carried, client by client.
    private let onCarried: (ClientName, Sent) -> Void
    private var sent: [ClientName: Sent] = [:]
    /// What the barrier that is on its way is about; empty when none is.
    private var asked: [ClientName: Sent] = [:]
    private var timer: EventSource?

    /// Long against the time that the bus needs for a post, so that a stream of them costs few barriers; short against
    /// anything that kills the service after somebody saw what it sent.
    private static let pause: UInt32 = 2
    /// After one that the bus did not carry, in milliseconds.
    private static let retryPause: UInt32 = 1000

    init(barrier: BusBarrier, context: MainContext, onCarried: @escaping (ClientName, Sent) -> Void) {
        self.barrier = barrier
        self.context = context
        self.onCarried = onCarried
    }

    /// A message is sent now that has this number, the greatest so far of its client.
    ///
    /// - Parameter dropped: how many losses it tells of; nil for a notification.
    func noteSent(_ sequence: UInt64, to client: ClientName, dropped: UInt64?) {
        sent[client, default: Sent()].add(
            Sent(sequence: sequence, delivered: dropped == nil ? 1 : 0, dropped: dropped ?? 0))
        if timer == nil, asked.isEmpty { ask(after: Self.pause) }
    }

    /// Whether the bus is known to have carried all that was sent.
    var areComplete: Bool { sent.isEmpty && asked.isEmpty }

    private func ask(after pause: UInt32) {
        timer = .once(milliseconds: pause, on: context, priority: .of(.control)) { [unowned self] in
            timer = nil
            ask()
        }
    }

    private func ask() {
        swap(&asked, &sent)
        barrier.pass { [weak self] result in self?.passed(result) }
    }

    private func passed(_ result: Result<Void, BusError>) {
        defer { asked.removeAll(keepingCapacity: asked.count <= Self.mostKept) }
        switch result {
        case .success:
            for (client, sent) in asked { onCarried(client, sent) }
            if !sent.isEmpty { ask(after: Self.pause) }
        case .failure(let error) where error.name == BusError.disconnectedName: break
        case .failure:
            for (client, later) in sent { asked[client, default: Sent()].add(later) }
            swap(&asked, &sent)
            ask(after: Self.retryPause)
        }
    }

    private static let mostKept = 256
}

extension DeliveryReceipts.Sent {
    fileprivate mutating func add(_ later: Self) {
        sequence = max(sequence, later.sequence)
        delivered += later.delivered
        dropped += later.dropped
    }
}
