// SPDX-License-Identifier: Apache-2.0
/// The clients that a post matched, in the order of their first matching observer, each with its matching observers in
/// registration order.
///
/// All matches lie in one array, and the matches of a client are linked through it. Matching therefore allocates memory
/// only when a post has more matches than any before: ``removeAll()`` keeps the memory for the next post.
struct Matches {
    struct Match {
        let observer: ObserverID
        let behavior: SuspensionBehavior
        let lane: DeliveryLane
        /// In milliseconds; 0 for none.
        let interval: UInt32
        fileprivate var next: Int32
    }

    /// A client with its matching observers.
    struct Receiver {
        let client: Client
        fileprivate let first: Int32
        fileprivate var last: Int32
        fileprivate(set) var count: Int
        /// Whether any of the observers is not a monitor.
        fileprivate(set) var isCounted: Bool
    }

    private var matches: [Match] = []
    /// The number of matching observers.
    var count: Int { matches.count }
    private(set) var receivers: [Receiver] = []
    /// The number of receivers that the poster is told: clients that only monitor do not count (B3).
    private(set) var countedReceivers = 0
    /// By ``Client/number``: the index among the receivers, valid only if the receiver there is this client.
    private var receiverOfNumber: [Int32] = []
    /// The maximum capacity that is kept, so that a larger post does not leave its memory to the next one.
    private static let keptCapacity = 4096

    mutating func append(_ observer: Observer) {
        let slot = Int32(matches.count)
        matches.append(
            Match(
                observer: observer.id, behavior: observer.behavior, lane: observer.lane, interval: observer.interval,
                next: none))
        if let receiver = receiver(observer.client) {
            matches[Int(receivers[receiver].last)].next = slot
            receivers[receiver].last = slot
            receivers[receiver].count += 1
            if !observer.isMonitor, !receivers[receiver].isCounted {
                receivers[receiver].isCounted = true
                countedReceivers += 1
            }
        } else {
            let number = observer.client.number
            while receiverOfNumber.count <= number { receiverOfNumber.append(none) }
            receiverOfNumber[number] = Int32(receivers.count)
            receivers.append(
                Receiver(client: observer.client, first: slot, last: slot, count: 1, isCounted: !observer.isMonitor))
            if !observer.isMonitor { countedReceivers += 1 }
        }
    }

    private func receiver(_ client: Client) -> Int? {
        guard client.number < receiverOfNumber.count else { return nil }
        let receiver = Int(receiverOfNumber[client.number])
        return receivers.indices.contains(receiver) && receivers[receiver].client === client ? receiver : nil
    }

    mutating func removeAll() {
        guard matches.capacity <= Self.keptCapacity else { return self = Matches() }
        matches.removeAll(keepingCapacity: true)
        receivers.removeAll(keepingCapacity: true)
        countedReceivers = 0
    }

    // MARK: Queries

    /// The lane of the most urgent mode among a receiver's observers (M6).
    func lane(of receiver: Receiver) -> DeliveryLane {
        var lane = DeliveryLane.standard
        forEach(of: receiver) { lane = min(lane, $0.lane) }
        return lane
    }

    /// Returns a receiver's observers with a wanted behavior; nil when there are none.
    func observers(
        of receiver: Receiver, where isWanted: (SuspensionBehavior) -> Bool = { _ in true }
    ) -> ObserverList? {
        if receiver.count == 1 {
            let match = matches[Int(receiver.first)]
            return isWanted(match.behavior) ? .one(match.observer) : nil
        }
        var ids: [ObserverID] = []
        ids.reserveCapacity(receiver.count)
        forEach(of: receiver) { if isWanted($0.behavior) { ids.append($0.observer) } }
        return ids.isEmpty ? nil : ObserverList(ids)
    }

    func forEach(of receiver: Receiver, _ body: (Match) -> Void) {
        var slot = receiver.first
        while slot != none {
            body(matches[Int(slot)])
            slot = matches[Int(slot)].next
        }
    }
}

/// No slot, and no receiver.
private let none: Int32 = -1
