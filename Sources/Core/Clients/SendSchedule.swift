// SPDX-License-Identifier: Apache-2.0
import CarillonCollections

/// The order in which due notifications leave the service. Each ``DeliveryLane`` has a FIFO queue of **scheduled
/// sends** (M6), which the center calls slots. A scheduled send names a client, which is sent its next due notification
/// of the lane. The notifications themselves are in the ``DeliveryQueue`` of the client.
///
/// A client that reads gets a scheduled send for each new notification. The order within a lane is thus that of the
/// posts, over all clients (D4). A client that returns with a backlog has one scheduled send at a time, and gets a new
/// one at the end while more is due. Other clients are thus served in between. A scheduled send of a client that
/// stopped reading does nothing.
///
/// A batch takes several notifications with one scheduled send. The surplus ones of the client become **tombstones**:
/// they keep their places, so that watermarks stay valid, and do not count in ``count``. Otherwise a schedule full of
/// tombstones would count as overfull, and each new notification would be sent at once and alone. Their bytes count
/// until they are removed: only the number of a client's tombstones is known, and not their sizes.
struct SendSchedule {
    /// The maximum number of scheduled sends. Beyond it each new notification causes the first one to be sent, so that
    /// a burst does not accumulate here. It is also the number of notifications that a more urgent one can overtake
    /// while clients read.
    static let maxCount = 1024
    /// The maximum size of scheduled notifications, in bytes.
    static let maxBytes = 1 << 20

    /// The right of a client to be sent one due notification.
    private struct ScheduledSend {
        let client: Client
        /// The size of the notification for which it was scheduled, in bytes; 0 for a backlog.
        let byteCount: Int
    }

    /// The schedule of one lane.
    private struct LaneSchedule {
        var schedule = Deque<ScheduledSend>()
        /// The number of sends that were ever appended; a position for watermarks.
        var begun: UInt64 = 0
        /// The number of sends that were taken or dropped. All before this position are finished.
        var over: UInt64 = 0
    }

    private let meter: StepMeter
    /// The lines: the schedule of each lane, by the raw value of ``DeliveryLane``.
    private var laneSchedules = DeliveryLane.allCases.map { _ in LaneSchedule() }
    /// The number of scheduled sends, without tombstones.
    private(set) var count = 0
    /// The size of the scheduled notifications, in bytes, with tombstones.
    private var byteCount = 0

    init(meter: StepMeter) {
        self.meter = meter
    }

    /// Whether the schedule is beyond its maximum, so that the first sends must be made now.
    var isOverfull: Bool { count > Self.maxCount || byteCount > Self.maxBytes }

    /// Whether a lane has no scheduled send.
    func isEmpty(_ lane: DeliveryLane) -> Bool { laneSchedules[lane.rawValue].schedule.isEmpty }

    /// The most urgent lane with a scheduled send.
    var first: DeliveryLane? {
        guard count > 0 else { return nil }
        return DeliveryLane.allCases.first { !laneSchedules[$0.rawValue].schedule.isEmpty }
    }

    /// Schedules a send to the client at the end of a lane.
    ///
    /// - Parameter byteCount: the size of the notification, in bytes. It is 0 for a backlog, which counts against the
    ///   limits of queues instead.
    mutating func append(_ client: Client, in lane: DeliveryLane, byteCount: Int) {
        client.queue[scheduledIn: lane] += 1
        let line = lane.rawValue
        laneSchedules[line].schedule.append(ScheduledSend(client: client, byteCount: byteCount))
        laneSchedules[line].begun += 1
        count += 1
        self.byteCount += byteCount
    }

    /// Takes the next scheduled send of a lane.
    ///
    /// - Returns: its client; nil when the lane is empty.
    mutating func next(in lane: DeliveryLane) -> Client? {
        let line = lane.rawValue
        guard let send = laneSchedules[line].schedule.popFirst() else { return nil }
        laneSchedules[line].over += 1
        count -= 1
        byteCount -= send.byteCount
        send.client.queue[scheduledIn: lane] -= 1
        dropTombstones(in: lane)
        invariant(
            count >= 0 && byteCount >= 0 && (count > 0 || byteCount == 0) && send.client.queue[scheduledIn: lane] >= 0,
            "M6: the counts of scheduled sends are not negative")
        return send.client
    }

    /// Makes the surplus sends of a client in `lane` tombstones, so that it has no more scheduled sends than due
    /// notifications there. Call it after a batch.
    mutating func tombstone(_ client: Client, in lane: DeliveryLane) {
        let surplus = client.queue[scheduledIn: lane] - client.queue.count(in: lane)
        guard surplus > 0 else { return }
        client.queue[scheduledIn: lane] -= surplus
        client.queue[tombstonesIn: lane] += surplus
        count -= surplus
        dropTombstones(in: lane)
    }

    /// Removes tombstones at the head of a lane. The tombstones of a client come before its scheduled sends there, so
    /// that a count for each client is enough to find them.
    private mutating func dropTombstones(in lane: DeliveryLane) {
        let line = lane.rawValue
        while let first = laneSchedules[line].schedule.first, first.client.queue[tombstonesIn: lane] > 0 {
            meter.count()
            laneSchedules[line].schedule.popFirst()
            laneSchedules[line].over += 1
            byteCount -= first.byteCount
            first.client.queue[tombstonesIn: lane] -= 1
        }
    }

    /// Checks all conditions that hold between two events, in debug builds and the simulation.
    ///
    /// - Parameter clients: the present clients.
    func checkInvariants(clients: [ClientName: Client]) throws(BrokenInvariant) {
        var counts: [ObjectIdentifier: [Int]] = [:]
        var sum = (count: 0, byteCount: 0)
        for lane in DeliveryLane.allCases {
            let line = laneSchedules[lane.rawValue]
            if line.schedule.isEmpty, line.begun == line.over { continue }
            try require(
                line.begun - line.over == UInt64(line.schedule.count), "M6: each appended send is scheduled or finished"
            )
            let isFirstTombstone = line.schedule.first.map { $0.client.queue[tombstonesIn: lane] > 0 } ?? false
            try require(!isFirstTombstone, "M6: no lane begins with a tombstone")
            for send in line.schedule {
                sum.count += 1
                sum.byteCount += send.byteCount
                let client = send.client
                let id = ObjectIdentifier(client)
                let isNew = counts[id]?[lane.rawValue] ?? 0 == 0
                if isNew { sum.count -= client.queue[tombstonesIn: lane] }
                counts[id, default: DeliveryLane.allCases.map { _ in 0 }][lane.rawValue] += 1
                try require(
                    client.presence == .gone
                        ? client.queue.isEmpty && client.observers.isEmpty : clients[client.name] === client,
                    "D8: the scheduled client \(client.name) is present, or has no state")
            }
        }
        try require(
            count == sum.count && byteCount == sum.byteCount, "M6: the totals of scheduled sends are their sums")
        for client in clients.values where count > 0 || client.queue.hasScheduled {
            let own = counts[ObjectIdentifier(client)]
            for lane in DeliveryLane.allCases {
                try require(
                    client.queue[scheduledIn: lane] + client.queue[tombstonesIn: lane] == own?[lane.rawValue] ?? 0,
                    "M6: the count of scheduled sends of \(client.name) is right: \(lane)")
            }
        }
    }

    /// Returns the watermark at the present end of a lane.
    func mark(_ lane: DeliveryLane) -> Watermark {
        Watermark(lane: lane, position: laneSchedules[lane.rawValue].begun)
    }

    /// Whether all sends before a watermark are finished.
    func hasPassed(_ mark: Watermark) -> Bool {
        laneSchedules[mark.lane.rawValue].over >= mark.position
    }
}

/// A position in the schedule of a lane, behind a scheduled notification. A post is answered when the schedule has
/// passed it: its notifications have then been sent.
public struct Watermark: Sendable {
    public let lane: DeliveryLane
    fileprivate let position: UInt64

    fileprivate init(lane: DeliveryLane, position: UInt64) {
        self.lane = lane
        self.position = position
    }
}
