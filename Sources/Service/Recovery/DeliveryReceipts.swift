// SPDX-License-Identifier: Apache-2.0
import CarillonCollections
import CarillonCore
import CarillonDBus
import CarillonMainLoop

/// The receipts of the bus: they show the store which numbered messages the bus has carried (E3).
///
/// It is not enough that the kernel has the bytes, because dbus-daemon discards unread bytes of a connection that ends.
/// Therefore a ``BusBarrier`` follows the messages. It follows at once, so that a receiver of a message that kills the
/// service finds the message confirmed. In a stream of messages, one barrier follows all messages of ``pause``. No
/// barrier follows if nothing was sent.
///
/// Threads: that of the context.
final class DeliveryReceipts {
    /// The messages that were sent to one client.
    struct Sent: Equatable {
        /// The last sequence number.
        var sequence: UInt64 = 0
        var delivered: UInt64 = 0
        var dropped: UInt64 = 0
    }

    /// The messages that were sent to one client, with its name.
    struct Row {
        let client: ClientName
        var sent: Sent
    }

    private let barrier: BusBarrier
    private let context: MainContext
    /// Called with the messages that the bus has carried.
    private let onCarried: ([Row]) -> Void
    /// The messages since the last barrier. A client may have several rows.
    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    private var sent: [Row] = []
    /// The index of each client's row in `sent`. An index may be outdated, so it is checked.
    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    private var places = ClientTable<Int>()
    /// The messages ahead of the barrier that is in flight; empty when none is.
    private var asked: [Row] = []
    private var timer: EventSource?
    /// Whether the bus has refused the last barrier.
    private var isRefused = false

    private var lastAsked: SuspendingClock.Instant?
    /// The minimum time between two barriers, in milliseconds. It is long in comparison to the time that the bus needs
    /// for a post, so that a stream of posts costs few barriers.
    private static let pause: UInt32 = 2
    /// The pause after a barrier that the bus did not carry, in milliseconds.
    private static let retryPause: UInt32 = 1000

    init(barrier: BusBarrier, context: MainContext, onCarried: @escaping ([Row]) -> Void) {
        self.barrier = barrier
        self.context = context
        self.onCarried = onCarried
    }

    /// Records a message that is sent now, and that has the highest sequence number of its client so far.
    ///
    /// - Parameters:
    ///   - sequence: the sequence number of the message, or of the last notification in it.
    ///   - client: the receiver.
    ///   - number: the small number of the client; nil where it is not known.
    ///   - notifications: the number of notifications in the message.
    ///   - dropped: the number of losses that it reports.
    func noteSent(
        _ sequence: UInt64, to client: ClientName, _ number: Int? = nil, notifications: UInt64 = 1, dropped: UInt64 = 0
    ) {
        let message = Sent(sequence: sequence, delivered: notifications, dropped: dropped)
        if let number {
            if let place = places[client, number], place < sent.count, sent[place].client == client {
                return sent[place].sent.add(message)
            }
            places[client, number] = sent.count
        }
        sent.append(Row(client: client, sent: message))
    }

    /// Records messages that a client was sent on a channel. They count as carried when the bus carries the messages
    /// that are sent now, because these show the client its losses.
    func noteSent(_ sent: Sent, to client: ClientName) {
        self.sent.append(Row(client: client, sent: sent))
    }

    /// Ends an event: all its messages were sent, and a barrier may follow.
    func eventEnded() {
        guard !sent.isEmpty, asked.isEmpty, timer == nil else { return }
        if let lastAsked, context.now - lastAsked < .milliseconds(Self.pause) { ask(after: Self.pause) } else { ask() }
    }

    /// Sends a barrier behind all messages at once.
    func askNow() {
        // A barrier that the bus has refused is repeated after a pause only.
        guard !sent.isEmpty, asked.isEmpty, !isRefused else { return }
        timer = nil
        ask()
    }

    /// Whether the bus is known to have carried all messages.
    var areComplete: Bool { sent.isEmpty && asked.isEmpty }

    /// Releases the memory of clients that are gone (E8).
    func releaseMemory() {
        // The indexes of present clients can be removed as well, because each of them only saves a second row.
        places.removeAll()
        sent.releaseMemory()
    }

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
        defer { asked.removeAll(keepingCapacity: asked.count <= Self.maxKept) }
        switch result {
        case .success:
            isRefused = false
            onCarried(asked)
            if !sent.isEmpty { ask(after: Self.pause) }
        case .failure(let error) where error.name == BusError.disconnectedName: break
        case .failure:
            var all: [ClientName: Sent] = [:]
            for row in asked + sent { all[row.client, default: Sent()].add(row.sent) }
            isRefused = true
            sent = all.sorted { $0.key < $1.key }.map { Row(client: $0.key, sent: $0.value) }
            ask(after: Self.retryPause)
        }
    }

    private static let maxKept = 256
}

extension DeliveryReceipts.Sent {
    mutating func add(_ later: Self) {
        sequence = max(sequence, later.sequence)
        delivered += later.delivered
        dropped += later.dropped
    }
}
