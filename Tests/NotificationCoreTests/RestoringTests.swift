// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonTestLimits
import Testing

/// Faults that the model found in what comes back after a restart, by their rules.
@Suite("Restoration of state after a restart", .limited)
struct RestoringTests {
    /// Three are lost to a client that has not answered, and it has not been told.
    private static let loss: [Step] = [
        .limit(.queuedPerClient, 1),
        .observe(client: 0, name: 0, object: 0, .hold, .default),
        .post(poster: 1, name: 1, object: 0, bytes: 40_000, immediately: false, times: 5),
    ]
    private static let post = Step.post(poster: 1, name: 1, object: 0, bytes: 0, immediately: false, times: 1)

    @Test(
        "E3, S4: a loss counts once, whether or not it was reported to the client before the restart",
        arguments: [
            loss + [.restart],
            // The place of a post decides whether the log is as it grew, or written anew.
            loss + [post, .restart],
            loss + [.answer(client: 0, times: 1), .restart],
            loss + [.answer(client: 0, times: 1), post, .restart],
            loss + [.restart, .answer(client: 0, times: 1), .restart, post, .restart],
        ])
    func losses(_ steps: [Step]) {
        let difference = Difference.first(in: steps)
        #expect(difference == nil, "\(difference.map(String.init(describing:)) ?? "")")
    }

    @Test(
        "E3, P3: a restored client receives nothing until it is identified, and then only allowed notifications",
        arguments: [true, false])
    func identity(isAllowed: Bool) throws {
        let old = Scenario()
        old.center.remembersChanges = true
        let id = try old.observe(one, "A", "", .hold)
        try old.observe(one, "B", "", .hold)
        try old.suspend(one)
        try old.post(2, of: "A")
        let new = Scenario()
        new.center.restoresOnlyIdentified = true
        for change in old.changes { #expect(new.center.restore(change)) }
        new.finishRestoring()
        try new.resume(one)
        for name in ["A", "B"] { try new.post(name) }
        #expect(new.received(one).isEmpty && new.status(one)?.queued == 4)
        if !isAllowed { new.revoke([id], of: one) }
        #expect(new.revoked[one] == nil)
        new.identify(one, as: 7)
        #expect(new.names(one) == (isAllowed ? ["A", "A", "A", "B"] : ["B"]))
        #expect(new.revoked[one] == (isAllowed ? nil : [id]))
        try new.center.checkInvariants()
    }

    @Test(
        "E3, S1: after a restart only clients that may not have read their suspension change are informed")
    func suspensionNoticePending() throws {
        let old = Scenario()
        old.center.remembersChanges = true
        for client in [one, two, three] {
            try old.observe(client, "A")
            old.stop(client)
            for _ in 0..<200 { _ = old.answer(to: client) }
        }
        try old.suspend(one)
        // Two changes that the client need not know of.
        try old.suspend(two)
        try old.followActivity(two)
        old.goOn(three)
        try old.suspend(three)
        // With these its window is full, and it confirms what it was told.
        for _ in 0..<64 { _ = old.answer(to: three) }
        let grown = old.changes
        var rewritten: [Change] = []
        old.center.forEachRememberedChange { rewritten.append($0) }
        for changes in [grown, rewritten] {
            let new = DistributedCenter()
            new.remembersChanges = true
            for change in changes { #expect(new.restore(change)) }
            var effects: [Effect] = []
            new.finishRestoring(effects: &effects)
            let told = effects.compactMap { effect in
                if case .suspensionChanged(let client, let isSuspended, _) = effect {
                    (client, isSuspended)
                } else {
                    nil
                }
            }
            #expect(told.map(\.0) == [one] && told.map(\.1) == [true], "\(told)")
            // It has been told now, and may not have heard it yet.
            for isConfirmed in [false, true] {
                if isConfirmed {
                    for _ in 0..<64 { _ = new.mayAnswer(one, byteCount: 100, effects: &effects) }
                    for _ in 0..<2 { new.clientAnswered(one, effects: &effects) }
                }
                let again = DistributedCenter()
                new.forEachRememberedChange { #expect(again.restore($0)) }
                effects = []
                again.finishRestoring(effects: &effects)
                let isTold = effects.contains { if case .suspensionChanged = $0 { true } else { false } }
                #expect(isTold == !isConfirmed)
            }
        }
    }

    @Test("E3, P3: an unacknowledged revocation is repeated after a restart, and an acknowledged one is not")
    func revocationOwed() throws {
        let old = Scenario()
        old.center.remembersChanges = true
        var taken: [ClientName: ObserverID] = [:]
        for client in [one, two, three] {
            try old.observe(client, "A")
            taken[client] = try old.observe(client, "B")
        }
        // One does not read, two was told and has not confirmed it, three has.
        old.stop(one)
        try old.post(300, of: "A")
        for client in [one, two, three] { old.revoke([try #require(taken[client])], of: client) }
        #expect(old.revoked[one] == nil && old.revoked[two] != nil && old.revoked[three] != nil)
        for _ in 0..<64 { _ = old.answer(to: three) }
        let grown = old.changes
        var rewritten: [Change] = []
        old.center.forEachRememberedChange { rewritten.append($0) }
        for changes in [grown, rewritten] {
            let new = DistributedCenter()
            new.remembersChanges = true
            for change in changes { #expect(new.restore(change)) }
            var effects: [Effect] = []
            new.finishRestoring(effects: &effects)
            let told = effects.compactMap { effect -> (ClientName, [ObserverID])? in
                if case .revoked(let client, let observers) = effect { (client, observers) } else { nil }
            }
            #expect(Set(told.map(\.0)) == [one, two] && told.count == 2, "\(told)")
            for (client, observers) in told { #expect(observers == [taken[client]]) }
            // They have been told now, and may not have heard it yet.
            for isConfirmed in [false, true] {
                if isConfirmed {
                    for client in [one, two] {
                        for _ in 0..<64 { _ = new.mayAnswer(client, byteCount: 100, effects: &effects) }
                        for _ in 0..<2 { new.clientAnswered(client, effects: &effects) }
                    }
                }
                let again = DistributedCenter()
                new.forEachRememberedChange { #expect(again.restore($0)) }
                effects = []
                again.finishRestoring(effects: &effects)
                #expect(effects.contains { if case .revoked = $0 { true } else { false } } == !isConfirmed)
            }
        }
    }

    @Test("E3, C3: clients match in the order of registration after a restart, too")
    func order() throws {
        let old = DistributedCenter()
        var effects: [Effect] = []
        let clients = (1...20).map { client($0) }
        for client in clients + clients.reversed() {
            _ = try old.addObserver(of: client, name: "A", object: "", options: ObserverOptions(), effects: &effects)
        }
        let new = DistributedCenter()
        old.forEachRememberedChange { change in #expect(new.restore(change)) }
        new.restoreNumbers(lastSerial: old.lastNumbers.serial, lastObserver: old.lastNumbers.observer)
        new.finishRestoring(effects: &effects)

        effects = []
        let payload = Scenario.Payload(byteCount: 0, tag: 0)
        _ = try new.post(name: "A", object: "", userInfo: payload, from: ":1.0", effects: &effects)
        new.sendAllReady(effects: &effects)
        let receivers = effects.compactMap { if case .deliver(let delivery) = $0 { delivery.client } else { nil } }
        #expect(receivers == clients)
    }

    @Test("D8, A4: during a restoration, new and restored clients are watched and probed once each")
    func comesMeanwhile() throws {
        let center = DistributedCenter()
        var effects: [Effect] = []
        #expect(center.restore(.client(one, ClientCounts())))
        #expect(center.restore(.client(two, ClientCounts())))
        _ = try center.addObserver(of: three, name: "A", object: "", options: ObserverOptions(), effects: &effects)
        // One that came back, too, may call before.
        _ = try center.addObserver(of: one, name: "A", object: "", options: ObserverOptions(), effects: &effects)
        center.finishRestoring(effects: &effects)
        center.finishRestoring(effects: &effects)
        let watched = effects.compactMap { if case .watch(let client) = $0 { client } else { nil } }
        let probed = effects.compactMap { if case .probe(let client) = $0 { client } else { nil } }
        #expect(watched.first == three)
        #expect(watched.sorted() == [one, two, three])
        #expect(probed == watched)
        // Two windows are unanswered then, and not three.
        for _ in 0..<100 { try Self.post(to: center, &effects) }
        let delivered = effects.filter {
            if case .deliver(let delivery) = $0 { delivery.client == three } else { false }
        }
        #expect(delivered.count == 64)
    }

    @Test("S2, S4, E3: a restored client gets its losses and waiting notifications before posts made meanwhile")
    func waitsForTheEnd() throws {
        let center = Self.center()
        #expect(center.restore(Self.waiting(false, 3, [1])))
        #expect(center.restore(.unreportedLoss(one, count: 2, observers: [ObserverID(rawValue: 1)], .queueFull)))
        var effects: [Effect] = []
        try Self.post(to: center, &effects)
        #expect(effects.isEmpty)
        center.finishRestoring(effects: &effects)
        center.sendAllReady(effects: &effects)
        let happened = effects.compactMap { effect -> UInt64? in
            switch effect {
            case .dropped(one, let count, _, _, let sequence): sequence * 100 + count
            case .deliver(let delivery) where delivery.client == one:
                delivery.sequence * 100 + delivery.notification.serial
            default: nil
            }
        }
        #expect(happened == [202, 303, 404])
    }

    private static func post(to center: DistributedCenter, _ effects: inout [Effect]) throws {
        let payload = Scenario.Payload(byteCount: 0, tag: 0)
        _ = try center.post(name: "A", object: "", userInfo: payload, from: ":1.0", effects: &effects)
        center.sendAllReady(effects: &effects)
    }

    private static func notification(_ serial: UInt64) -> Notification {
        Notification(
            name: "A", object: "", userInfo: Scenario.Payload(byteCount: 0, tag: 0), poster: ":1.0", serial: serial)
    }

    /// A client with the observers 1 and 2; a second one has 3.
    private static func center() -> DistributedCenter {
        let center = DistributedCenter()
        for (client, ids) in [(one, [1, 2]), (two, [3])] as [(ClientName, [UInt64])] {
            #expect(center.restore(.client(client, ClientCounts())))
            for id in ids {
                let registration = Registration(
                    id: ObserverID(rawValue: id), client: client, name: "A", object: nil,
                    options: ObserverOptions(suspensionBehavior: .hold))
                #expect(center.restore(.observer(registration)))
            }
        }
        return center
    }

    /// What waits for the observers with these numbers.
    private static func waiting(_ isHeld: Bool, _ serial: UInt64, _ ids: [UInt64]) -> Change {
        let observers = ids.map(ObserverID.init(rawValue:))
        return isHeld
            ? .held(one, notification(serial), observers: observers, coalescing: [])
            : .queuedDue(one, notification(serial), observers: observers, .standard)
    }

    @Test(
        "E3: notifications that waited for no existing observer are not restored", arguments: [false, true],
        [[], [3], [4]] as [[UInt64]])
    func nobody(isHeld: Bool, observers: [UInt64]) throws {
        let center = Self.center()
        #expect(!center.restore(Self.waiting(isHeld, 7, observers)))
        var effects: [Effect] = []
        center.finishRestoring(effects: &effects)
        center.sendAllReady(effects: &effects)
        #expect(!effects.contains { if case .deliver = $0 { true } else { false } })
        #expect(center.statistics.queued == 0 && center.statistics.queuedBytes == 0)
        try center.checkInvariants()
    }

    @Test(
        "E3: a restored notification is delivered only to those of its observers that exist", arguments: [false, true])
    func somebody(isHeld: Bool) throws {
        let center = Self.center()
        #expect(center.restore(Self.waiting(isHeld, 7, [2, 3, 4])))
        var effects: [Effect] = []
        center.finishRestoring(effects: &effects)
        center.sendAllReady(effects: &effects)
        let delivered = effects.compactMap {
            if case .deliver(let delivery) = $0 { delivery.observers.ids } else { nil }
        }
        #expect(delivered == [[ObserverID(rawValue: 2)]])
    }

    @Test("D4, E3: restored notifications with a serial that is out of order or impossible are rejected")
    func outOfOrder() throws {
        let center = Self.center()
        #expect(center.restore(Self.waiting(true, 7, [1])))
        for serial in [0, 6, 7, UInt64.max] { #expect(!center.restore(Self.waiting(true, serial, [1])), "\(serial)") }
        #expect(!center.restore(Self.waiting(false, 7, [1])), "what is held is newer than what is due")
        #expect(center.restore(Self.waiting(false, 5, [1])))
        for serial in [0, 4, 5, UInt64.max] { #expect(!center.restore(Self.waiting(false, serial, [1])), "\(serial)") }
        let observers = [ObserverID(rawValue: 1)]
        for lane in DeliveryLane.allCases {
            #expect(!center.restore(.queuedDue(one, Self.notification(5), observers: observers, lane)), "it is there")
        }
        #expect(!center.restore(.queuedDue(one, Self.notification(6), observers: observers, .flushed)))
        let registration = Registration(
            id: ObserverID(rawValue: .max), client: one, name: nil, object: nil, options: ObserverOptions())
        #expect(!center.restore(.observer(registration)))
        center.restoreNumbers(lastSerial: .max, lastObserver: .max)
        #expect(center.restore(.client(three, ClientCounts(sequence: .max, delivered: .max, dropped: .max))))
        var effects: [Effect] = []
        center.finishRestoring(effects: &effects)
        let next = try center.addObserver(of: one, name: "A", object: "", options: ObserverOptions(), effects: &effects)
        #expect(next.rawValue == 4)
        _ = try center.addObserver(of: three, name: "A", object: "", options: ObserverOptions(), effects: &effects)
        try Self.post(to: center, &effects)
        let serials = effects.compactMap {
            if case .deliver(let delivery) = $0 { delivery.notification.serial } else { nil }
        }
        #expect(serials.last == 8, "D4: the serial of what came back is not given again")
    }

    @Test("E3: a logged loss of a client without waiting notifications is ignored")
    func lossOfNothing() {
        let center = Self.center()
        #expect(center.restore(.lost(one, .queueFull)))
        #expect(center.clientStatuses.first { $0.name == one }?.dropped == 0)
    }
}
