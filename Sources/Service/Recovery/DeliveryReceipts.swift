// SPDX-License-Identifier: Apache-2.0
import CarillonCollections
import CarillonCore
import CarillonDBus
import CarillonMainLoop

/// The confirmation of sent messages to the recovery store: messages that the bus has accepted are no possible losses
/// after a crash of the service (E3).
///
/// A successful write to the socket is no proof, because dbus-daemon discards the unread bytes of a connection that
/// ends. A ``BusBarrier`` therefore follows the messages of an event, and its arrival confirms them. The first barrier
/// is sent at once: if the service dies just after a single message, the message is confirmed. In a stream of messages,
/// one barrier follows the messages of each ``pause``. No barrier is sent if no message was.
///
/// ``EffectRunner`` notes each message here, and ends each event.
///
/// Threads: that of the context.
final class DeliveryReceipts {
    /// The sum of some messages to one client.
    struct Sent: Equatable {
        /// The last sequence number.
        var sequence: UInt64 = 0
        /// The number of notifications.
        var delivered: UInt64 = 0
        /// The number of losses that were reported.
        var dropped: UInt64 = 0
    }

    /// The sum of some messages, with their receiver.
    struct Row {
        let client: ClientName
        var sent: Sent
    }

    private let barrier: BusBarrier
    private let context: MainContext
    /// Called with the messages that the bus has carried.
    private let onCarried: ([Row]) -> Void
    /// The messages that no barrier follows yet. A client may have several rows.
    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    private var sent: [Row] = []
    /// The index of the last row of each client in `sent`. Indexes are not removed when `sent` is emptied, so each is
    /// checked.
    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    private var rowIndexes = ClientTable<Int>()
    /// The messages before the barrier that is in flight; empty if none is.
    private var awaitingBarrier: [Row] = []
    /// The timer of the next barrier.
    private var timer: EventSource?
    /// Whether the bus has refused the last barrier.
    private var isRefused = false

    /// The time at which the last barrier was sent.
    private var lastAsked: SuspendingClock.Instant?
    /// The minimum time between two barriers, in milliseconds. The bus carries many posts in this time, so a stream of
    /// posts costs few barriers.
    private static let pause: UInt32 = 2
    /// The pause before a barrier that the bus refused is repeated, in milliseconds.
    private static let retryPause: UInt32 = 1000

    init(barrier: BusBarrier, context: MainContext, onCarried: @escaping ([Row]) -> Void) {
        self.barrier = barrier
        self.context = context
        self.onCarried = onCarried
    }

    /// Records a message that is sent on the bus now. It has the highest sequence number of its client so far.
    ///
    /// - Parameters:
    ///   - sequence: the sequence number of the message, or of the last notification in it.
    ///   - client: the receiver.
    ///   - number: the core's small number of the client; nil where it is not known.
    ///   - notifications: the number of notifications in the message.
    ///   - dropped: the number of losses that the message reports.
    func noteSent(
        _ sequence: UInt64, to client: ClientName, _ number: Int? = nil, notifications: UInt64 = 1, dropped: UInt64 = 0
    ) {
        let message = Sent(sequence: sequence, delivered: notifications, dropped: dropped)
        if let number {
            if let place = rowIndexes[client, number], place < sent.count, sent[place].client == client {
                return sent[place].sent.add(message)
            }
            rowIndexes[client, number] = sent.count
        }
        sent.append(Row(client: client, sent: message))
    }

    /// Records messages on a channel that has ended, and that the client may never have received. They count as
    /// confirmed with the next barrier, because the messages that are sent on the bus now show the client which numbers
    /// it lacks.
    func noteSent(_ sent: Sent, to client: ClientName) {
        self.sent.append(Row(client: client, sent: sent))
    }

    /// Ends an event: sends a barrier behind its messages, now or after the pause.
    func eventEnded() {
        guard !sent.isEmpty, awaitingBarrier.isEmpty, timer == nil else { return }
        if let lastAsked, context.now - lastAsked < .milliseconds(Self.pause) {
            sendBarrier(after: Self.pause)
        } else {
            sendBarrier()
        }
    }

    /// Sends a barrier behind all messages at once, because the process is about to end.
    func sendBarrierNow() {
        // A barrier that the bus has refused is repeated only after its pause.
        guard !sent.isEmpty, awaitingBarrier.isEmpty, !isRefused else { return }
        timer = nil
        sendBarrier()
    }

    /// Whether the bus is known to have carried all messages.
    var areComplete: Bool { sent.isEmpty && awaitingBarrier.isEmpty }

    /// Releases the memory of clients that are gone (E8).
    func releaseMemory() {
        // All indexes can be removed, because an index only avoids a second row of its client.
        rowIndexes.removeAll()
        sent.releaseMemory()
    }

    /// Sends the next barrier after a pause.
    private func sendBarrier(after pause: UInt32) {
        timer = .once(milliseconds: pause, on: context, priority: .of(.control)) { [unowned self] in
            timer = nil
            sendBarrier()
        }
    }

    /// Sends a barrier behind the messages in `sent`. No other barrier is in flight, so `awaitingBarrier` is empty.
    private func sendBarrier() {
        lastAsked = context.now
        swap(&awaitingBarrier, &sent)
        barrier.pass { [weak self] result in self?.passed(result) }
    }

    /// Handles the arrival or the refusal of a barrier.
    private func passed(_ result: Result<Void, BusError>) {
        defer { awaitingBarrier.removeAll(keepingCapacity: awaitingBarrier.count <= Self.maxKept) }
        switch result {
        case .success:
            isRefused = false
            onCarried(awaitingBarrier)
            if !sent.isEmpty { sendBarrier(after: Self.pause) }
        // At the end of the connection these messages remain possible losses.
        case .failure(let error) where error.name == BusError.disconnectedName: break
        case .failure:
            // The messages of the refused barrier wait for the next one.
            var all: [ClientName: Sent] = [:]
            for row in awaitingBarrier + sent { all[row.client, default: Sent()].add(row.sent) }
            isRefused = true
            sent = all.sorted { $0.key < $1.key }.map { Row(client: $0.key, sent: $0.value) }
            sendBarrier(after: Self.retryPause)
        }
    }

    /// The capacity of ``awaitingBarrier`` beyond which its memory is released.
    private static let maxKept = 256
}

extension DeliveryReceipts.Sent {
    /// Adds later messages.
    mutating func add(_ later: Self) {
        sequence = max(sequence, later.sequence)
        delivered += later.delivered
        dropped += later.dropped
    }
}
