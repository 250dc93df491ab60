// SPDX-License-Identifier: Apache-2.0
import CarillonCollections

/// The order in which due notifications leave the service, for each lane a queue of scheduled sends (M6).
///
/// A client that reads has a scheduled send for each notification that was just put into its lane, so that the order
/// within a lane is global, over all clients (D4). A client that returns with a backlog has one scheduled send at a
/// time, and gets a new one at the end while more is due. The scheduled sends of a client that stops reading have no
/// effect.
///
/// When notifications go together in a batch, the scheduled sends of the others become tombstones. A tombstone keeps
/// its place until those before it are over, and does not count. Otherwise a queue full of them would push out each
/// single notification that comes.
struct SendSchedule {
    /// The maximum number of scheduled notifications: matched, and waiting while others go first. Beyond it each new
    /// one has the first one sent, so that a burst can't pile up here. More urgent notifications can overtake this many
    /// while clients read.
    static let maxCount = 1024
    /// The maximum size of scheduled notifications, in bytes.
    static let maxBytes = 1 << 20

    private struct ScheduledSend {
        let client: Client
        let byteCount: Int
    }

    private struct Line {
        var schedule = Deque<ScheduledSend>()
        /// The number of all scheduled sends so far, and of the finished ones.
        var begun: UInt64 = 0
        var over: UInt64 = 0
    }

    private let meter: StepMeter
    private var lines = DeliveryLane.allCases.map { _ in Line() }
    /// The number of scheduled sends, without tombstones.
    private(set) var count = 0
    /// The size of the scheduled notifications, with tombstones.
    private var byteCount = 0

    init(meter: StepMeter) {
        self.meter = meter
    }

    var isOverfull: Bool { count > Self.maxCount || byteCount > Self.maxBytes }

    func isEmpty(_ lane: DeliveryLane) -> Bool { lines[lane.rawValue].schedule.isEmpty }

    /// The most urgent lane with a scheduled send.
    var first: DeliveryLane? {
        guard count > 0 else { return nil }
        return DeliveryLane.allCases.first { !lines[$0.rawValue].schedule.isEmpty }
    }

    /// Schedules a send to the client at the end of a lane.
    ///
    /// - Parameter byteCount: the size of the notification; 0 for a backlog, which counts against the limits of queues.
    mutating func append(_ client: Client, in lane: DeliveryLane, byteCount: Int) {
        client.queue[scheduledIn: lane] += 1
        let line = lane.rawValue
        lines[line].schedule.append(ScheduledSend(client: client, byteCount: byteCount))
        lines[line].begun += 1
        count += 1
        self.byteCount += byteCount
    }

    /// Takes the next scheduled send of a lane.
    ///
    /// - Returns: its client; nil when the lane is empty.
    mutating func next(in lane: DeliveryLane) -> Client? {
        let line = lane.rawValue
        guard let turn = lines[line].schedule.popFirst() else { return nil }
        lines[line].over += 1
        count -= 1
        byteCount -= turn.byteCount
        turn.client.queue[scheduledIn: lane] -= 1
        dropTombstones(in: lane)
        invariant(
            count >= 0 && byteCount >= 0 && (count > 0 || byteCount == 0) && turn.client.queue[scheduledIn: lane] >= 0,
            "M6: turns that are counted are there")
        return turn.client
    }

    /// Leaves a client no more scheduled sends in `lane` than it has due notifications there. The surplus belongs to
    /// notifications that went in a batch, and becomes tombstones.
    mutating func tombstone(_ client: Client, in lane: DeliveryLane) {
        let surplus = client.queue[scheduledIn: lane] - client.queue.count(in: lane)
        guard surplus > 0 else { return }
        client.queue[scheduledIn: lane] -= surplus
        client.queue[tombstonesIn: lane] += surplus
        count -= surplus
        dropTombstones(in: lane)
    }

    /// Drops tombstones at the head of a lane.
    private mutating func dropTombstones(in lane: DeliveryLane) {
        let line = lane.rawValue
        while let first = lines[line].schedule.first, first.client.queue[tombstonesIn: lane] > 0 {
            meter.count()
            lines[line].schedule.popFirst()
            lines[line].over += 1
            byteCount -= first.byteCount
            first.client.queue[tombstonesIn: lane] -= 1
        }
    }

    /// - Parameter clients: the present clients.
    func checkInvariants(clients: [ClientName: Client]) throws(BrokenInvariant) {
        var counts: [ObjectIdentifier: [Int]] = [:]
        var sum = (count: 0, byteCount: 0)
        for lane in DeliveryLane.allCases {
            let line = lines[lane.rawValue]
            if line.schedule.isEmpty, line.begun == line.over { continue }
            try require(
                line.begun - line.over == UInt64(line.schedule.count), "M6: a turn has begun, waits, or is over")
            let isFirstVoid = line.schedule.first.map { $0.client.queue[tombstonesIn: lane] > 0 } ?? false
            try require(!isFirstVoid, "M6: the first turn of a line is not void")
            for turn in line.schedule {
                sum.count += 1
                sum.byteCount += turn.byteCount
                let client = turn.client
                let id = ObjectIdentifier(client)
                let isNew = counts[id]?[lane.rawValue] ?? 0 == 0
                if isNew { sum.count -= client.queue[tombstonesIn: lane] }
                counts[id, default: DeliveryLane.allCases.map { _ in 0 }][lane.rawValue] += 1
                try require(
                    client.presence == .gone
                        ? client.queue.isEmpty && client.observers.isEmpty : clients[client.name] === client,
                    "D8: \(client.name), whose turn it is, is there, or owns nothing")
            }
        }
        try require(count == sum.count && byteCount == sum.byteCount, "M6: the totals of turns are their sums")
        for client in clients.values where count > 0 || client.queue.hasScheduled {
            let own = counts[ObjectIdentifier(client)]
            for lane in DeliveryLane.allCases {
                try require(
                    client.queue[scheduledIn: lane] + client.queue[tombstonesIn: lane] == own?[lane.rawValue] ?? 0,
                    "M6: \(client.name) has as many turns as it counts: \(lane)")
            }
        }
    }

    /// Returns the watermark at the present end of a lane.
    func mark(_ lane: DeliveryLane) -> Watermark {
        Watermark(lane: lane, position: lines[lane.rawValue].begun)
    }

    func hasPassed(_ mark: Watermark) -> Bool {
        lines[mark.lane.rawValue].over >= mark.position
    }
}

/// A position in the schedule of a lane, behind a scheduled notification.
public struct Watermark: Sendable {
    public let lane: DeliveryLane
    fileprivate let position: UInt64

    fileprivate init(lane: DeliveryLane, position: UInt64) {
        self.lane = lane
        self.position = position
    }
}
