import DBus
import MainLoop
import NotificationCore

/// Finds out which of the numbered messages that were sent the bus has taken, for the store (E3).
///
/// That the system has the bytes is not enough: dbus-daemon drops what it has not read of a connection that ends. So a
/// ``BusBarrier`` follows what was sent: at once, so that whoever kills the service because of what it has received finds
/// that confirmed; and in a stream one for all that went out in ``pause``. None follows nothing.
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
    /// Gets what the bus has carried.
    private let onCarried: ([ClientName: Sent]) -> Void
    private var sent: [ClientName: Sent] = [:]
    /// What the barrier that is on its way is about; empty when none is.
    private var asked: [ClientName: Sent] = [:]
    private var timer: EventSource?

    private var lastAsked: SuspendingClock.Instant?
    /// In milliseconds. Long against the time that the bus needs for a post, so that a stream of them costs few barriers.
    private static let pause: UInt32 = 2
    /// After one that the bus did not carry, in milliseconds.
    private static let retryPause: UInt32 = 1000

    init(barrier: BusBarrier, context: MainContext, onCarried: @escaping ([ClientName: Sent]) -> Void) {
        self.barrier = barrier
        self.context = context
        self.onCarried = onCarried
    }

    /// A message is sent now that has this number, the greatest so far of its client.
    ///
    /// - Parameters:
    ///   - notifications: how many are in it; the number is that of the last.
    ///   - dropped: how many losses it tells of.
    func noteSent(_ sequence: UInt64, to client: ClientName, notifications: UInt64 = 1, dropped: UInt64 = 0) {
        sent[client, default: Sent()].add(Sent(sequence: sequence, delivered: notifications, dropped: dropped))
    }

    /// All that belongs together was sent.
    func eventEnded() {
        guard !sent.isEmpty, asked.isEmpty, timer == nil else { return }
        if let lastAsked, context.now - lastAsked < .milliseconds(Self.pause) { ask(after: Self.pause) } else { ask() }
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
        lastAsked = context.now
        swap(&asked, &sent)
        barrier.pass { [weak self] result in self?.passed(result) }
    }

    private func passed(_ result: Result<Void, BusError>) {
        defer { asked.removeAll(keepingCapacity: asked.count <= Self.mostKept) }
        switch result {
        case .success:
            onCarried(asked)
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
