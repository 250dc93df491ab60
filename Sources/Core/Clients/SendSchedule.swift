// SPDX-License-Identifier: Apache-2.0
import CarillonCollections

/// Whose turn it is in each lane: the order in which what is due leaves the service (M6).
///
/// A client that reads has a turn for each notification that was just put into its lane, so that the order within a
/// lane is global, over all clients (D4). A client that comes back with a backlog has one turn at a time, and takes a
/// new one behind the others while there is more. One that stops reading loses the turns that come up meanwhile.
///
/// The turn of what went along with another's is void: it keeps its place until those before it are over, and does not
/// count. Otherwise a line that is full of such turns would push out each that comes alone.
struct SendSchedule {
    /// At most so many notifications are staged: read and matched, while others go first. More than that, and each that
    /// comes pushes one out, so that a burst can't pile up here. It is what the urgent can overtake when clients read.
    static let maxCount = 1024
    /// The same in bytes.
    static let maxBytes = 1 << 20

    private struct Turn {
        let client: Client
        let byteCount: Int
    }

    private struct Line {
        var turns = Deque<Turn>()
        /// All that there ever were, and those of them that are over.
        var begun: UInt64 = 0
        var over: UInt64 = 0
    }

    private let meter: StepMeter
    private var lines = DeliveryLane.allCases.map { _ in Line() }
    /// Without those that are void.
    private(set) var count = 0
    /// With those that are void.
    private var byteCount = 0

    init(meter: StepMeter) {
        self.meter = meter
    }

    var isOverfull: Bool { count > Self.maxCount || byteCount > Self.maxBytes }

    func isEmpty(_ lane: DeliveryLane) -> Bool { lines[lane.rawValue].turns.isEmpty }

    /// The most urgent lane in which it is somebody's turn.
    var first: DeliveryLane? {
        guard count > 0 else { return nil }
        return DeliveryLane.allCases.first { !lines[$0.rawValue].turns.isEmpty }
    }

    /// Puts the client at the end of a lane's line.
    ///
    /// - Parameter byteCount: of what was staged for this turn; 0 for a backlog, which the limits of queues count.
    mutating func append(_ client: Client, in lane: DeliveryLane, byteCount: Int) {
        client.queue[turnsOf: lane] += 1
        let line = lane.rawValue
        lines[line].turns.append(Turn(client: client, byteCount: byteCount))
        lines[line].begun += 1
        count += 1
        self.byteCount += byteCount
    }

    /// The client whose turn it is, which is over with that.
    mutating func next(in lane: DeliveryLane) -> Client? {
        let line = lane.rawValue
        guard let turn = lines[line].turns.popFirst() else { return nil }
        lines[line].over += 1
        count -= 1
        byteCount -= turn.byteCount
        turn.client.queue[turnsOf: lane] -= 1
        dropTombstones(in: lane)
        invariant(
            count >= 0 && byteCount >= 0 && (count > 0 || byteCount == 0) && turn.client.queue[turnsOf: lane] >= 0,
            "M6: turns that are counted are there")
        return turn.client
    }

    /// Leaves a client no more turns in `lane` than there is for it: what went along with another's has none of its own.
    mutating func tombstone(_ client: Client, in lane: DeliveryLane) {
        let surplus = client.queue[turnsOf: lane] - client.queue.count(in: lane)
        guard surplus > 0 else { return }
        client.queue[turnsOf: lane] -= surplus
        client.queue[voidTurnsOf: lane] += surplus
        count -= surplus
        dropTombstones(in: lane)
    }

    /// What is first in a line is not void.
    private mutating func dropTombstones(in lane: DeliveryLane) {
        let line = lane.rawValue
        while let first = lines[line].turns.first, first.client.queue[voidTurnsOf: lane] > 0 {
            meter.count()
            lines[line].turns.popFirst()
            lines[line].over += 1
            byteCount -= first.byteCount
            first.client.queue[voidTurnsOf: lane] -= 1
        }
    }

    /// - Parameter clients: those that are there.
    func checkInvariants(clients: [ClientName: Client]) throws(BrokenInvariant) {
        var counts: [ObjectIdentifier: [Int]] = [:]
        var sum = (count: 0, byteCount: 0)
        for lane in DeliveryLane.allCases {
            let line = lines[lane.rawValue]
            if line.turns.isEmpty, line.begun == line.over { continue }
            try require(line.begun - line.over == UInt64(line.turns.count), "M6: a turn has begun, waits, or is over")
            let isFirstVoid = line.turns.first.map { $0.client.queue[voidTurnsOf: lane] > 0 } ?? false
            try require(!isFirstVoid, "M6: the first turn of a line is not void")
            for turn in line.turns {
                sum.count += 1
                sum.byteCount += turn.byteCount
                let client = turn.client
                let id = ObjectIdentifier(client)
                let isNew = counts[id]?[lane.rawValue] ?? 0 == 0
                if isNew { sum.count -= client.queue[voidTurnsOf: lane] }
                counts[id, default: DeliveryLane.allCases.map { _ in 0 }][lane.rawValue] += 1
                try require(
                    client.presence == .gone
                        ? client.queue.isEmpty && client.observers.isEmpty : clients[client.name] === client,
                    "D8: \(client.name), whose turn it is, is there, or owns nothing")
            }
        }
        try require(count == sum.count && byteCount == sum.byteCount, "M6: the totals of turns are their sums")
        for client in clients.values where count > 0 || client.queue.hasTurns {
            let own = counts[ObjectIdentifier(client)]
            for lane in DeliveryLane.allCases {
                try require(
                    client.queue[turnsOf: lane] + client.queue[voidTurnsOf: lane] == own?[lane.rawValue] ?? 0,
                    "M6: \(client.name) has as many turns as it counts: \(lane)")
            }
        }
    }

    /// The end of a lane's line at this moment.
    func mark(_ lane: DeliveryLane) -> Watermark {
        Watermark(lane: lane, position: lines[lane.rawValue].begun)
    }

    func hasPassed(_ mark: Watermark) -> Bool {
        lines[mark.lane.rawValue].over >= mark.position
    }
}

/// A place in the line of a lane, behind a notification that was staged.
public struct Watermark: Sendable {
    public let lane: DeliveryLane
    fileprivate let position: UInt64

    fileprivate init(lane: DeliveryLane, position: UInt64) {
        self.lane = lane
        self.position = position
    }
}
