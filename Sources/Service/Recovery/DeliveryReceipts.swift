// SPDX-License-Identifier: Apache-2.0
import CarillonCollections
import CarillonCore
import CarillonDBus
import CarillonMainLoop

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

    /// The same with the client.
    struct Row {
        let client: ClientName
        var sent: Sent
    }

    private let barrier: BusBarrier
    private let context: MainContext
    /// Gets what the bus has carried.
    private let onCarried: ([Row]) -> Void
    /// A client may have several rows.
    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    private var sent: [Row] = []
    /// Where those of clients stand, as long as these are theirs.
    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    private var places = ClientTable<Int>()
    /// What the barrier that is on its way is about; empty when none is.
    private var asked: [Row] = []
    private var timer: EventSource?
    /// Whether the bus has refused the last barrier.
    private var isRefused = false

    private var lastAsked: SuspendingClock.Instant?
    /// In milliseconds. Long against the time that the bus needs for a post, so that a stream of them costs few barriers.
    private static let pause: UInt32 = 2
    /// After one that the bus did not carry, in milliseconds.
    private static let retryPause: UInt32 = 1000

    init(barrier: BusBarrier, context: MainContext, onCarried: @escaping ([Row]) -> Void) {
        self.barrier = barrier
        self.context = context
        self.onCarried = onCarried
    }

    /// A message is sent now that has this number, the greatest so far of its client.
    ///
    /// - Parameters:
    ///   - number: the client's; nil where it is not known.
    ///   - notifications: how many are in it; the number is that of the last.
    ///   - dropped: how many losses it tells of.
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

    /// What went to a client another way is known to it if the bus carries what is sent now.
    func noteSent(_ sent: Sent, to client: ClientName) {
        self.sent.append(Row(client: client, sent: sent))
    }

    /// All that belongs together was sent.
    func eventEnded() {
        guard !sent.isEmpty, asked.isEmpty, timer == nil else { return }
        if let lastAsked, context.now - lastAsked < .milliseconds(Self.pause) { ask(after: Self.pause) } else { ask() }
    }

    /// Asks about all that was sent, without a pause.
    func askNow() {
        // One that the bus has refused is not asked for again at once.
        guard !sent.isEmpty, asked.isEmpty, !isRefused else { return }
        timer = nil
        ask()
    }

    /// Whether the bus is known to have carried all that was sent.
    var areComplete: Bool { sent.isEmpty && asked.isEmpty }

    /// Gives up what is kept of clients that are gone (E8).
    func releaseRoom() {
        // For clients that are there a place only saves a second row.
        places.removeAll()
        sent.releaseRoom()
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
