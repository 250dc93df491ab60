// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonTestLimits
import Testing

/// What of a log that an earlier process left fits, and the numbers that it used up.
@Suite("Numbers restored from an earlier service", .limited)
struct RestoredNumbersTests {
    private static func notification(_ serial: UInt64) -> Notification {
        Notification(
            name: "A", object: "", userInfo: Scenario.Payload(byteCount: 0, tag: 0), poster: ":1.0", serial: serial)
    }

    private static func registration(_ id: UInt64, of client: ClientName) -> Registration {
        Registration(
            id: ObserverID(rawValue: id), client: client, name: "A", object: nil,
            options: ObserverOptions(suspensionBehavior: .hold))
    }

    private static func due(_ serial: UInt64, _ lane: DeliveryLane = .standard) -> Change {
        .queuedDue(one, notification(serial), observers: [ObserverID(rawValue: 1)], lane)
    }

    /// A client with the observers 1 and 2.
    private static func center(_ counts: ClientCounts = ClientCounts()) -> DistributedCenter {
        let center = DistributedCenter()
        center.remembersChanges = true
        #expect(center.restore(.client(one, counts)))
        for id in [1, 2] as [UInt64] { #expect(center.restore(.observer(registration(id, of: one)))) }
        return center
    }

    /// What the client sees when the restoring ends, in words.
    private static func seen(_ center: DistributedCenter) -> [String] {
        var effects: [Effect] = []
        center.finishRestoring(effects: &effects)
        center.sendAllReady(effects: &effects)
        return effects.compactMap { effect -> String? in
            switch effect {
            case .dropped(one, let count, let observers, let reason, let sequence):
                "lost \(count) of \(observers.map(\.rawValue)), \(reason.rawValue), up to \(sequence)"
            case .deliver(let delivery) where delivery.client == one:
                "serial \(delivery.notification.serial) as \(delivery.sequence)"
            default: nil
            }
        }
    }

    private static func dropped(_ center: DistributedCenter) -> UInt64? { center.clientStatuses.first?.dropped }

    @Test(
        "E3, D6: numbered notifications that may not have left, and unrecorded ones, are lost; no number is reused"
    )
    func unconfirmed() throws {
        var counts = ClientCounts(sequence: 10, delivered: 8, dropped: 2)
        counts.unconfirmed = 3
        counts.unkept = 2
        counts.lastSerial = 20
        let center = Self.center(counts)
        for serial in [20, 21] as [UInt64] { #expect(center.restore(Self.due(serial))) }
        // Once, however often it is said.
        for _ in 0..<2 { center.restoreNumbers(lastSerial: 30, lastObserver: 9) }
        #expect(Self.dropped(center) == 2 + 5)
        #expect(Self.seen(center) == ["lost 5 of [1, 2], service-restarted, up to 12", "serial 21 as 13"])
        #expect(center.clientStatuses.first?.delivered == 9)
        var effects: [Effect] = []
        let options = ObserverOptions()
        let next = try center.addObserver(of: one, name: "B", object: "", options: options, effects: &effects)
        #expect(next.rawValue == 10)
        let payload = Scenario.Payload(byteCount: 0, tag: 0)
        _ = try center.post(name: "A", object: "", userInfo: payload, from: two, effects: &effects)
        #expect(center.lastSerial == 31)
        try center.checkInvariants()
    }

    @Test("E3, D6: an unacknowledged first notification counts as lost after a restart and is not sent again")
    func firstOfAll() {
        var counts = ClientCounts(sequence: 1, delivered: 1)
        counts.unconfirmed = 1
        counts.lastSerial = 1
        let center = Self.center(counts)
        for serial in [1, 2] as [UInt64] { #expect(center.restore(Self.due(serial))) }
        center.restoreNumbers(lastSerial: 2, lastObserver: 2)
        #expect(Self.seen(center) == ["lost 1 of [1, 2], service-restarted, up to 1", "serial 2 as 2"])
    }

    @Test("E3, S4: unacknowledged notifications and an unreported loss become one loss after a restart")
    func unconfirmedAndLost() {
        var counts = ClientCounts(sequence: 10, delivered: 10, dropped: 0)
        counts.unconfirmed = 1
        let center = Self.center(counts)
        let loss = Change.unreportedLoss(one, count: 4, observers: [ObserverID(rawValue: 1)], .queueFull)
        // The later word holds.
        for _ in 0..<2 { #expect(center.restore(loss)) }
        #expect(Self.dropped(center) == 4)
        center.restoreNumbers(lastSerial: 0, lastObserver: 0)
        #expect(Self.dropped(center) == 5)
        #expect(Self.seen(center) == ["lost 5 of [1, 2], service-restarted, up to 14"])
    }

    @Test("E3: a client without unacknowledged notifications loses nothing at a restart")
    func nothingOpen() {
        let center = Self.center(ClientCounts(sequence: 10, delivered: 8, dropped: 2))
        #expect(center.restore(Self.due(20)))
        center.restoreNumbers(lastSerial: 30, lastObserver: 9)
        #expect(Self.seen(center) == ["serial 20 as 11"])
        #expect(center.lastSerial == 30 && center.lastObserver == 9)
        #expect(Self.dropped(center) == 2)
    }

    @Test("E3: restored counts beyond the possible maximum are replaced by zero")
    func damaged() {
        let most: UInt64 = 1 << 60
        var tooMany: [ClientCounts] = [
            ClientCounts(sequence: most + 1), ClientCounts(delivered: most + 1), ClientCounts(dropped: most + 1),
        ]
        var counts = ClientCounts(sequence: 5)
        counts.unkept = most + 1
        tooMany.append(counts)
        counts = ClientCounts(sequence: 5)
        counts.unconfirmed = 6
        tooMany.append(counts)
        for counts in tooMany { #expect(Self.center(counts).announcedCounts(of: one) == ClientCounts(), "\(counts)") }
        let good = ClientCounts(sequence: most, delivered: most, dropped: most)
        #expect(Self.center(good).announcedCounts(of: one) == good)
        counts.unconfirmed = 5
        let center = Self.center(counts)
        center.restoreNumbers(lastSerial: 0, lastObserver: 0)
        #expect(Self.seen(center) == ["lost 5 of [1, 2], service-restarted, up to 5"], "all of them may be open")
    }

    @Test("E3: logged changes of an unknown client are rejected, and those of a known client are accepted")
    func fits() {
        let ids = [ObserverID(rawValue: 1)]
        let post = PendingPost(
            name: "A", object: "", userInfo: Scenario.Payload(byteCount: 0, tag: 0), deliverImmediately: false,
            style: .asap)
        func changes(_ client: ClientName) -> [Change] {
            [
                .suspension(client, true), .suspendedByActivity(client, true), .suspensionNoticePending(client, false),
                .interestFollowed(client), .valuesFollowed(client),
                .held(client, Self.notification(8), observers: ids, coalescing: []),
                .flushed(client),
                .queuedDue(client, Self.notification(9), observers: ids, .standard), .popped(client, .flushed),
                .lost(client, .queueFull), .unreportedLoss(client, count: 1, observers: [], .queueFull),
                .lossAnnounced(client), .observersRemoved(client, Set(ids)), .observersRevoked(client, Set(ids)),
                .revocationsKnown(client), .clientGone(client),
            ]
        }
        let center = Self.center()
        for change in changes(two) { #expect(!center.restore(change), "\(change)") }
        #expect(!center.restore(.observer(Self.registration(5, of: two))))
        #expect(!center.restore(.client(one, ClientCounts())), "it is there")
        #expect(!center.restore(.observer(Self.registration(1, of: one))), "it is there")
        #expect(!center.restore(.postTaken(one, .asap)))
        #expect(center.restore(.postQueued(one, post, coalescing: [])))
        #expect(!center.restore(.postTaken(one, .whenIdle)))
        #expect(center.restore(.postTaken(one, .asap)))
        #expect(center.restore(.postsReplaced(one, name: "A", object: "", coalescing: [.name])))
        for change in changes(one) { #expect(center.restore(change), "\(change)") }
        #expect(center.statistics.clients == 0 && center.statistics.queuedPosts == 0)
    }

    @Test("Q7, E3: a queued post that was taken out of order leaves no empty queue behind")
    func takenOutOfTurn() throws {
        let center = Self.center()
        for poster in [one, two] {
            let post = PendingPost(
                name: "A", object: "", userInfo: Scenario.Payload(byteCount: 0, tag: 0), deliverImmediately: false,
                style: .asap)
            #expect(center.restore(.postQueued(poster, post, coalescing: [])))
        }
        #expect(center.restore(.postTaken(two, .asap)))
        #expect(center.statistics.queuedPosts == 1)
        try center.checkInvariants()
        #expect(!center.restore(.postTaken(two, .asap)))
        #expect(center.restore(.postTaken(one, .asap)))
        #expect(center.statistics.queuedPosts == 0)
        try center.checkInvariants()
    }

    @Test("D4, E3: a restored serial above the possible maximum is rejected")
    func greatest() {
        let center = Self.center()
        #expect(!center.restore(Self.due(1 << 60 + 1)))
        #expect(center.restore(Self.due(1 << 60)))
    }

    @Test("E3, S4: a loss in the log counts once, whether or not Dropped was sent")
    func lossesOfTheLog() {
        let center = Self.center(ClientCounts(sequence: 4, delivered: 3, dropped: 1))
        for serial in [5, 6, 7] as [UInt64] { #expect(center.restore(Self.due(serial))) }
        #expect(center.restore(.lost(one, .queueFull)))
        #expect(Self.dropped(center) == 2)
        #expect(center.waiting(for: one) == 3)
        // The counts at the beginning have what was told.
        #expect(center.restore(.lossAnnounced(one)))
        #expect(Self.dropped(center) == 1)
        #expect(center.restore(.lost(one, .queueFull)))
        #expect(Self.seen(center) == ["lost 1 of [1], queue-full, up to 5", "serial 7 as 6"])
    }

    @Test("E3: a restored due notification remains in the log until it is sent")
    func remembered() {
        let center = Self.center()
        #expect(center.restore(Self.due(5)))
        var kept = 0
        center.forEachRememberedChange { if case .queuedDue = $0 { kept += 1 } }
        #expect(kept == 1)
        var effects: [Effect] = []
        center.finishRestoring(effects: &effects)
        center.sendAllReady(effects: &effects)
        #expect(effects.count { if case .remember(.popped(one, .standard)) = $0 { true } else { false } } == 1)
    }

    @Test("D4, E3: a serial is restored only once over all lanes")
    func onceInAllLanes() {
        let center = Self.center()
        for tens in 1...10 as ClosedRange<UInt64> { #expect(center.restore(Self.due(10 * tens))) }
        for tens in 1...10 as ClosedRange<UInt64> {
            #expect(!center.restore(Self.due(10 * tens, .immediate)), "\(tens)")
            #expect(center.restore(Self.due(10 * tens + 5, .immediate)), "\(tens)")
        }
        func held(_ serial: UInt64) -> Change {
            .held(one, Self.notification(serial), observers: [ObserverID(rawValue: 1)], coalescing: [])
        }
        #expect(!center.restore(held(105)))
        #expect(center.restore(held(106)))
        #expect(center.statistics.queued == 21)
    }
}
