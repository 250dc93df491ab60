// SPDX-License-Identifier: Apache-2.0
/// The result of matching a post: the clients with matching observers, in the order of their first match, and for each
/// client its matching observers in registration order. The center fills it from its index, and then routes the post to
/// each client.
///
/// All matches are in one array, and those of one client are linked in it. The memory is kept for the next post
/// (``removeAll()``), so that matching usually allocates nothing.
struct Matches {
    /// A matching observer, with the properties that decide about its delivery.
    struct Match {
        let observer: ObserverID
        let behavior: SuspensionBehavior
        let lane: DeliveryLane
        /// The minimum interval of the observer, in milliseconds; 0 for none.
        let interval: UInt32
        /// The index of the next match of the same client.
        fileprivate var next: Int32
    }

    /// A client with its matching observers.
    struct Receiver {
        let client: Client
        /// The indexes of its first and last match.
        fileprivate let first: Int32
        fileprivate var last: Int32
        /// The number of its matching observers.
        fileprivate(set) var count: Int
        /// Whether the client counts as a receiver of the post: any of the observers is not a monitor (B3).
        fileprivate(set) var isCounted: Bool
    }

    private var matches: [Match] = []
    /// The number of matching observers.
    var count: Int { matches.count }
    /// The clients with matching observers.
    private(set) var receivers: [Receiver] = []
    /// The number of receivers that count: the outcome of the post that its poster gets.
    private(set) var countedReceivers = 0
    /// For each ``Client/number`` the index of its receiver. An element may be left over from an earlier post; it is
    /// valid only if the receiver there is this client.
    private var receiverOfNumber: [Int32] = []
    /// The number of matches up to which the memory is kept for the next post.
    private static let keptCapacity = 4096

    /// Adds a matching observer, behind the others of its client.
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

    /// Returns the index of the receiver of a client; nil when it has no match yet.
    private func receiver(_ client: Client) -> Int? {
        guard client.number < receiverOfNumber.count else { return nil }
        let receiver = Int(receiverOfNumber[client.number])
        return receivers.indices.contains(receiver) && receivers[receiver].client === client ? receiver : nil
    }

    /// Removes all matches, and keeps a moderate amount of memory.
    mutating func removeAll() {
        guard matches.capacity <= Self.keptCapacity else { return self = Matches() }
        matches.removeAll(keepingCapacity: true)
        receivers.removeAll(keepingCapacity: true)
        countedReceivers = 0
    }

    // MARK: Queries

    /// Returns the most urgent lane among a receiver's observers (M6).
    func lane(of receiver: Receiver) -> DeliveryLane {
        var lane = DeliveryLane.standard
        forEach(of: receiver) { lane = min(lane, $0.lane) }
        return lane
    }

    /// Returns the matching observers of a receiver; nil when there are none.
    ///
    /// - Parameter isWanted: selects observers by their behavior while the client is suspended.
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

    /// Calls `body` with each match of a receiver, in registration order.
    func forEach(of receiver: Receiver, _ body: (Match) -> Void) {
        var slot = receiver.first
        while slot != none {
            body(matches[Int(slot)])
            slot = matches[Int(slot)].next
        }
    }
}

/// The absence of a match, or of a receiver.
private let none: Int32 = -1
